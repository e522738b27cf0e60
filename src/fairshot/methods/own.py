"""Methods from outside the package: a class of a Python file, named where a method is asked for."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

from fairshot.errors import UserError, did_you_mean
from fairshot.methods.method import Method

MARK = ".py:"  # between file and class: my_method.py:MyMethod
KEPT = "method.py"  # the copy of such a file that a run keeps beside its recipe
_loaded: dict[str, tuple[str, type[Method[Any]]]] = {}  # by name: where it came from, and what it is


def own_methods() -> dict[str, type[Method[Any]]]:
    """Return the methods that this process was given, by name."""
    return {name: kind for name, (_, kind) in _loaded.items()}


def own_sources() -> list[str]:
    """Return where they came from, for another process that is to know them too."""
    return [source for source, _ in _loaded.values()]


def own_file(name: str) -> Path | None:
    """Return the file that a method came from; None for one of the package."""
    return Path(_loaded[name][0].rpartition(":")[0]) if name in _loaded else None


def load_own(source: str) -> type[Method[Any]]:
    """Load `file.py:Class`, once a process; from then on it is known by its name. A copy is the same."""
    known = loaded_own(source)
    if known is not None:
        return known
    file, _, wanted = source.rpartition(":")
    path = Path(file).resolve()
    kind = _method_in(path, wanted)
    if kind.name in _loaded or (Path(__file__).parent / f"{kind.name}.py").is_file():
        raise UserError(f"{path}: there is another method named {kind.name!r}; give {wanted} another name")
    _loaded[kind.name] = (f"{path}:{wanted}", kind)
    return kind


def loaded_own(source: str) -> type[Method[Any]] | None:
    """Return the method that this process was given as `file.py:Class`, or as that of a copy of the file."""
    return next((kind for known, kind in _loaded.values() if _same_code(known, source)), None)


def _same_code(known: str, source: str) -> bool:
    (file, _, kind), (other, _, wanted) = known.rpartition(":"), source.rpartition(":")
    if kind != wanted:
        return False
    one, two = Path(file).resolve(), Path(other).resolve()
    return one == two or (one.is_file() and two.is_file() and one.read_bytes() == two.read_bytes())


def class_to_name(file: str) -> str:
    """Say how the methods of a Python file, its classes with a `name`, are given; the file is not run."""
    return " or ".join(f"{file}:{kind}" for kind in _names_said(Path(file)) or ["Class"])


def class_named(file: Path, name: str) -> str | None:
    """Return the class of a Python file that gives itself this name; the file is not run."""
    return next((kind for kind, said in _names_said(file).items() if said == name), None)


def _names_said(file: Path) -> dict[str, object]:
    """Return the `name` of each class that has one; None where it is not simply written down."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return {}
    said: dict[str, object] = {}
    for kind in [each for each in body if isinstance(each, ast.ClassDef)]:
        for part in kind.body:
            if isinstance(part, ast.Assign | ast.AnnAssign) and _is_name(part):
                said[kind.name] = part.value.value if isinstance(part.value, ast.Constant) else None
    return said


def _is_name(part: ast.Assign | ast.AnnAssign) -> bool:
    targets = part.targets if isinstance(part, ast.Assign) else [part.target]
    return any(isinstance(each, ast.Name) and each.id == "name" for each in targets)


def _method_in(path: Path, wanted: str) -> type[Method[Any]]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; a method of your own is given as file.py:Class")
    spec = importlib.util.spec_from_file_location(f"fairshot_own_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where classes of the file look for their own annotations
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise UserError(f"{path} cannot be imported: {type(problem).__name__}: {problem}") from problem
    kind = getattr(module, wanted, None)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        there = [
            each.__name__ for each in classes if issubclass(each, Method) and each.__module__ == spec.name
        ]
        raise UserError(
            f"{path}: {wanted!r} is no class of this file that derives from fairshot's Method"
            f"{did_you_mean(wanted, there)}"
        )
    missing = [part for part in ("name", "card", "Settings") if not hasattr(kind, part)]
    if missing:
        raise UserError(
            f"{path}: {wanted} does not say its {', '.join(missing)}; see docs/add-your-method.md"
        )
    return kind
