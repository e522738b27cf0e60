"""Recipe: everything that decides a run's numbers, read from YAML and checked before anything happens."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from fairshot.benchmarks.stream import StreamSettings
from fairshot.errors import UserError, did_you_mean
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
from fairshot.settings import Settings, explain
from fairshot.training.loop import TrainingSettings
from fairshot.training.views import ViewSettings

DEFAULT_METHOD = "sss"  # the one that is run where none is named


class BenchmarkSettings(StreamSettings):
    """Which benchmark, and how it is cut into sessions."""

    name: str


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
        for name in ("benchmark", "model", "views", "training"):
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
    return sorted(f"{folder.name}/{file.name[:-5]}" for folder, file in _packaged())


def default_recipe(benchmark: str) -> str:
    """Return the name of the recipe for a benchmark when no method is named."""
    return f"{benchmark}/{DEFAULT_METHOD}"


def load_recipe(source: str, overrides: Iterable[str] = (), seed: int | None = None) -> Recipe:
    """Load a recipe by name (benchmark/method) or path, change some keys (`training.epochs=10`), check it.

    A method of one's own, `benchmark/file.py:Class`, is trained as the baseline is; a recipe for it names it
    so too: `method.name: file.py:Class`, the file beside the recipe.
    """
    if PLUGIN_MARK in source:
        benchmark, _, method = source.partition("/")
        known = sorted({folder.name for folder, _ in _packaged()})
        if benchmark not in known:
            meant = did_you_mean(benchmark, known) or "; write doodles/file.py:Class, for example"
            raise UserError(f"recipe: {source!r} names no benchmark{meant}")
        content = _parse(_read(f"{benchmark}/{baseline()}"), source)
        content["method"] = {"name": method}
    else:
        content = _parse(_read(source), source)
        _look_beside(source, content)
    for override in overrides:
        _apply(content, override)
    _load_own_method(source, content)
    if seed is not None:
        content["seed"] = seed
    return check_recipe(content)


def read_recipe(path: Path) -> Recipe:
    """Read the recipe that a run has left.

    Unlike `load_recipe` it runs no code that the recipe names: whoever looks at a run, which may come from
    anywhere, has not asked for that.
    """
    content = _parse(_read(str(path)), str(path))
    _look_beside(str(path), content)
    name = _method_name(content)
    known = loaded_plugin(name) if PLUGIN_MARK in name else None
    if known is not None:
        content["method"]["name"] = known.name
    elif PLUGIN_MARK in name or (name not in methods() and plugin_class(path.parent / PLUGIN_COPY, name)):
        raise UserError(
            f"{path}: {name} is a method from a file of its own, and reading a run runs no code; only "
            "commands that name that file can use it: fairshot run BENCHMARK/file.py:Class, or compare"
        )
    return check_recipe(content)


def check_recipe(content: Mapping[str, Any]) -> Recipe:
    """Turn plain values into a recipe; each key that cannot be used is named."""
    try:
        sections = _Sections.model_validate(content)
    except ValidationError as problem:
        raise UserError(explain(problem, _Sections, further=_settings_of_method(content))) from None
    options = dict(sections.method)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"method.name: missing; a recipe names its method, for example {DEFAULT_METHOD}")
    expected = method_named(name).Settings
    try:
        method = expected.model_validate(options)
    except ValidationError as problem:
        raise UserError(explain(problem, expected, "method.")) from None
    return Recipe(
        sections.seed, sections.benchmark, sections.model, sections.views, sections.training, name, method
    )


def _settings_of_method(content: Mapping[str, Any]) -> dict[str, type[Settings]]:
    """Return the settings that the section of the method may hold, if it names one that we know."""
    named = methods().get(_method_name(content))
    return {} if named is None else {"method": named.Settings}


def _method_name(content: Mapping[str, Any]) -> str:
    section = content.get("method")
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) else ""


def _look_beside(source: str, content: dict[str, Any]) -> None:
    """Take the file of a method of one's own that a recipe names as lying beside it."""
    name = _method_name(content)
    if PLUGIN_MARK in name:
        content["method"]["name"] = str(Path(source).parent / name)


def _load_own_method(source: str, content: dict[str, Any]) -> None:
    """Load a method of one's own that is named by its file, and go on with its name.

    A run's recipe has the name alone, and its code is not run unasked: say how to ask for it.
    """
    name, kept = _method_name(content), Path(source).parent / PLUGIN_COPY
    if PLUGIN_MARK in name:
        content["method"]["name"] = load_plugin(name).name
    elif name not in methods() and (kind := plugin_class(kept, name)):
        named = shlex.quote(f"method.name={kept}:{kind}")
        raise UserError(
            f"method.name: {name!r} is a method of your own, of which the run kept the file; write name: "
            f"{PLUGIN_COPY}:{kind} into {source}, or add --set {named}"
        )


def _packaged() -> list[tuple[Traversable, Traversable]]:
    folders = [folder for folder in resources.files(__package__).iterdir() if folder.is_dir()]
    return [(folder, file) for folder in folders for file in folder.iterdir() if file.name.endswith(".yaml")]


def _read(source: str) -> str:
    for folder, file in _packaged():
        if source == f"{folder.name}/{file.name[:-5]}":
            return file.read_text(encoding="utf-8")
    for code in (source.partition("/")[2], source):
        if code.endswith(".py") and Path(code).is_file():
            raise UserError(f"recipe: {code} is a Python file; name its class: {plugins_in(code)}")
    path = Path(source)
    if not path.is_file():
        raise UserError(
            f"recipe: {source!r} is neither a file nor one of the recipes that `fairshot list` names"
            f"{_recipe_meant(source)}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"recipe: {source} cannot be read as text: {problem}") from None


def _recipe_meant(source: str) -> str:
    """Ask for the recipe that is spelt alike, or for the recipes of a method that was named alone."""
    of_method = [name for name in recipe_names() if name.partition("/")[2] == source]
    return f"; did you mean {' or '.join(of_method)}?" if of_method else did_you_mean(source, recipe_names())


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise UserError(f"recipe: {source} is not YAML: {problem}") from None
    if not isinstance(content, dict):
        raise UserError(f"recipe: {source} must hold keys and values, not {type(content).__name__}")
    return content


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one key: `training.epochs=10`. The value is read as YAML."""
    key, equals, value = override.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not last:
        raise UserError(f"--set {override!r}: expected key=value, for example training.epochs=10")
    place = content
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise UserError(f"--set {key}: {parent} is a value, not a section")
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError as problem:
        raise UserError(f"--set {key}: {value!r} cannot be read: {problem}") from None
