"""`fairshot ablate`, `fairshot tradeoff` and `fairshot run --base`: many decisions on one base session."""

import hashlib
import json

import pytest

from commands import fairshot
from fairshot.evaluation.result import Result

TINY = [
    *("--set", "benchmark.base_classes=6", "--set", "benchmark.way=2", "--set", "benchmark.sessions=2"),
    *("--set", "training.epochs=1", "--set", "training.batch=60", "--set", "model.size=12"),
    *("--set", "method.sr_width=32", "--device", "cpu"),
]


def weights(run):
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablations")
    done = fairshot(folder, "ablate", "components", "doodles/sss", "--out", "components", *TINY)
    assert done.process.exitcode == 0, done.stderr
    return folder


def test_parts_are_added_one_by_one(folder):
    parts = ("intra", "inter", "sr", "resistance", "calibration")
    for count, name in enumerate(("baseline", *parts)):
        recipe = Result.read(folder / "components" / name).recipe["method"]
        assert [recipe[part] for part in parts] == [index < count for index in range(5)]
    hashes = {name: weights(folder / "components" / name) for name in ("baseline", *parts)}
    assert hashes["sr"] == hashes["resistance"] == hashes["calibration"]  # one training
    assert len(set(hashes.values())) == 4


def test_each_way_to_use_the_features_decides_on_the_same_base_session(folder):
    command = ["ablate", "features", "doodles/sss", "--out", "features", *TINY]
    done = fairshot(folder, *command)
    assert done.process.exitcode == 0, done.stderr
    runs = sorted(path for path in (folder / "features").iterdir() if (path / "result.json").is_file())
    assert len({weights(run) for run in runs}) == 1
    confusions = {run.name: Result.read(run).confusions for run in runs}
    assert len(confusions) == 6
    assert len({json.dumps(matrices) for matrices in confusions.values()}) >= 4  # and they do differ


def test_another_training_is_not_taken_over(folder):
    base = ["--base", "components/sr", "--out", "other"]
    refused = fairshot(folder, "run", "doodles/sss", *base, "--seed", "3", *TINY)
    assert refused.process.exitcode == 2
    assert "another recipe" in refused.stderr
    assert not (folder / "other" / "result.json").exists()


def test_the_tradeoff_of_a_run_marks_what_was_chosen_without_its_test_images(folder):
    command = ["tradeoff", "components/resistance", "--novel", "2", "--held-out", "20", "--device", "cpu"]
    done = fairshot(folder, *command)
    assert done.process.exitcode == 0, done.stderr
    curves = json.loads((folder / "components" / "resistance" / "tradeoff.json").read_text())["rules"]
    assert len(curves) >= 4
    for curve in curves:
        assert [point["tuned"] for point in curve["points"]].count(True) == 1
    resistance = next(curve for curve in curves if curve["name"] == "Resistance")
    result = Result.read(folder / "components" / "resistance")
    at_run = next(p for p in resistance["points"] if p["setting"] == result.recipe["method"]["gamma"])
    assert at_run["overall_avg"] == pytest.approx(result.metrics.overall_avg)
