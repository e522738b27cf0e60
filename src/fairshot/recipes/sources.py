"""Where recipes come from: YAML files of the package or of users, merged and changed key by key.

A recipe of the package is made of two files: `<benchmark>/common.yaml`, what its methods share, and
`<benchmark>/<method>.yaml`, whose keys are added or replace those of the first. A recipe given by its path
stands alone, unless it says `extends: <benchmark>`: then it is merged with that benchmark's common file.
Either may say `extends: <benchmark>/<recipe>`, and is merged with that recipe of the package; if it names
another method, without the section `method` of that recipe.
`model.weights: <preset>` brings the backbone and the input of the preset; keys of `model` beside it stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fairshot.documents import BadYAML, parse_yaml, read_yaml_text
from fairshot.errors import BadOverride, BadSetting, FileRefused, UnknownRecipe, did_you_mean
from fairshot.methods.plugins import plugins_in
from fairshot.models.presets import PRESETS

LONGEST = 200  # characters of a change that messages repeat
COMMON = "common"  # the file that the methods of a benchmark share
EXTENDS = "extends"  # the key by which a recipe asks for it, or for another recipe of the package
NO_WEIGHTS = ("null", "~", "")  # as YAML writes that there are none


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with fairshot: benchmark/method."""
    return sorted(name for name in _packaged() if not name.endswith(f"/{COMMON}"))


def _packaged() -> dict[str, Traversable]:
    """Return the YAML files of the package by their names, benchmark/file."""
    folders = [folder for folder in resources.files(__package__).iterdir() if folder.is_dir()]
    return {
        f"{folder.name}/{file.name.removesuffix('.yaml')}": file
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }


def benchmarks_with_recipes() -> list[str]:
    """Return the benchmarks that have a common file."""
    return sorted(name.partition("/")[0] for name in _packaged() if name.endswith(f"/{COMMON}"))


def read_source(source: str) -> dict[str, Any]:
    """Read the YAML of a recipe, merged with what it extends: common files, or a recipe of the package."""
    if source in recipe_names():
        content = _parse_packaged(source)
        extended = content.pop(EXTENDS, source.partition("/")[0])
    else:
        content = _parse(_read_file(source), source)
        extended = content.pop(EXTENDS, None)
    below = {} if extended is None else _read_extended(extended)
    if _method_name(content) not in (None, _method_name(below)):
        below.pop("method", None)  # settings of another method
    return _merged(below | _model_of_preset(content), content)


def _method_name(content: Mapping[str, Any]) -> Any:
    """Return the name of the method of a recipe; None if it names none."""
    section = content.get("method")
    return section.get("name") if isinstance(section, dict) else None


def _read_extended(name: Any) -> dict[str, Any]:
    """Read what a recipe extends: the common file of a benchmark, or a recipe of the package."""
    if name in recipe_names():
        return read_source(name)
    benchmarks = benchmarks_with_recipes()
    if name not in benchmarks:
        meant = did_you_mean(str(name), [*benchmarks, *recipe_names()])
        raise BadSetting(EXTENDS, name, f"expected one of {', '.join(benchmarks)}, or a recipe of one{meant}")
    return _parse_packaged(f"{name}/{COMMON}")


def _model_of_preset(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `model` of the preset whose weights a recipe names; nothing if it names none."""
    section = content.get("model")
    weights = section.get("weights") if isinstance(section, dict) else None
    preset = PRESETS.get(weights) if isinstance(weights, str) else None
    return {} if preset is None else {"model": preset.section()}


def drop_other_weights(content: dict[str, Any], overrides: Iterable[str]) -> None:
    """Let a change of `model.weights` replace the weights of the recipe; a preset replaces all of `model`."""
    changes = [override.partition("=") for override in overrides]
    named = [value.strip() for key, _, value in changes if key.strip() == "model.weights"]
    if named and named[-1] in PRESETS:
        content["model"] = PRESETS[named[-1]].section()
    elif named and named[-1] not in NO_WEIGHTS and isinstance(content.get("model"), dict):
        content["model"].pop("pretrained", None)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return both with what is above in the place of what is below; sections are merged key by key."""
    merged = dict(below)
    for key, value in above.items():
        old = below.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _read_file(source: str) -> str:
    for code in (source.partition("/")[2], source):
        if code.endswith(".py") and Path(code).is_file():
            raise BadSetting("recipe", code, f"it is a Python file; name its class: {plugins_in(code)}")
    path = Path(source)
    if not path.is_file():
        raise UnknownRecipe(source, recipe_names())
    return read_yaml_text(path)


def _parse_packaged(name: str) -> dict[str, Any]:
    return _parse(_packaged()[name].read_text(encoding="utf-8"), name)


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        content = parse_yaml(text)
    except BadYAML as problem:
        raise FileRefused(Path(source), f"it is not YAML that can be read: {problem}") from None
    if not isinstance(content, dict):
        raise FileRefused(Path(source), f"it must hold keys and values, not {type(content).__name__}")
    return content


def apply_override(content: dict[str, Any], override: str) -> None:
    """Set one key: `training.epochs=10`. The value is read as YAML."""
    key, equals, value = override.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not last:
        raise BadOverride(override, "expected key=value")
    section = content
    for parent in parents:
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            raise BadOverride(override, f"{parent} is a value, not a section")
    try:
        section[last] = parse_yaml(value)
    except BadYAML as problem:
        raise BadOverride(override[:LONGEST], f"its value is not YAML that can be read: {problem}") from None
