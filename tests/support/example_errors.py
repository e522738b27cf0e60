"""One error of each kind that the package has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import fairshot
from fairshot.benchmarks.cifar100 import DATASET
from fairshot.errors import NoGPU, UserError

VALUES = {  # by how the annotation of an argument begins
    "Path": Path("folder"),
    "int": 3,
    "float": 0.5,
    "Iterable": ("one", "two"),
    "Sequence": ("one", "two"),
    "Collection": ("one", "two"),
    "tuple": (Path("one"), Path("two")),
    "dict[str, int]": {"one": 1},
    "Mapping": {"one": "two"},
    "Dataset": DATASET,
    "UserError": NoGPU(),
}


def error_kinds() -> list[type[UserError]]:
    """Return all subclasses of UserError."""
    for module in pkgutil.walk_packages(fairshot.__path__, "fairshot."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = [UserError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return kinds[1:]


def arguments_of(kind: type[UserError]) -> dict[str, Any]:
    """Return arguments that fit the annotations of an error's constructor."""
    parameters = inspect.signature(kind).parameters.values()
    named = [each for each in parameters if each.kind is not each.VAR_POSITIONAL]
    return {each.name: _example(str(each.annotation)) for each in named}


def _example(annotation: str) -> object:
    return next((value for start, value in VALUES.items() if annotation.startswith(start)), "a text")
