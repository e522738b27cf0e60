"""Recipe: everything that decides a run's numbers, checked before anything happens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from fairshot.benchmarks.stream import StreamSettings
from fairshot.documents import read_yaml_text, write_yaml
from fairshot.errors import (
    BadSetting,
    BadSettings,
    CodeNotTrusted,
    DamagedFile,
    MethodNotLoaded,
    did_you_mean,
)
from fairshot.methods import baseline, method_named, methods, packaged_names
from fairshot.methods.method import MethodSettings
from fairshot.methods.plugins import PLUGIN_COPY, PLUGIN_MARK, load_plugin, loaded_plugin, plugin_class
from fairshot.models.embedder import ModelSettings
from fairshot.recipes.sources import (
    apply_override,
    benchmarks_with_recipes,
    drop_other_weights,
    read_source,
    recipe_names,
)
from fairshot.settings import Settings, explain
from fairshot.training.loop import TrainingSettings
from fairshot.training.views import ViewSettings

DEFAULT_METHOD = "sss"  # the one that is run where none is named
SECTIONS = ("benchmark", "model", "views", "training")  # beside the seed and the method
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

    @field_validator("training")
    @classmethod
    def _low_resolution_is_lower(cls, training: TrainingSettings, info: ValidationInfo) -> TrainingSettings:
        low, model = training.low_resolution, info.data.get("model")
        if low and model and low >= model.size:
            raise ValueError(f"low_resolution is {low}; expected less than model.size, {model.size}")
        return training


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
        """Return what decides the base session: equal for recipes that differ only in how they answer.

        A method of one's own may inherit from one of the package and train otherwise.
        """
        parts, kind = self.as_dict(), method_named(self.method_name)
        for name in kind.decision_settings:
            parts["method"].pop(name)
        if self.method_name in packaged_names():
            parts["method"]["name"] = kind.trained_as or self.method_name
        if self.training.images is not None and self.training.epochs:
            parts["training"].pop("epochs")  # they follow from the number of images
        return parts

    def as_yaml(self) -> str:
        """Return the recipe as a YAML document that `load_recipe` reads back."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False)


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
        if benchmark not in benchmarks_with_recipes():
            meant = (
                did_you_mean(benchmark, benchmarks_with_recipes())
                or "; write doodles/file.py:Class, for example"
            )
            raise BadSetting("recipe", source, f"it names no benchmark{meant}")
        content = read_source(f"{benchmark}/{baseline()}")
        content["method"] = {"name": method}
        trust = True
    else:
        content = read_source(source)
        _locate_method(source, content)
    drop_other_weights(content, overrides)
    for override in overrides:
        apply_override(content, override)
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
    content = read_source(str(path))
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
