"""One file a system; each composes the rooms and adds only its own loss and rule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from fairshot.errors import UserError
from fairshot.methods.method import Method, MethodSettings
from fairshot.models.embedder import ModelSettings


@cache
def methods() -> dict[str, type[Method[Any]]]:
    """Return every system by name: each file of this folder that defines one is found by itself."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for item in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(item, type) and issubclass(item, Method) and "name" in vars(item):
                found[item.name] = item
    return dict(sorted(found.items()))


def method_named(name: str) -> type[Method[Any]]:
    """Return the system of that name."""
    if name not in methods():
        raise UserError(f"method.name: {name!r} is unknown; known are {', '.join(methods())}")
    return methods()[name]


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
    told = total_classes if kind.facts.knows_future else None
    return kind(settings, model, channels, base_classes, told)
