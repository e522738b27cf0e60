"""Tuning sees base training images alone: base classes play novel ones, training images play test images."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import fairshot
from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import LabelledPictures, Stream, StreamSettings
from fairshot.errors import UserError
from fairshot.evaluation.tuning import pseudo_stream, train_on
from fairshot.recipes import load_recipe
from fairshot.training.hardware import choose_hardware

CUT = StreamSettings(base_classes=9, way=2, shots=3, sessions=2)
SMALL = ["base_classes=6", "way=2", "shots=3", "sessions=1"]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return load_stream("doodles", CUT)


def pixels(images: LabelledPictures) -> list[bytes]:
    return [picture.tobytes() for picture in images.pictures]


@given(seed=st.integers(0, 1000), sessions=st.integers(1, 4), held_out=st.integers(1, 72))
def test_a_pseudo_novel_stream_is_made_of_base_training_images_each_used_once(
    stream, seed, sessions, held_out
):
    pseudo = pseudo_stream(stream, novel=2 * sessions, held_out=held_out, seed=seed)
    assert [len(one.classes) for one in pseudo.sessions] == [9 - 2 * sessions] + [2] * sessions
    assert sorted(pseudo.class_names) == sorted(stream.class_names[:9])
    known = dict(zip(pixels(stream.base.train), stream.base.train.labels.tolist(), strict=True))
    used = []
    for t, one in enumerate(pseudo.sessions):
        for images, each in ((one.train, 75 - held_out if t == 0 else 3), (one.test, held_out)):
            assert np.bincount(images.labels)[list(one.classes)].tolist() == [each] * len(one.classes)
            for picture, label in zip(pixels(images), images.labels.tolist(), strict=True):
                assert stream.class_names[known[picture]] == pseudo.class_names[label]
                used.append(picture)
    assert len(set(used)) == len(used)


def test_the_same_seed_draws_the_same_stream_and_another_one_another(stream):
    first, again, other = (pseudo_stream(stream, 4, 20, seed) for seed in (1, 1, 2))
    assert first.class_names == again.class_names != other.class_names
    assert [pixels(one.train) for one in first.sessions] == [pixels(one.train) for one in again.sessions]


@pytest.mark.parametrize(
    ("novel", "held_out", "message"),
    [
        (3, 20, "3 pseudo-novel classes in sessions of 2"),
        (10, 20, "cannot be taken from 9 base classes"),
        (4, 73, "has 75 training images, too few to hold out 73 and learn from 3"),
        (4, 75, "too few to hold out 75 and learn from 1"),
    ],
)
def test_what_base_classes_do_not_allow_is_refused(stream, novel, held_out, message):
    with pytest.raises(UserError, match=message):
        pseudo_stream(stream, novel, held_out)


def test_a_benchmark_without_sessions_cannot_be_tuned_for():
    alone = load_stream("doodles", StreamSettings(base_classes=5, sessions=0))
    with pytest.raises(UserError, match=r"benchmark\.sessions: 0"):
        pseudo_stream(alone, 2, 20)


def test_the_seconds_of_a_training_are_those_of_all_processes_that_worked_on_it(tmp_path):
    settings = ["model.size=10", "training.epochs=1", *(f"benchmark.{item}" for item in SMALL)]
    recipe = load_recipe("doodles/ncm", settings)
    small = pseudo_stream(load_stream("doodles", recipe.benchmark), novel=2, held_out=60)
    _, first = train_on(recipe, small, choose_hardware("cpu"), tmp_path)
    assert first > 0
    for path in tmp_path.rglob("*.json"):  # as if it had been interrupted, and compiled before
        note = json.loads(path.read_text()) | {"seconds": 1000, "compile_seconds": 300}
        path.write_text(json.dumps(note))
    _, again = train_on(recipe, small, choose_hardware("cpu"), tmp_path)
    assert 700 < again < 700 + 100


def tune(folder: Path, *arguments: str):
    settings = [f"benchmark.{item}" for item in SMALL]
    settings += ["model.size=10", "training.epochs=1", "method.sr_width=16"]
    changes = [part for item in settings for part in ("--set", item)]
    return fairshot(folder, "tune", "doodles/sss", *changes, "--novel", "2", "--device", "cpu", *arguments)


def test_the_command_tries_the_grid_and_writes_the_best_recipe(tmp_path):
    grid = ["--grid", "method.gamma=[0.0,0.9]", "--grid", "method.resistance=[true]"]
    command = tune(tmp_path, *grid, "--by", "inc_avg", "--out", "chosen")
    assert command.process.exitcode == 0, command.stderr
    trials = json.loads((tmp_path / "chosen" / "trials.json").read_text())
    assert [trial["changes"]["method.gamma"] for trial in trials] == [0.0, 0.9]
    best = max(trials, key=lambda trial: trial["inc_avg"])["changes"]["method.gamma"]
    assert f"gamma: {best}" in (tmp_path / "chosen" / "recipe.yaml").read_text()
    log = (tmp_path / "chosen" / "log.txt").read_text()
    assert "fairshot tune doodles/sss" in log
    assert "4 base and 2 pseudo-novel classes" in log
    assert log.count("going on from step") == 0
    assert len(list((tmp_path / "chosen" / "trainings").iterdir())) == 1  # gamma only changes the decision


def test_what_was_trained_on_is_never_held_out_by_a_later_search(tmp_path):
    grid = ["--grid", "method.gamma=[0.1]", "--out", "chosen"]
    for extra in (["--held-out", "10"], ["--held-out", "60"], ["--held-out", "10", "--novel", "4"]):
        command = tune(tmp_path, *grid, *extra)
        assert command.process.exitcode == 0, command.stderr
    log, trainings = tmp_path / "chosen" / "log.txt", tmp_path / "chosen" / "trainings"
    assert "going on from step" not in log.read_text()
    assert len(list(trainings.iterdir())) == 3
    assert tune(tmp_path, *grid, "--held-out", "60").process.exitcode == 0
    assert log.read_text().count("going on from step") == 1
    assert len(list(trainings.iterdir())) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "method.gamma"], "--grid 'method.gamma': expected key=[values]"),
        (["--grid", "method.gamma=[1"], "--grid 'method.gamma=[1': expected key=[values]"),
        (["--grid", "method.gama=[1]"], "method.gama: unknown key"),
        (["--grid", "method.gamma=[1]", "--by", "luck"], "--by: 'luck' was given"),
        (["--grid", "method.gamma=[1]", "--set", "benchmark.sessions=0"], "benchmark.sessions: 0"),
        (["--grid", "method.gamma=[1]", "--held-out", "75"], "--held-out: class"),
    ],
)
def test_what_cannot_be_tuned_is_one_message_and_leaves_nothing(tmp_path, arguments, message):
    command = tune(tmp_path, *arguments)
    assert command.process.exitcode == 2
    assert command.stderr.startswith(f"fairshot: {message}")
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".std")]
