"""Recipe: everything that decides a run's numbers, read from YAML and checked before anything happens.

A recipe of the package is made of two files: `<benchmark>/common.yaml`, what its methods share, and
`<benchmark>/<method>.yaml`, whose keys are added or replace those of the first. A recipe given by its path
stands alone, unless it says `extends: <benchmark>`: then it is merged with that benchmark's common file.
`model.weights: <preset>` brings the backbone and the input of the preset; keys of `model` beside it stay.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from fairshot.benchmarks.stream import StreamSettings
from fairshot.documents import BadYAML, parse_yaml, read_yaml_text, write_yaml
from fairshot.errors import (
    BadOverride,
    BadSetting,
    BadSettings,
    CodeNotTrusted,
    DamagedFile,
    FileRefused,
    MethodNotLoaded,
    UnknownRecipe,
    did_you_mean,
)
from fairshot.methods import baseline, method_named, methods
from fairshot.methods.method import MethodSettings
from fairshot.methods.plugins import (
    PLUGIN_COPY,
    PLUGIN_MARK,
    load_plugin,
    loaded_plugin,
    plugin_class,
    plugins_in,
)
from fairshot.models.embedder import ModelSettings
from fairshot.models.presets import PRESETS
from fairshot.settings import Settings, explain
from fairshot.training.loop import TrainingSettings
from fairshot.training.views import ViewSettings

DEFAULT_METHOD = "sss"  # the one that is run where none is named
LONGEST = 200  # characters of a change that messages repeat
COMMON = "common"  # the file that the methods of a benchmark share
EXTENDS = "extends"  # the key by which a recipe outside the package asks for it
SECTIONS = ("benchmark", "model", "views", "training")  # beside the seed and the method
NO_WEIGHTS = ("null", "~", "")  # as YAML writes that there are none
# a line in the recipe of a run that keeps the code of its method
CODE_DIGEST = re.compile(rf"# {PLUGIN_COPY}: ([0-9a-f]{{64}})\n")


class BenchmarkSettings(StreamSettings):
    """Which benchmark, and how it is cut into sessions."""

    name: str = Field(description="Name of the benchmark.")


class _Sections(Settings):
    """The sections every recipe has, whatever its method."""

    seed: int = Field(0, ge=0)
    benchmark: BenchmarkSettings
    model: ModelSettings = ModelSettings()
    views: ViewSettings = ViewSettings()
    training: TrainingSettings = TrainingSettings()
    method: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """One experiment, complete."""

    seed: int
    benchmark: BenchmarkSettings
    model: ModelSettings
    views: ViewSettings
    training: TrainingSettings
    method_name: str
    method: MethodSettings

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe with every default filled in, as plain values."""
        parts: dict[str, Any] = {"seed": self.seed}
        for name in SECTIONS:
            parts[name] = getattr(self, name).model_dump(mode="json")
        return parts | {"method": {"name": self.method_name, **self.method.model_dump(mode="json")}}

    def training_part(self) -> dict[str, Any]:
        """Return what decides the base session: equal for recipes that differ only in how they answer."""
        parts, kind = self.as_dict(), method_named(self.method_name)
        for name in kind.decision_settings:
            parts["method"].pop(name)
        parts["method"]["name"] = kind.trained_as or self.method_name
        return parts

    def as_yaml(self) -> str:
        """Return the recipe as a YAML document that `load_recipe` reads back."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False)


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with fairshot: benchmark/method."""
    return sorted(name for name in _packaged() if not name.endswith(f"/{COMMON}"))


def run_name(source: str, recipe: Recipe) -> str:
    """Return what a run is called: as its recipe of the package, or else by its method."""
    return source.partition("/")[2] if source in recipe_names() else recipe.method_name


def default_recipe(benchmark: str) -> str:
    """Return the name of the recipe for a benchmark when no method is named."""
    return f"{benchmark}/{DEFAULT_METHOD}"


def load_recipe(
    source: str, overrides: Iterable[str] = (), seed: int | None = None, trust: bool = False
) -> Recipe:
    """Load a recipe by name (benchmark/method) or path, change some keys (`training.epochs=10`), check it.

    A method of one's own, `benchmark/file.py:Class`, is trained as the baseline is; a recipe for it names it
    so too: `method.name: file.py:Class`, the file beside the recipe. Code that a recipe file names is run
    only with `trust`; what `source` or an override names is the caller's own word.
    """
    overrides = list(overrides)
    if PLUGIN_MARK in source:
        benchmark, _, method = source.partition("/")
        if benchmark not in _benchmarks():
            meant = did_you_mean(benchmark, _benchmarks()) or "; write doodles/file.py:Class, for example"
            raise BadSetting("recipe", source, f"it names no benchmark{meant}")
        content = _read(f"{benchmark}/{baseline()}")
        content["method"] = {"name": method}
        trust = True
    else:
        content = _read(source)
        _locate_method(source, content)
    _drop_other_weights(content, overrides)
    for override in overrides:
        _apply(content, override)
        named = override.partition("=")[0].strip() in ("method", "method.name")
        trust = trust or (named and PLUGIN_MARK in override)
    _load_own_method(source, content, trust)
    if seed is not None:
        content["seed"] = seed
    recipe = check_recipe(content)
    return replace(recipe, model=recipe.model.pinned())


def read_recipe(path: Path) -> Recipe:
    """Read the recipe that a run has left.

    Unlike `load_recipe` it runs no code that the recipe names: whoever reads a run, which may come from
    anywhere, has not asked for that.
    """
    content = _read(str(path))
    _locate_method(str(path), content)
    code = _code_of(str(path), content)
    if code is not None:
        known = loaded_plugin(code)
        if known is None:
            raise MethodNotLoaded(path, _method_name(content))
        content["method"]["name"] = known.name
    return check_recipe(content)


def write_recipe(path: Path, recipe: Recipe, code: bytes | None = None) -> None:
    """Write the recipe of a run, with a checksum; `code` is the file of its method that the run keeps."""
    digest = "" if code is None else f"# {PLUGIN_COPY}: {hashlib.sha256(code).hexdigest()}\n"
    write_yaml(path, recipe.as_yaml() + digest)


def check_recipe(content: Mapping[str, Any]) -> Recipe:
    """Turn plain values into a recipe; each key that cannot be used is named."""
    try:
        sections = _Sections.model_validate(content)
    except ValidationError as problem:
        raise BadSettings(explain(problem, _Sections, further=_settings_of_method(content))) from None
    options = dict(sections.method)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise BadSettings(
            {"method.name": f"missing; a recipe names its method, for example {DEFAULT_METHOD}"}
        )
    expected = method_named(name).Settings
    try:
        method = expected.model_validate(options)
    except ValidationError as problem:
        raise BadSettings(explain(problem, expected, "method.")) from None
    return Recipe(
        sections.seed, sections.benchmark, sections.model, sections.views, sections.training, name, method
    )


def _settings_of_method(content: Mapping[str, Any]) -> dict[str, type[Settings]]:
    """Return the settings that the section of the method may hold, if it names a known method."""
    named = methods().get(_method_name(content))
    return {} if named is None else {"method": named.Settings}


def _method_name(content: Mapping[str, Any]) -> str:
    section = content.get("method")
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) else ""


def _locate_method(source: str, content: dict[str, Any]) -> None:
    """Take the Python file of a method that a recipe names as lying beside the recipe."""
    name = _method_name(content)
    if PLUGIN_MARK in name:
        content["method"]["name"] = str(Path(source).parent / name)


def _load_own_method(source: str, content: dict[str, Any], trust: bool) -> None:
    """Load a method of one's own if it is trusted or loaded already, and go on with its name."""
    code = _code_of(source, content)
    if code is None:
        return
    if not trust and loaded_plugin(code) is None:
        raise CodeNotTrusted(source, Path(code.rpartition(":")[0]))
    content["method"]["name"] = load_plugin(code).name


def _code_of(source: str, content: dict[str, Any]) -> str | None:
    """Return `file.py:Class` of a method that is not of the package: as it is named, or the copy of a run.

    A run's recipe has the name of the method alone, and the run keeps the file beside it.
    """
    name, kept = _method_name(content), Path(source).parent / PLUGIN_COPY
    if PLUGIN_MARK in name:
        return name
    if name in methods() or not kept.is_file() or not Path(source).is_file():
        return None
    written = CODE_DIGEST.search(read_yaml_text(Path(source)))
    if written and hashlib.sha256(kept.read_bytes()).hexdigest() != written[1]:
        raise DamagedFile(kept, "it is not the file that the run kept")
    kind = plugin_class(kept, name)
    return None if kind is None else f"{kept}:{kind}"


def _packaged() -> dict[str, Traversable]:
    """Return the YAML files of the package by their names, benchmark/file."""
    folders = [folder for folder in resources.files(__package__).iterdir() if folder.is_dir()]
    return {
        f"{folder.name}/{file.name.removesuffix('.yaml')}": file
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }


def _benchmarks() -> list[str]:
    """Return the benchmarks that have a common file."""
    return sorted(name.partition("/")[0] for name in _packaged() if name.endswith(f"/{COMMON}"))


def _read(source: str) -> dict[str, Any]:
    """Read the YAML of a recipe, merged with the common file of its benchmark where it belongs to one."""
    packaged = _packaged()
    if source in recipe_names():
        content = _parse(packaged[source].read_text(encoding="utf-8"), source)
        benchmark = source.partition("/")[0]
    else:
        content = _parse(_read_file(source), source)
        benchmark = content.pop(EXTENDS, None)
        if benchmark is None:
            return _merged(_model_of_preset(content), content)
        if benchmark not in _benchmarks():
            meant = did_you_mean(str(benchmark), _benchmarks())
            raise BadSetting(EXTENDS, benchmark, f"expected one of {', '.join(_benchmarks())}{meant}")
    common = f"{benchmark}/{COMMON}"
    below = _parse(packaged[common].read_text(encoding="utf-8"), common) | _model_of_preset(content)
    return _merged(below, content)


def _model_of_preset(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `model` of the preset whose weights a recipe names; nothing if it names none."""
    section = content.get("model")
    weights = section.get("weights") if isinstance(section, dict) else None
    preset = PRESETS.get(weights) if isinstance(weights, str) else None
    return {} if preset is None else {"model": preset.section()}


def _drop_other_weights(content: dict[str, Any], overrides: Iterable[str]) -> None:
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


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        content = parse_yaml(text)
    except BadYAML as problem:
        raise FileRefused(Path(source), f"it is not YAML that can be read: {problem}") from None
    if not isinstance(content, dict):
        raise FileRefused(Path(source), f"it must hold keys and values, not {type(content).__name__}")
    return content


def _apply(content: dict[str, Any], override: str) -> None:
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
