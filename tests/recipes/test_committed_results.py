"""Committed results name their settings as the present recipes do, and are read."""

import json
from pathlib import Path

import pytest
import yaml

from fairshot.documents import read_json
from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.recipes import DEFAULT_METHOD, check_recipe

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "results").rglob("recipe.yaml"))


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
    for path in (ROOT / "results").rglob("tradeoff*.json"):
        for rule in json.loads(path.read_bytes())["rules"]:
            for point in rule["points"]:
                settings.model_validate(point["method"])


def test_every_committed_result_and_study_is_read():
    results = [Result.read(path.parent) for path in (ROOT / "results").rglob("result.json")]
    assert len(results) > 50
    for path in (ROOT / "results").rglob("*.json"):
        assert read_json(path)
