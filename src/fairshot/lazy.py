"""Packages whose names are imported when they are first asked for: torch takes seconds to import."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562), by its `__name__` and `__file__`.

    What the package imports for type checkers, below `if TYPE_CHECKING:`, is what can be imported from it.
    """
    code = ast.parse(Path(file).read_text(encoding="utf-8")).body
    listed = [node for block in code if isinstance(block, ast.If) for node in block.body]
    imports = [node for node in listed if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(modules)
        if (module := modules.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module), name)

    return get
