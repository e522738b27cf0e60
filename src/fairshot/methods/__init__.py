"""The compared systems, one file per method: its own loss and its own decision rule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from fairshot.errors import BadSetting, did_you_mean
from fairshot.methods.method import Method, MethodSettings
from fairshot.methods.plugins import plugin_methods
from fairshot.models.embedder import ModelSettings


def methods() -> dict[str, type[Method[Any]]]:
    """Return every method by name: those of this folder, and those loaded from users' files."""
    return _packaged() | plugin_methods()


def packaged_names() -> list[str]:
    """Return the names of the methods of this folder."""
    return list(_packaged())


def method_title(name: str) -> str:
    """Return the name of a method as its authors write it; one that is not known here keeps its own."""
    kind = methods().get(name)
    return name if kind is None else kind.title()


@cache
def _packaged() -> dict[str, type[Method[Any]]]:
    """Import every file of this folder, and return the methods that they define."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for item in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(item, type) and issubclass(item, Method) and "name" in vars(item):
                found[item.name] = item
    return dict(sorted(found.items()))


def method_named(name: str) -> type[Method[Any]]:
    """Return the method of that name."""
    if name not in methods():
        own = "; one of your own is named by its file: file.py:Class"
        meant = did_you_mean(name, methods()) or own
        raise BadSetting("method.name", name, f"known are {', '.join(methods())}{meant}")
    return methods()[name]


def baseline() -> str:
    """Return the name of the method that adds nothing to the common training and nearest class mean."""
    return next(name for name, kind in methods().items() if kind.card.baseline)


def build(
    name: str,
    settings: MethodSettings,
    model: ModelSettings,
    channels: int,
    base_classes: int,
    total_classes: int,
) -> Method[Any]:
    """Build a method; it is given the number of all classes only if its card declares that it needs it."""
    kind = method_named(name)
    return kind(settings, model, channels, base_classes, total_classes if kind.card.knows_future else None)
