"""A recipe to read: every key with its value and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import yaml

from fairshot.recipes.recipe import SECTIONS, Recipe
from fairshot.settings import Settings

WIDEST = 60  # characters of a line whose comment stands in one column with others


def annotated_yaml(recipe: Recipe) -> str:
    """Return the complete recipe as YAML, the meaning of each key behind it as a comment."""
    lines = [(f"seed: {recipe.seed}", "Seed of everything random.")]
    for section in SECTIONS:
        lines += _section(section, getattr(recipe, section))
    title, *settings = _section("method", recipe.method)
    lines += [title, (f"  name: {recipe.method_name}", "Name of the method."), *settings]
    column = max(len(text) for text, _ in lines if len(text) <= WIDEST)
    return "".join(f"{text:<{column}}  # {meaning}".rstrip(" #") + "\n" for text, meaning in lines)


def _section(title: str, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each line of a section and its meaning; an own method's settings may lack descriptions."""
    yield f"{title}:", (type(settings).__doc__ or "").partition("\n")[0]
    for key, value in settings.model_dump(mode="json").items():
        text = yaml.safe_dump([value], default_flow_style=True, width=1000).strip()[1:-1]
        field = type(settings).model_fields[key]
        others = [each for each in _choices(field.annotation) if each != value]
        meaning = [field.description or "", f"Or: {', '.join(others)}." if others else ""]
        yield f"  {key}: {text}", " ".join(filter(None, meaning))


def _choices(kind: Any) -> list[str]:
    """Return the values of a setting that has a fixed set of them, besides null; else none."""
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [each for part in get_args(kind) for each in _choices(part)]
