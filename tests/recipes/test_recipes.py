"""Recipes: files that inherit, keys that are checked, and settings that are explained."""

import hashlib
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from fairshot.benchmarks.stream import StreamSettings
from fairshot.classifiers.novel_bias import Bias
from fairshot.cli import app
from fairshot.cli.advice import advice
from fairshot.errors import (
    BadOverride,
    BadSetting,
    BadSettings,
    CodeNotTrusted,
    MethodNotLoaded,
    UnknownRecipe,
    UserError,
)
from fairshot.methods import methods
from fairshot.models.embedder import ModelSettings
from fairshot.models.errors import UnusableWeights
from fairshot.models.presets import PRESETS
from fairshot.recipes import annotated_yaml, check_recipe, load_recipe, recipe_names
from fairshot.settings import flat
from fairshot.studies.plan import plan
from fairshot.training.loop import TrainingSettings
from fairshot.training.views import ViewSettings

PACKAGED = Path(str(resources.files("fairshot.recipes")))
COMMON = sorted(PACKAGED.glob("*/common.yaml"))
SHARING = ("sss", "sss_gate", "sss_bgmm")
TINY = """
benchmark: {name: doodles, base_classes: 6, way: 3, sessions: 2}
model: {backbone: tiny, size: 14, mean: [0.2], std: [0.35]}
method: {name: sss, sr_width: 64}
"""


@pytest.fixture
def tiny(tmp_path) -> str:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return str(tmp_path / "tiny.yaml")


def keys(path: Path) -> dict:
    """Return the keys of a file, without the one that names another file."""
    return {key: value for key, value in flat(written(path)) if key != "extends"}


def written(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def below(path: Path) -> dict:
    """Return what a file of the package extends: a recipe, with all that this one says, or what is shared."""
    extended = written(path).get("extends")
    if extended is None:
        return keys(path.with_name("common.yaml"))
    return said(PACKAGED / f"{extended}.yaml")


def said(path: Path) -> dict:
    """Return what a file and those that it extends say."""
    own = keys(path)
    return below(path) | of_preset(own) | own


def of_preset(own: dict) -> dict:
    """Return what the weights of a preset bring into the section `model`, in place of what is shared."""
    if "model.weights" not in own:
        return {}
    settings = ModelSettings(**PRESETS[own["model.weights"]].section()).pinned()
    return {f"model.{key}": value for key, value in settings.model_dump(mode="json").items()}


def test_each_benchmark_with_recipes_has_a_common_file():
    assert {path.parent.name for path in COMMON} == {name.partition("/")[0] for name in recipe_names()}
    assert not [name for name in recipe_names() if name.endswith("/common")]


@pytest.mark.parametrize("benchmark", ["doodles", "cifar100", "mini_imagenet", "cub200", "folder"])
def test_every_method_has_a_recipe_that_differs_from_others_only_where_it_must(benchmark):
    baseline = load_recipe(f"{benchmark}/ncm")
    for name in methods():
        recipe = load_recipe(f"{benchmark}/{name}")
        assert (recipe.method_name, recipe.benchmark.name) == (name, benchmark)
        assert (recipe.seed, recipe.benchmark, recipe.views) == (0, baseline.benchmark, baseline.views)


@pytest.mark.parametrize("common", COMMON, ids=lambda path: path.parent.name)
def test_a_methods_file_holds_only_what_is_its_own(common):
    shared = keys(common)
    assert shared["benchmark.name"] == common.parent.name
    assert not [key for key in shared if key.startswith("method.")]
    for path in sorted(common.parent.glob("*.yaml")):
        if path != common:
            own, extends = keys(path), "extends" in written(path)
            method = said(path)["method.name"]
            assert re.fullmatch(rf"{method}(_gate|_authors)?(-[\w-]+)?", path.stem)
            named = {"benchmark": {"name": common.parent.name}, "method": {"name": method}}
            defaults = dict(flat(check_recipe(named).as_dict()))
            found = defaults | below(path) | of_preset(own)
            repeated = [key for key, value in own.items() if found[key] == value]
            weights = ["model.weights"] * ("model.weights" in own)
            assert repeated == [*weights, *["method.name"] * (not extends)], path


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_its_own_keys_over_those_that_it_extends(name):
    resolved = dict(flat(load_recipe(name).as_dict()))
    expected = said(PACKAGED / f"{name}.yaml")
    assert {key: resolved[key] for key in expected} == expected


def test_a_recipe_given_by_its_path_stands_alone_unless_it_extends_a_benchmark(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((PACKAGED / "doodles" / "sss.yaml").read_text())
    with pytest.raises(BadSettings) as missing:
        load_recipe(str(path))
    assert "benchmark" in missing.value.reasons
    path.write_text(f"extends: doodles\n{path.read_text()}")
    assert load_recipe(str(path)) == load_recipe("doodles/sss")
    path.write_text("extends: doodles\nviews: {rotation: 3}\nmethod: {name: ncm}\n")
    extended, alike = load_recipe(str(path)), load_recipe("doodles/alice")
    assert extended.views == alike.views.model_copy(update={"rotation": 3})
    assert (extended.model, extended.training) == (alike.model, alike.training)
    for asked in ("doodle", "[doodles]"):
        path.write_text(f"extends: {asked}\nmethod: {{name: ncm}}\n")
        with pytest.raises(BadSetting, match="expected one of cifar100, ") as refused:
            load_recipe(str(path))
        assert refused.value.key == "extends"
    path.write_text("extends: doodles/sss\nmethod: {gamma: 0.3}\n")
    alike = load_recipe("doodles/sss", ["method.gamma=0.3"])
    assert load_recipe(str(path)) == alike
    path.write_text("extends: doodles/sss\nmethod: {name: ncm}\n")
    assert load_recipe(str(path)).method == load_recipe("doodles/ncm").method
    path.write_text("extends: doodles/sss\nmethod: {name: sss, gamma: 0.3}\n")
    assert load_recipe(str(path)) == alike


@pytest.mark.parametrize("weights", ["lite0", "lite2"])
def test_recipes_of_other_weights_differ_by_their_network_alone(weights):
    for name in ("alice", "ncm", "sss", "sss_bgmm", "sss_gate", "teen"):
        recipe, own = load_recipe(f"cub200/{name}-{weights}"), load_recipe(f"cub200/{name}")
        assert replace(recipe, model=own.model) == own
        assert recipe.model == ModelSettings(**PRESETS[f"efficientnet-{weights}"].section()).pinned()
    trained = [load_recipe(f"cub200/{name}-{weights}").training_part() for name in SHARING]
    assert trained == [trained[0]] * len(trained)


@pytest.mark.parametrize("benchmark", ["cifar100", "mini_imagenet", "cub200"])
def test_sss_its_gate_and_mixtures_share_one_training(benchmark):
    trained = [load_recipe(f"{benchmark}/{name}").training_part() for name in SHARING]
    assert trained == [trained[0]] * len(trained)


def test_weights_of_a_preset_bring_its_network_and_input_and_other_keys_stay(tmp_path):
    preset = PRESETS["efficientnet-lite0"]
    whole = ModelSettings(**preset.section(), weights_sha256=preset.sha256)
    changed = load_recipe("folder/ncm", ["model.size=160", "model.weights=efficientnet-lite0"])
    assert changed.model == whole.model_copy(update={"size": 160})
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: cub200\nmodel: {weights: efficientnet-lite0, resize: null}\nmethod: {name: ncm}\n"
    )
    assert load_recipe(str(path)).model == whole.model_copy(update={"resize": None})
    with pytest.raises(UserError, match=r"model\.weights: these weights are of tf_efficientnet_lite0"):
        load_recipe("folder/ncm", ["model.weights=efficientnet-lite0", "model.backbone=resnet18"])


def test_a_file_of_weights_takes_the_place_of_pretrained_ones(tmp_path):
    (tmp_path / "weights.pth").write_bytes(b"weights")
    recipe = load_recipe("cub200/ncm", [f"model.weights={tmp_path / 'weights.pth'}"])
    assert (recipe.model.backbone, recipe.model.pretrained) == ("resnet18", False)
    assert recipe.model.weights_sha256 == hashlib.sha256(b"weights").hexdigest()
    assert load_recipe("cub200/ncm", ["model.weights=null"]).model.pretrained  # nothing takes their place
    with pytest.raises(UnusableWeights):
        load_recipe("cub200/ncm", ["model.weights=nowhere.pth"])
    with pytest.raises(UserError, match=r"model\.weights: model\.pretrained loads others"):
        load_recipe("cub200/ncm", ["model.weights=nowhere.pth", "model.pretrained=true"])


def test_runs_of_a_recipe_with_another_backbone_have_folders_of_their_own(tmp_path):
    planned = plan(["ncm", "ncm-lite0", "ncm-lite0-frozen"], ["cub200"], [0], [None], [], tmp_path)
    assert [each.out.name for each in planned] == ["ncm-seed0", "ncm-lite0-seed0", "ncm-lite0-frozen-seed0"]


def test_every_setting_is_explained():
    sections = [StreamSettings, ModelSettings, ViewSettings, TrainingSettings]
    for settings in [*sections, *(method.Settings for method in methods().values())]:
        missing = [key for key, field in settings.model_fields.items() if not field.description]
        assert not missing, settings
        assert all(field.description.endswith(".") for field in settings.model_fields.values()), settings


def test_every_setting_is_set_by_a_recipe_or_named_on_a_page():
    recipes = [yaml.safe_load(path.read_text()) for path in PACKAGED.rglob("*.yaml")]
    used = {key for recipe in recipes for key, _ in flat(recipe)}
    pages = "".join(path.read_text() for path in (Path(__file__).parents[2] / "docs").glob("*.md"))
    named = set(re.findall(r"`(?:\w+\.)?(\w+)(?:: [^`]*)?`", pages))
    sections = {"benchmark": StreamSettings, "model": ModelSettings, "views": ViewSettings}
    kinds = [*sections.items(), ("training", TrainingSettings)]
    kinds += [("method", method.Settings) for method in methods().values()]
    for section, settings in kinds:
        unknown = [key for key in settings.model_fields if f"{section}.{key}" not in used]
        assert set(unknown) <= named, settings


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_is_shown_reads_back(name, tmp_path):
    recipe = load_recipe(name, ["training.weight_decay=1.0e-5"], seed=3)
    text = annotated_yaml(recipe)
    (tmp_path / "shown.yaml").write_text(text)
    assert load_recipe(str(tmp_path / "shown.yaml")) == recipe
    explained = {line.split(":")[0]: line.partition("  # ")[2] for line in text.splitlines()}
    assert all(explained.values())
    assert explained["  low_resolution"] == TrainingSettings.model_fields["low_resolution"].description


def test_a_recipe_that_is_shown_lists_the_other_values_of_a_setting_with_a_fixed_set():
    recipe = load_recipe("doodles/sss", ["method.gate=constant", "method.gate_strength=0.1"])
    lines = {line.split(":")[0].strip(): line for line in annotated_yaml(recipe).splitlines()}
    gates = [each for each in get_args(Bias) if each != "constant"]
    assert lines["gate"].endswith(f" Or: {', '.join(gates)}.")
    assert lines["autoaugment"].endswith(" Or: cifar10.")  # beside null, which it is
    listing = {key for key, line in lines.items() if " Or: " in line}
    assert listing == {
        *("stem", "initialisation", "crop_rule", "autoaugment", "decision", "gate", "recognised_by"),
        *("lam_distribution", "calibration_timing"),
    }


def test_show_prints_the_changed_recipe():
    shown = CliRunner().invoke(app, ["recipe", "show", "doodles/teen", "--set", "training.epochs=7"])
    assert shown.stdout == annotated_yaml(load_recipe("doodles/teen", ["training.epochs=7"]))
    refused = CliRunner().invoke(app, ["recipe", "show", "doodles/ten"])
    assert isinstance(refused.exception, UnknownRecipe)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epoch=3", "training.epoch: unknown key; did you mean epochs?"),
        ("trainig.epochs=3", "trainig: unknown key; did you mean training?"),
        ("epochs=3", "epochs: unknown key; did you mean training.epochs?"),
        ("gamma=0.2", "gamma: unknown key; did you mean method.gamma?"),
        ("shot_seed=1", "shot_seed: unknown key; did you mean benchmark.shot_seed?"),
        ("method.gama=0.2", "method.gama: unknown key; did you mean gamma?"),
        ("model.colour=red", "model.colour: unknown key"),
        ("training.epochs=many", "training.epochs: "),
        ("training.epochs=yes", "training.epochs: "),
        ("training.learning_rate=.nan", "training.learning_rate: "),
        ("benchmark.shots=0", "benchmark.shots: "),
        ("method.lam=[0.4, 1.2]", "method.lam.1: "),
        ("method.lam=[0.6, 0.4]", "method.lam: expected two numbers in rising order"),
        ("method.name=sssss", "method.name: 'sssss' was given; known are "),
        ("method.sr_width=0", "method.sr_width: "),
        ("model.std=[0]", "model.std.0: "),
        ("model.resize=10", "model.resize: expected at least model.size"),
        ("training.low_resolution=64", "training: low_resolution is 64; expected less than model.size"),
        ("views.crop_area=[0.9, 0.1]", "views.crop_area: expected two numbers in rising order"),
        ("seed=-1", "seed: "),
    ],
)
def test_what_cannot_be_used_is_named(tiny, override, message):
    with pytest.raises(UserError) as refused:
        load_recipe(tiny, [override])
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_misspelt_method_is_answered_with_the_one_meant(tiny):
    with pytest.raises(UserError, match=r"did you mean c_fscil\?$"):
        load_recipe(tiny, ["method.name=c_fsil"])


@pytest.mark.parametrize("override", ["training", "=3", "model.size.first=1", "training.epochs=["])
def test_a_change_that_cannot_be_applied_is_told_with_its_option(tiny, override):
    with pytest.raises(BadOverride) as refused:
        load_recipe(tiny, [override])
    assert refused.value.override == override
    assert "--set" not in str(refused.value)
    assert "--set training.epochs=10" in advice(refused.value)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("nowhere.yaml", "come with fairshot; fairshot list names them"),
        ("doodles/ssss", "did you mean doodles/sss?"),
        ("sss_bgmm", "did you mean cifar100/sss_bgmm or cub200/sss_bgmm or doodles/sss_bgmm or "),
        ("doodles/common", "come with fairshot"),
    ],
)
def test_an_unknown_recipe_is_answered_with_what_was_meant(source, answer):
    with pytest.raises(UnknownRecipe) as refused:
        load_recipe(source)
    assert refused.value.source == source
    assert answer in str(refused.value) + advice(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"training: {epochs: [", "is refused: it is not YAML"),
        (b"- 1\n- 2\n", "is refused: it must hold keys and values"),
        (b"\xff\xfe\x00", "is damaged: it holds zeros"),
        (b"seed: \xff", "is refused: it is damaged or no text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"broken\.yaml {message}"):
        load_recipe(str(path))


def test_a_method_that_is_not_loaded_is_told_with_what_can_load_it():
    run = Path("my run")
    assert "fairshot run BENCHMARK/file.py:Class" in advice(MethodNotLoaded(run / "recipe.yaml", "mild"))
    assert advice(CodeNotTrusted(str(run / "recipe.yaml"), run / "method.py")) == ": --trust"
