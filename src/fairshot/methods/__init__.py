"""One file a system; each composes the rooms and adds only its own loss and rule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from fairshot.errors import UserError, did_you_mean
from fairshot.methods.method import Method, MethodSettings
from fairshot.methods.own import own_methods
from fairshot.models.embedder import ModelSettings


def methods() -> dict[str, type[Method[Any]]]:
    """Return every system by name: those of this folder, and those given from outside."""
    return _packaged() | own_methods()


@cache
def _packaged() -> dict[str, type[Method[Any]]]:
    """Each file of this folder that defines a system is found by itself."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for item in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(item, type) and issubclass(item, Method) and "name" in vars(item):
                found[item.name] = item
    return dict(sorted(found.items()))


def method_named(name: str) -> type[Method[Any]]:
    """Return the system of that name."""
    if name not in methods():
        raise UserError(
            f"method.name: {name!r} is unknown; known are {', '.join(methods())}"
            f"{did_you_mean(name, methods()) or '; one of your own is named by its file: file.py:Class'}"
        )
    return methods()[name]


def baseline() -> str:
    """Return the name of the system that adds nothing to the common training and rule."""
    return next(name for name, kind in methods().items() if kind.card.baseline)


def build(
    name: str,
    settings: MethodSettings,
    model: ModelSettings,
    channels: int,
    base_classes: int,
    total_classes: int,
) -> Method[Any]:
    """Build a system; only one that declares that it must know learns how many classes there will be."""
    kind = method_named(name)
    told = total_classes if kind.card.knows_future else None
    return kind(settings, model, channels, base_classes, told)
