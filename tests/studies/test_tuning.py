"""Tuning sees base training images alone: base classes play novel ones, training images play test images."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import LabelledPictures, Session, Stream, StreamSettings
from fairshot.cli import app
from fairshot.errors import BadSetting, HeldOutUnfit, PseudoNovelUnfit
from fairshot.evaluation import experiment
from fairshot.evaluation.result import Result
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods import method_named, packaged_names
from fairshot.recipes import load_recipe
from fairshot.studies import StudyOptions, tune, tuning
from fairshot.studies.pseudo_novel import pseudo_sizes, pseudo_stream, with_as_many_steps
from fairshot.studies.tuning import Trial, Tuning
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
    ("novel", "held_out", "problem", "fields"),
    [
        (3, 20, PseudoNovelUnfit, {"novel": 3, "way": 2, "base_classes": 9}),
        (10, 20, PseudoNovelUnfit, {"novel": 10, "way": 2, "base_classes": 9}),
        (4, 73, HeldOutUnfit, {"images": 75, "held_out": 73, "needed": 3}),
        (4, 75, HeldOutUnfit, {"images": 75, "held_out": 75, "needed": 1}),
    ],
)
def test_what_base_classes_do_not_allow_is_refused(stream, novel, held_out, problem, fields):
    with pytest.raises(problem) as refused:
        pseudo_stream(stream, novel, held_out)
    assert vars(refused.value).items() >= fields.items()


def test_a_benchmark_without_sessions_cannot_be_tuned_for():
    alone = load_stream("doodles", StreamSettings(base_classes=5, sessions=0))
    with pytest.raises(BadSetting, match=r"benchmark\.sessions: 0"):
        pseudo_stream(alone, 2, 20)


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
    trials = json.loads((tmp_path / "chosen" / "trials.json").read_text())["trials"]
    assert [trial["changes"]["method.gamma"] for trial in trials] == [0.0, 0.9]
    best = max(trials, key=lambda trial: trial["inc_avg"])["changes"]["method.gamma"]
    assert f"gamma: {best}" in (tmp_path / "chosen" / "recipe.yaml").read_text()
    log = (tmp_path / "chosen" / "log.txt").read_text()
    assert "fairshot tune doodles/sss" in log
    assert "4 base and 2 pseudo-novel classes, 15 held-out training images" in log
    assert command.stdout.splitlines()[-1] == "  fairshot run chosen/recipe.yaml"


SETTINGS = ["model.size=10", "training.epochs=1", *(f"benchmark.{item}" for item in SMALL)]


def test_a_search_is_a_function_whose_trials_are_runs_on_pseudo_novel_classes(tmp_path):
    grid = {"training.epochs": [1, 2], "method.scale": [16.0]}
    found = tune("doodles/ncm", grid, tmp_path, SETTINGS, held_out=60, novel=4, options=StudyOptions("cpu"))
    kept = json.loads((tmp_path / "trials.json").read_text())["trials"]
    assert found.trials == [Trial(**trial) for trial in kept]
    assert found.best == max(found.trials, key=lambda trial: trial.both)
    assert found.recipe.training.epochs == found.best.changes["training.epochs"]
    for number, trial in enumerate(found.trials, start=1):
        result = Result.read(tmp_path / "trials" / str(number))
        assert result.epochs == 15 * trial.changes["training.epochs"]  # each of a step, not 15
        assert (result.benchmark, len(result.sessions)) == ("doodles (pseudo-novel)", 3)
        none, *novel_only = result.novel_only
        assert none is None
        assert trial.novel_only == pytest.approx(np.mean(novel_only))
        assert trial.overall_avg == result.metrics.overall_avg
        assert trial.both == result.metrics.both
        assert trial.seconds == result.seconds["base session"]


def test_trials_that_differ_in_the_decision_share_one_training(tmp_path):
    small = [*SETTINGS, "method.sr_width=16"]
    grid = {"method.gamma": [0.0, 0.9], "training.epochs": [1, 2]}
    found = tune("doodles/sss", grid, tmp_path, small, held_out=60, novel=2, options=StudyOptions("cpu"))
    trained = [(tmp_path / "trials" / str(number) / "checkpoints").is_dir() for number in (1, 2, 3, 4)]
    assert trained == [True, True, False, False]
    kept = [(tmp_path / "trials" / str(number) / "model.safetensors").is_file() for number in (1, 2, 3, 4)]
    assert kept == trained  # the others would be large copies
    first, _, third, _ = found.trials
    assert first.seconds == third.seconds
    assert first.novel_only == third.novel_only  # Resistance moves base classes alone


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


def test_a_trial_takes_as_many_steps_as_a_run():
    images = LabelledPictures(None, np.repeat(np.arange(60), 500))
    stream = Stream("drawn", (), (Session(tuple(range(60)), images, images),))
    recipe = load_recipe("cifar100/teen")
    longer = with_as_many_steps(recipe, stream, 20, 50).training
    steps = 30_000 // 128, 18_000 // 128
    assert (longer.epochs, longer.authors_epochs) == (134, 501)
    for before, after in ((80, longer.epochs), (300, longer.authors_epochs), (2, longer.warmup_epochs)):
        assert after * steps[1] == pytest.approx(before * steps[0], abs=steps[1] / 2)
    assert longer.model_copy(update={k: getattr(recipe.training, k) for k in CHANGED}) == recipe.training


CHANGED = ("epochs", "authors_epochs", "warmup_epochs")


def test_every_method_has_as_many_values_to_try():
    for name in packaged_names():
        grid = method_named(name).card.grid
        points = list(itertools.product(*grid.values()))
        assert len(set(points)) == 6, name
        for benchmark, point in itertools.product(("cifar100", "doodles"), points):
            load_recipe(f"{benchmark}/{name}", [f"{k}={v}" for k, v in zip(grid, point, strict=True)])


def test_one_command_tunes_every_method_by_its_own_values(tmp_path, monkeypatch):
    asked = []

    def record(source, grid, out, *, options, by, **_):
        asked.append((source, grid, out, options.reporter.log, by))
        return Tuning([], None, load_recipe(source))

    monkeypatch.setattr(tuning, "tune", record)
    command = ["tune", "doodles/all", "--by", "last", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    folders = {name: tmp_path / name for name in packaged_names()}
    assert asked == [(f"doodles/{n}", {}, out, out / "log.txt", "last") for n, out in folders.items()]
    suggested = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("  fairshot run")]
    assert suggested == [str(out / "recipe.yaml") for out in folders.values()]


def test_an_empty_grid_is_that_of_the_method(monkeypatch, tmp_path):
    def stop(recipe, grid, *_):
        raise InterruptedError(recipe, grid)

    kind = method_named("teen")
    monkeypatch.setattr(tuning, "_points", stop)
    with pytest.raises(InterruptedError) as stopped:
        tune("doodles/teen", {}, tmp_path)
    assert stopped.value.args == ("doodles/teen", kind.card.grid)
    monkeypatch.setattr(kind, "card", replace(kind.card, grid={}))
    with pytest.raises(BadSetting) as refused:
        tune("doodles/teen", {}, tmp_path)
    assert (refused.value.key, refused.value.given) == ("grid", {})


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("search.json", "trials.json", "recipe.yaml")]


def test_another_search_is_refused_where_one_lies_and_the_same_goes_on(tmp_path):
    grid = ["--grid", "method.gamma=[0.1,0.4]", "--out", "chosen"]
    assert tune_here(tmp_path, *grid).process.exitcode == 0
    again = tune_here(tmp_path, *grid)
    assert again.process.exitcode == 0
    assert again.stderr.count("is finished already") == 2  # and is not repeated
    before = contents(tmp_path / "chosen")
    for arguments, told in (
        (["--grid", "method.gamma=[0.2]"], "method.gamma is [0.1, 0.4] there and [0.2] here"),
        (["--grid", "method.gamma=[0.1,0.4]", "--held-out", "9"], "held_out is 15 there and 9 here"),
        (["--grid", "method.gamma=[0.1,0.4]", "--seed", "3"], "seed is 0 there and 3 here"),
    ):
        refused = tune_here(tmp_path, *arguments, "--out", "chosen")
        assert refused.process.exitcode == 2
        assert "chosen holds another search: " in refused.stderr
        assert told in refused.stderr
        assert "--fresh" in refused.stderr
        assert contents(tmp_path / "chosen") == before
    afresh = tune_here(tmp_path, "--grid", "method.gamma=[0.2]", "--out", "chosen", "--fresh")
    assert afresh.process.exitcode == 0, afresh.stderr
    (trial,) = json.loads((tmp_path / "chosen" / "trials.json").read_text())["trials"]
    assert trial["changes"] == {"method.gamma": 0.2}


def test_a_search_is_refused_in_the_folder_of_a_run(tmp_path):
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

    experiment.run_sessions = interrupted


def test_what_an_interrupted_search_has_tried_is_kept(tmp_path):
    grid = ["--grid", "method.gamma=[0.1,0.4]", "--out", "chosen"]
    stopped = fairshot(tmp_path, *arguments_of(*grid), before=stop_after_the_first_trial)
    assert stopped.process.exitcode == 130
    trials = tmp_path / "chosen" / "trials.json"
    assert [row["changes"]["method.gamma"] for row in json.loads(trials.read_text())["trials"]] == [0.1]
    assert not (tmp_path / "chosen" / "recipe.yaml").exists()
    assert tune_here(tmp_path, *grid).process.exitcode == 0
    both = trials.read_text()
    assert [row["changes"]["method.gamma"] for row in json.loads(both)["trials"]] == [0.1, 0.4]
    fairshot(tmp_path, *arguments_of(*grid), before=stop_after_the_first_trial)
    assert [row["changes"]["method.gamma"] for row in json.loads(trials.read_text())["trials"]] == [0.1, 0.4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "method.gamma"], "--grid 'method.gamma': expected key=[values]"),
        (["--grid", "method.gamma=[1"], "--grid 'method.gamma=[1': expected key=[values]"),
        (["--grid", "method.gama=[1]"], "method.gama: unknown key"),
        (["--grid", "method.gamma=[1]", "--by", "luck"], "by: 'luck' was given"),
        (["--grid", "method.gamma=[1]", "--set", "benchmark.sessions=0"], "benchmark.sessions: 0"),
        (["--grid", "method.gamma=[1]", "--held-out", "75"], "class "),
        (["--grid", "method.gamma=[1]", "--novel", "3"], "3 pseudo-novel classes"),
    ],
)
def test_what_cannot_be_tuned_is_one_message_and_leaves_nothing(tmp_path, arguments, message):
    command = tune_here(tmp_path, *arguments)
    assert command.process.exitcode == 2
    assert command.stderr.startswith(f"fairshot: {message}")
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".std")]
