"""Tuning sees base training images alone: base classes play novel ones, training images play test images."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import LabelledPictures, Session, Stream, StreamSettings
from fairshot.errors import UserError
from fairshot.evaluation.sessions import run_sessions
from fairshot.recipes import load_recipe
from fairshot.studies import tuning
from fairshot.studies.tuning import pseudo_sizes, pseudo_stream, train_on, tune
from fairshot.training.hardware import choose_hardware
from support.commands import fairshot

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
        (3, 20, "in sessions of 2 cannot be .* a multiple of 2: as many classes as a session brings"),
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


def arguments_of(*arguments: str) -> list[str]:
    settings = [f"benchmark.{item}" for item in SMALL]
    settings += ["model.size=10", "training.epochs=1", "method.sr_width=16"]
    changes = [part for item in settings for part in ("--set", item)]
    return ["tune", "doodles/sss", *changes, "--device", "cpu", *arguments]


def tune_here(folder: Path, *arguments: str):
    return fairshot(folder, *arguments_of(*arguments))


def test_the_command_tries_the_grid_and_writes_the_best_recipe(tmp_path):
    grid = ["--grid", "method.gamma=[0.0,0.9]", "--grid", "method.resistance=[true]"]
    command = tune_here(tmp_path, *grid, "--by", "inc_avg", "--out", "chosen")
    assert command.process.exitcode == 0, command.stderr
    trials = json.loads((tmp_path / "chosen" / "trials.json").read_text())
    assert [trial["changes"]["method.gamma"] for trial in trials] == [0.0, 0.9]
    best = max(trials, key=lambda trial: trial["inc_avg"])["changes"]["method.gamma"]
    assert f"gamma: {best}" in (tmp_path / "chosen" / "recipe.yaml").read_text()
    log = (tmp_path / "chosen" / "log.txt").read_text()
    assert "fairshot tune doodles/sss" in log
    assert "4 base and 2 pseudo-novel classes, 15 held-out training images" in log
    assert command.stdout.splitlines()[-1] == "  fairshot run chosen/recipe.yaml"
    assert log.count("going on from step") == 0
    assert len(list((tmp_path / "chosen" / "trainings").iterdir())) == 1  # gamma only changes the decision


def test_what_was_trained_on_is_never_held_out_by_a_later_search(tmp_path):
    settings = ["model.size=10", "training.epochs=1", *(f"benchmark.{item}" for item in SMALL)]
    recipe, fabric = load_recipe("doodles/ncm", settings), choose_hardware("cpu")
    stream = load_stream("doodles", recipe.benchmark)
    for novel, held_out, trainings in ((2, 10, 1), (2, 60, 2), (4, 10, 3), (2, 60, 3)):
        (trial,) = tune([({}, recipe)], pseudo_stream(stream, novel, held_out), fabric, tmp_path)
        assert len(list(tmp_path.iterdir())) == trainings
        assert len(trial.metrics.sessions) == 1 + novel // 2


def test_novel_only_accuracy_is_averaged_over_the_sessions(tmp_path, monkeypatch):
    settings = ["model.size=10", "training.epochs=1", *(f"benchmark.{item}" for item in SMALL)]
    recipe, outcomes = load_recipe("doodles/ncm", settings), []

    def remembered(*arguments):
        outcomes.append(run_sessions(*arguments))
        return outcomes[-1]

    monkeypatch.setattr(tuning, "run_sessions", remembered)
    small = pseudo_stream(load_stream("doodles", recipe.benchmark), 4, 60)
    (trial,) = tune([({}, recipe)], small, choose_hardware("cpu"), tmp_path)
    none, first, second = outcomes[0].novel_only
    assert none is None
    assert first != second
    assert trial.novel_only == pytest.approx((first + second) / 2)


@pytest.mark.parametrize(
    ("classes", "way", "images", "shots", "sizes"),
    [
        (60, 5, 500, 5, (20, 50)),  # CIFAR-100 and miniImageNet
        (100, 10, 29, 5, (20, 5)),
        (30, 5, 75, 5, (10, 15)),
        (4, 2, 6, 5, (2, 1)),
    ],
)
def test_what_is_not_given_fits_the_stream(classes, way, images, shots, sizes):
    def session(first: int, number: int, each: int) -> Session:
        ids = range(first, first + number)
        train = LabelledPictures(None, np.repeat(np.array(ids), each))
        return Session(tuple(ids), train, train)

    stream = Stream("drawn", (), (session(0, classes, images), session(classes, way, shots)))
    assert pseudo_sizes(stream, None, None) == sizes
    assert pseudo_sizes(stream, 3, 7) == (3, 7)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("search.json", "trials.json", "recipe.yaml")]


def test_another_search_is_refused_where_one_lies_and_the_same_goes_on(tmp_path):
    grid = ["--grid", "method.gamma=[0.1,0.4]", "--out", "chosen"]
    assert tune_here(tmp_path, *grid).process.exitcode == 0
    assert tune_here(tmp_path, *grid).process.exitcode == 0  # and trains nothing again
    before = contents(tmp_path / "chosen")
    assert (tmp_path / "chosen" / "log.txt").read_text().count("going on from step") == 1
    for arguments, told in (
        (["--grid", "method.gamma=[0.2]"], "method.gamma is [0.1, 0.4] there and [0.2] here"),
        (["--grid", "method.gamma=[0.1,0.4]", "--held-out", "9"], "--held-out is 15 there and 9 here"),
        (["--grid", "method.gamma=[0.1,0.4]", "--seed", "3"], "seed is 0 there and 3 here"),
    ):
        refused = tune_here(tmp_path, *arguments, "--out", "chosen")
        assert refused.process.exitcode == 2
        assert "chosen holds another search: " in refused.stderr
        assert told in refused.stderr
        assert contents(tmp_path / "chosen") == before
    afresh = tune_here(tmp_path, "--grid", "method.gamma=[0.2]", "--out", "chosen", "--fresh")
    assert afresh.process.exitcode == 0, afresh.stderr
    (trial,) = json.loads((tmp_path / "chosen" / "trials.json").read_text())
    assert trial["changes"] == {"method.gamma": 0.2}


def test_a_run_is_no_place_for_a_search(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("recipe.yaml", "log.txt"):
        (run / name).write_text("mine")
    for extra in ([], ["--fresh"]):
        refused = tune_here(tmp_path, "--grid", "method.gamma=[0.1]", "--out", "run", *extra)
        assert refused.process.exitcode == 2
        assert "run holds a recipe.yaml that is not of this search" in refused.stderr
    assert (run / "recipe.yaml").read_text() == "mine"


def stop_after_the_first_trial() -> None:
    """Make the command's process meet Ctrl-C in its second trial."""
    begun = []

    def interrupted(*arguments):
        begun.append(arguments)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return run_sessions(*arguments)

    tuning.run_sessions = interrupted


def test_what_an_interrupted_search_has_tried_is_kept(tmp_path):
    grid = ["--grid", "method.gamma=[0.1,0.4]", "--out", "chosen"]
    stopped = fairshot(tmp_path, *arguments_of(*grid), before=stop_after_the_first_trial)
    assert stopped.process.exitcode == 130
    trials = tmp_path / "chosen" / "trials.json"
    assert [row["changes"]["method.gamma"] for row in json.loads(trials.read_text())] == [0.1]
    assert not (tmp_path / "chosen" / "recipe.yaml").exists()
    assert tune_here(tmp_path, *grid).process.exitcode == 0
    both = trials.read_text()
    assert [row["changes"]["method.gamma"] for row in json.loads(both)] == [0.1, 0.4]
    fairshot(tmp_path, *arguments_of(*grid), before=stop_after_the_first_trial)
    assert [row["changes"]["method.gamma"] for row in json.loads(trials.read_text())] == [0.1, 0.4]


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
    command = tune_here(tmp_path, *arguments)
    assert command.process.exitcode == 2
    assert command.stderr.startswith(f"fairshot: {message}")
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".std")]
