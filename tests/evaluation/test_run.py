"""`fairshot run`, the real command on a tiny setting: it learns, goes on when killed, refuses nonsense."""

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import yaml

from fairshot import recipes
from fairshot.benchmarks.stream import LabelledPictures, Session, Stream
from fairshot.cli import console
from fairshot.evaluation import experiment
from fairshot.evaluation.result import Result
from fairshot.tensor_files import read_tensors
from fairshot.training.batches import Batches
from fairshot.training.checkpoints import Checkpoints
from support.commands import fairshot, start

TINY = {
    "benchmark": {"name": "doodles", "base_classes": 6, "way": 3, "sessions": 2},
    "model": {"backbone": "tiny", "size": 14, "mean": [0.2], "std": [0.35]},
    "views": {"crop_area": [0.7, 1.3], "rotation": 10, "jitter": 0},
    "training": {"epochs": 4, "batch": 15, "learning_rate": 0.05, "momentum": 0.8, "warmup_epochs": 1},
    "method": {"name": "sss", "sr_width": 64},
}
FLOORS = {"session 0": 52, "overall": 45, "harmonic mean": 40}  # an untrained network reaches 41, 34 and 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return folder


@pytest.fixture(scope="module")
def finished(folder):
    """One run that nobody disturbs."""
    command = fairshot(folder, "run", "tiny.yaml", "--device", "cpu", "--out", "finished")
    assert command.process.exitcode == 0, command.stderr
    return command


def weights(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def misses(run: Path) -> dict[str, float]:
    """Return the floors a run does not reach."""
    metrics = Result.read(run).metrics
    reached = {
        "session 0": metrics.sessions[0].overall,
        "overall": metrics.overall_avg,
        "harmonic mean": metrics.harmonic_mean_avg,
    }
    return {name: value for name, value in reached.items() if value < FLOORS[name]}


def test_a_run_learns_and_leaves_its_files(folder, finished):
    run = folder / "finished"
    assert not misses(run)
    names = {path.name for path in run.iterdir()}
    assert {"result.json", "recipe.yaml", "log.txt", "figures", "training.csv", "model.safetensors"} <= names
    assert not [path for path in run.rglob("*") if path.name.endswith(".partial")]
    result = Result.read(run)
    assert result.recipe == yaml.safe_load((run / "recipe.yaml").read_text())
    assert result.seed == 0
    stored = {
        name: one.nbytes for name, one in read_tensors(run / "model.safetensors").items()
    }  # base classes
    after_base = sum(size for name, size in stored.items() if name.startswith("classifier."))
    grows = sum(stored[f"classifier.{name}"] for name in ("counts", "h.means", "h_tilde.means"))
    base, *novel = map(len, result.sessions)
    assert result.kept_bytes == after_base + grows * sum(novel) // base
    assert result.environment.packages["torch"]
    assert "Overall" in finished.stdout
    assert "training" in finished.stderr
    report, store = finished.stdout.partition("\nnext:\n")[2].splitlines()
    assert report.split("#")[0].split() == ["fairshot", "report", "finished"]
    assert store.split("#")[0].split() == ["fairshot", "new", "my-store", "--from", "finished"]
    rows = (run / "training.csv").read_text().splitlines()
    assert len(rows) == 1 + TINY["training"]["epochs"]


def shuffle_labels() -> None:
    """Make the command's process learn from wrong labels."""
    load = experiment.load_stream

    def shuffled(given: LabelledPictures) -> LabelledPictures:
        return LabelledPictures(given.pictures, np.random.default_rng(0).permutation(given.labels))

    def load_shuffled(*arguments) -> Stream:
        stream = load(*arguments)
        sessions = (Session(s.classes, shuffled(s.train), s.test) for s in stream.sessions)
        return Stream(stream.benchmark, stream.class_names, tuple(sessions))

    experiment.load_stream = load_shuffled


def test_wrong_labels_miss_every_floor(folder):
    """What the floors are worth: a method that learns nothing does not reach them."""
    command = fairshot(folder, "run", "tiny.yaml", "--out", "shuffled", before=shuffle_labels)
    assert command.process.exitcode == 0, command.stderr
    assert misses(folder / "shuffled").keys() == FLOORS.keys()


def die_soon(steps: int, seconds: float) -> None:
    """Make the command's process be killed some time after it began a step of its training."""
    draw = Batches.__getitem__
    begun = 0

    def counted(batches, step):
        nonlocal begun
        begun += 1
        if begun == steps:
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return draw(batches, step)

    Batches.__getitem__ = counted


def test_killed_at_random_moments_it_ends_with_the_same_weights(folder, finished):
    out, moments = folder / "killed", random.Random(0)
    arguments = ("run", "tiny.yaml", "--device", "cpu", "--out", "killed")
    for _ in range(2):  # at any moment, most likely before the first step
        command = start(folder, *arguments)
        command.process.join(moments.uniform(0, 0.5))
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
    for _ in range(6):  # while it trains or writes
        fate = partial(die_soon, moments.randint(1, 12), moments.uniform(0, 0.05))
        assert fairshot(folder, *arguments, before=fate).process.exitcode == -signal.SIGKILL
    last = fairshot(folder, *arguments)
    assert last.process.exitcode == 0, last.stderr
    assert "going on from step" in last.stderr
    assert weights(out) == weights(folder / "finished")
    assert Result.read(out).confusions == Result.read(folder / "finished").confusions
    assert losses(out) == losses(folder / "finished")
    assert not [path for path in out.rglob("*") if path.name.endswith(".partial")]


def losses(run: Path) -> list[str]:
    return [row.split(",")[2] for row in (run / "training.csv").read_text().splitlines()]


def take_your_time() -> None:
    """Slow the command's process down, so that it cannot finish before it is disturbed."""
    draw = Batches.__getitem__

    def slowly(batches, step):
        time.sleep(0.1)
        return draw(batches, step)

    Batches.__getitem__ = slowly


def test_interrupted_it_says_how_to_go_on_and_does(folder, finished):
    out, arguments = folder / "interrupted", ("run", "tiny.yaml", "--device", "cpu", "--out", "interrupted")
    command = start(folder, *arguments, before=take_your_time)
    command.wait_for(lambda: any(out.glob("checkpoints/base/*.safetensors")))
    second = fairshot(folder, *arguments)
    assert second.process.exitcode == 2
    assert "in use by another process" in second.stderr
    command.send(signal.SIGINT)
    assert command.wait() == 75
    assert "the same command goes on" in command.stderr
    assert "Traceback" not in command.stderr
    assert not (out / "result.json").exists()
    again = fairshot(folder, *arguments)
    assert again.process.exitcode == 0, again.stderr
    assert "going on from step" in again.stderr
    assert weights(out) == weights(folder / "finished")


def wait_before_loading() -> None:
    """Make the command's process stay where it loads its data, and say that it is there."""

    def wait(*_) -> Stream:
        Path("loading").touch()
        time.sleep(60)
        raise AssertionError("nobody interrupted")

    experiment.load_stream = wait


def test_interrupted_outside_of_training_it_says_so(tmp_path):
    command = start(tmp_path, "run", "--device", "cpu", before=wait_before_loading)
    command.wait_for((tmp_path / "loading").exists)
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert command.stderr.startswith("interrupted; ")
    assert "the same command goes on" in command.stderr
    assert "Traceback" not in command.stderr
    assert not (tmp_path / "runs").exists()


def interrupt_listing() -> None:
    """Make the command's process meet Ctrl-C where it lists recipes."""

    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    recipes.recipe_names = interrupted


def test_a_command_that_does_not_go_on_promises_nothing_when_interrupted(tmp_path):
    command = fairshot(tmp_path, "list", before=interrupt_listing)
    assert command.process.exitcode == 130
    assert command.stderr == "interrupted; what was finished is kept\n"


def test_a_finished_run_is_not_repeated(folder, finished):
    run = folder / "finished"
    before = {path: path.stat().st_mtime_ns for path in run.glob("*.*") if path.name != "log.txt"}
    command = fairshot(folder, "run", "tiny.yaml", "--out", "finished")
    assert command.process.exitcode == 0
    assert "finished already" in command.stderr
    assert command.stdout == finished.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_another_recipe_in_the_same_folder_is_refused_unless_fresh(folder, finished):
    run = folder / "finished"
    before = weights(run)
    other = ("run", "tiny.yaml", "--set", "training.epochs=1", "--set", "benchmark.sessions=0")
    command = fairshot(folder, *other, "--out", "finished")
    assert command.process.exitcode == 2
    assert "another recipe: benchmark.sessions is " in command.stderr
    assert "training.epochs is " in command.stderr
    assert "seed is " not in command.stderr  # the same in both
    assert "--fresh" in command.stderr
    assert weights(run) == before
    fairshot(
        folder, "run", "tiny.yaml", "--set", "training.epochs=1", "--out", "replaced", "--max-minutes", "0"
    )
    (folder / "replaced" / "notes.txt").write_text("mine")
    command = fairshot(folder, *other, "--out", "replaced", "--fresh")
    assert command.process.exitcode == 0, command.stderr
    assert len(Result.read(folder / "replaced").sessions) == 1
    assert "going on" not in (folder / "replaced" / "log.txt").read_text()
    assert (folder / "replaced" / "notes.txt").read_text() == "mine"


def test_a_time_limit_stops_and_the_same_command_goes_on(folder):
    short = (
        "run",
        "tiny.yaml",
        "--set",
        "training.epochs=1",
        "--set",
        "benchmark.sessions=1",
        "--out",
        "limit",
    )
    command = fairshot(folder, *short, "--max-minutes", "0")
    assert command.process.exitcode == 75
    assert "stopped after 1 of 30 steps" in command.stderr
    command = fairshot(folder, *short)
    assert command.process.exitcode == 0, command.stderr
    assert "going on from step 1" in command.stderr


def test_the_seconds_of_a_training_are_those_of_all_processes_that_worked_on_it(folder):
    short = ("run", "tiny.yaml", "--set", "training.epochs=1", "--set", "benchmark.sessions=1")
    arguments = (*short, "--out", "seconds")
    assert fairshot(folder, *arguments, "--max-minutes", "0").process.exitcode == 75
    kept = Checkpoints(folder / "seconds" / "checkpoints" / "base")
    last = kept.read_last()  # as if it had taken long, and compiled before
    kept.write(replace(last, note=last.note | {"seconds": 1000, "compile_seconds": 300}))
    assert fairshot(folder, *arguments).process.exitcode == 0
    seconds = Result.read(folder / "seconds").seconds
    assert 700 < seconds["base session"] < 700 + 100
    assert seconds["compilation"] == 300


def print_every_step() -> None:
    console.SECONDS_BETWEEN_LINES = 0


def draw_as_on_a_terminal() -> None:
    os.environ["FORCE_COLOR"] = "1"


def test_without_a_terminal_progress_is_a_line_now_and_then(folder):
    short = ["run", "tiny.yaml", "--set", "training.epochs=1", "--set", "training.batch=90"]
    often = fairshot(folder, *short, "--out", "often", before=print_every_step).stderr
    told = re.findall(r"^sss doodles training: (\d+) of 5, about 0:00:\d\d left", often, re.MULTILINE)
    assert told == ["1", "2", "3", "4"]
    seldom = fairshot(folder, *short, "--out", "seldom").stderr
    assert re.fullmatch(r"(sss doodles (training|embedding|sessions): done in \d+\.\d s\n){3}", seldom)
    drawn = fairshot(folder, *short, "--out", "drawn", before=draw_as_on_a_terminal).stderr
    assert "5/5" in drawn
    assert "━" in drawn
    assert "done in" not in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "benchmark.way=70"], "benchmark.way: 70 was given; 2 sessions of 70"),
        (["--set", "benchmark.shots=500"], "benchmark.shots: 500 was given; class "),
        (["--set", "benchmark.name=doodle"], "benchmark.name: there is no benchmark 'doodle'"),
        (["--set", "model.backbone=resnet7"], "model.backbone: 'resnet7' is neither"),
        (["--set", "training.epoch=3"], "training.epoch: unknown key; did you mean epochs?\n"),
        (["--set", "training"], "'training': expected key=value; an example is --set training.epochs=10\n"),
        (["--seed", "-1"], "seed: "),
        (["--device", "tpu"], "device: 'tpu' was given"),
    ],
)
def test_what_cannot_be_run_is_one_message_and_leaves_nothing(tmp_path, arguments, message):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    command = fairshot(tmp_path, "run", "tiny.yaml", *arguments)
    assert command.process.exitcode == 2
    assert command.stderr.startswith(f"fairshot: {message}")
    assert len(command.stderr.strip().splitlines()) == 1
    assert command.stdout == ""
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".std")] == ["tiny.yaml"]


def test_a_folder_that_cannot_be_written_or_a_network_that_is_none_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for arguments, message in (
        (["doodles/sss", "--set", "model.backbone=resnett18"], "did you mean resnet18?"),
        (["doodles/sss", "--out", "file"], "file cannot be made a folder"),
    ):
        command = fairshot(tmp_path, "run", *arguments)
        assert command.process.exitcode == 2
        assert message in command.stderr
        assert "Traceback" not in command.stderr


def test_help_names_every_command_and_option(tmp_path):
    """In a real process of its own, as the shell starts it."""
    command = subprocess.run(
        [sys.executable, "-m", "fairshot", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    for name in ("run", "compare", "list", "--help"):
        assert name in command.stdout
    text = fairshot(tmp_path, "run", "--help").stdout
    for name in (
        "--set",
        "--seed",
        "--device",
        "--out",
        "--fresh",
        "--resume",
        "--max-minutes",
        "doodles/sss",
    ):
        assert name in text
    assert "goes on" in text


def test_list_names_methods_benchmarks_and_recipes(tmp_path):
    text = fairshot(tmp_path, "list").stdout
    for name in ("sss", "ncm", "ce_delta", "doodles", "doodles/sss"):
        assert name in text
    own_pictures = text.split("folder")[1]
    assert {"ncm", "sss", "savc"} <= set(own_pictures.split())


def test_compare_runs_methods_side_by_side_once(tmp_path):
    small = ["benchmark.base_classes=4", "benchmark.way=2", "benchmark.sessions=1", "model.size=14"]
    sets = [part for key in [*small, "training.epochs=1"] for part in ("--set", key)]
    command = fairshot(tmp_path, "compare", "ncm", "sss", *sets, "--out", "both")
    assert command.process.exitcode == 0, command.stderr
    results = [Result.read(tmp_path / "both" / f"{name}-seed0") for name in ("ncm", "sss")]
    assert [result.method for result in results] == ["ncm", "sss"]
    for result in results:
        assert f"{result.metrics.sessions[1].overall:.1f}" in command.stdout
    assert list((tmp_path / "both" / "figures").iterdir())
    again = fairshot(tmp_path, "compare", "ncm", "sss", *sets, "--out", "both")
    assert again.stdout == command.stdout
    assert again.stderr.count("finished already") == 2
    unknown = fairshot(tmp_path, "compare", "ncm", "scn", "--out", "other")
    assert unknown.process.exitcode == 2
    assert "'doodles/scn' is neither a file nor one of the recipes" in unknown.stderr
    assert not (tmp_path / "other").exists()


def test_the_version_is_that_of_the_package(tmp_path):
    asked = fairshot(tmp_path, "--version")
    assert asked.process.exitcode == 0
    assert asked.stdout.strip() == metadata.version("fairshot")


@pytest.mark.parametrize("command", ["tradeoff", "poison"])
def test_what_is_no_run_is_named(tmp_path, command):
    refused = fairshot(tmp_path, command, "nowhere")
    assert refused.process.exitcode == 2
    assert "nowhere holds no recipe.yaml" in refused.stderr
    assert "give the folder of a run" in refused.stderr
