"""Committed results name their settings as the present recipes do; old names are migrated by a script."""

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from fairshot.documents import load_json, read_json
from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.recipes import DEFAULT_METHOD, check_recipe

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "results").rglob("recipe.yaml"))
OLD = {
    "seed": 0,
    "benchmark": {"name": "doodles", "way": 5},
    "training": {"nesterov": True, "low_size": 24, "low_share": 0.5},
    "method": {"name": "sss", "margin": 0.0, "way": "pre", "own_share": 0.0},
}
PRESENT = {
    "seed": 0,
    "benchmark": {"name": "doodles", "way": 5},
    "training": {"low_resolution": 24, "low_resolution_share": 0.5},
    "method": {"name": "sss", "decision": "pre", "class_covariance_share": 0.0},
}
OLD_COMMAND = "fairshot run doodles/sss --set=method.way=pre --set training.low_size=9 --set benchmark.way=5"
COMMAND = OLD_COMMAND.replace("method.way", "method.decision").replace("low_size", "low_resolution")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("migrate_results", ROOT / "scripts" / "migrate_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", RECIPES, ids=lambda path: path.parent.relative_to(ROOT / "results").as_posix()
)
def test_a_committed_recipe_is_a_present_one_and_that_of_its_result(path):
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    check_recipe(recipe)
    result = path.with_name("result.json")
    if result.is_file():
        assert json.loads(result.read_bytes())["recipe"] == recipe


def test_every_committed_result_has_its_recipe_and_every_trade_off_present_settings():
    assert {path.parent for path in (ROOT / "results").rglob("result.json")} <= {p.parent for p in RECIPES}
    settings = methods()[DEFAULT_METHOD].Settings
    for path in (ROOT / "results").rglob("tradeoff.json"):
        for rule in json.loads(path.read_bytes())["rules"]:
            for point in rule["points"]:
                settings.model_validate(point["method"])


def test_every_committed_result_and_study_is_read():
    results = [Result.read(path.parent) for path in (ROOT / "results").rglob("result.json")]
    assert len(results) > 50
    for path in (ROOT / "results").rglob("*.json"):
        assert read_json(path)


def test_old_names_become_present_ones_once(script, tmp_path):
    trials = [{"changes": {"training.low_size": 24, "method.gamma": 0}, "last": 64.0}]
    points = [{"method": {"gate": "plain", "own_share": 0.1}, "setting": 0.1}]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(OLD, sort_keys=False))
    (tmp_path / "result.json").write_text(
        json.dumps({"command": OLD_COMMAND, "recipe": OLD, "way": 1}) + "\n"
    )
    (tmp_path / "trials.json").write_text(json.dumps(trials))
    (tmp_path / "tradeoff.json").write_text(
        json.dumps({"rules": [{"points": points}]}, separators=(",", ":"))
    )
    (tmp_path / "log.txt").write_text(f"12:00 {OLD_COMMAND}\nthe plain way\n")
    for path, after in list(script.changes(tmp_path)):
        path.write_text(after)
    assert (tmp_path / "recipe.yaml").read_text() == yaml.safe_dump(PRESENT, sort_keys=False)
    written = {"command": COMMAND, "recipe": PRESENT, "way": 1}
    assert (tmp_path / "result.json").read_text() == json.dumps(written) + "\n"
    assert load_json(tmp_path / "trials.json")["trials"][0]["changes"] == {
        "training.low_resolution": 24,
        "method.gamma": 0,
    }
    point = json.loads((tmp_path / "tradeoff.json").read_text())["rules"][0]["points"][0]
    assert point == {"method": {"gate": "plain", "class_covariance_share": 0.1}, "setting": 0.1}
    assert (tmp_path / "log.txt").read_text() == f"12:00 {COMMAND}\nthe plain way\n"
    assert not list(script.changes(tmp_path))


def test_a_removed_setting_that_was_used_and_the_ways_of_other_methods_are_kept(script):
    other = {"seed": 0, "method": {"name": "cec", "way": 15, "margin": 0.2}}
    assert script.migrate_recipe(other) == other
    with pytest.raises(SystemExit, match="margin"):
        script.migrate_recipe({"method": {"name": "sss", "margin": 0.1}})
