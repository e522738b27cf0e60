"""Runs logged to TensorBoard and Weights & Biases, read back with their own libraries: each value once."""

from __future__ import annotations

import csv
import json
import struct
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairshot.errors import ExtraMissing
from fairshot.evaluation import tracking
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import TRAINING
from fairshot.evaluation.tracking import ACCURACIES, TrackerRefused, Tracking
from fairshot.recipes import load_recipe
from fairshot.studies import StudyOptions, compare
from fairshot.training.hardware import choose_hardware
from support.commands import fairshot, set_environment

SMALL = [
    *("benchmark.base_classes=4", "benchmark.way=2", "benchmark.sessions=1"),
    *("model.size=14", "training.epochs=2", "training.batch=60"),
]
SETS = [part for key in SMALL for part in ("--set", key)]
PATIENT = {"WANDB__SERVICE_WAIT": "300"}  # seconds for the process of wandb to start
OFFLINE = partial(set_environment, {"WANDB_MODE": "offline", **PATIENT})  # in the process of a command
CURVE = ("loss", "learning_rate", "images_per_second", "epoch")
FLAGS = ["--device", "cpu", "--out", "run"]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run that was stopped after its first step without a tracker, and went on with both; logged again."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("logged")
    stopped = fairshot(folder, "run", "doodles/ncm", *SETS, *FLAGS, "--max-minutes", "0")
    assert stopped.process.exitcode == 75, stopped.stderr
    assert not (folder / "run" / "tensorboard").exists()
    both = ("--log", "tensorboard", "--log", "wandb")
    for _ in range(2):
        done = fairshot(folder, "run", "doodles/ncm", *SETS, *FLAGS, *both, before=OFFLINE)
        assert done.process.exitcode == 0, done.stderr
    with (folder / "run" / TRAINING).open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return SimpleNamespace(folder=folder / "run", rows=rows, result=Result.read(folder / "run"))


def test_tensorboard_holds_curve_accuracies_summary_and_figures_once(logged: SimpleNamespace) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logged.folder / "tensorboard")).Reload()
    for key in CURVE:
        found = [(event.step, event.value) for event in events.Scalars(f"training/{key}")]
        assert found == [(row["step"], pytest.approx(row[key], rel=1e-6)) for row in logged.rows]
    for name in ACCURACIES:
        values = [getattr(session, name) for session in logged.result.metrics.sessions]
        found = {event.step: event.value for event in events.Scalars(f"sessions/{name}")}
        assert found == {
            number: pytest.approx(value, rel=1e-6) for number, value in enumerate(values) if value is not None
        }
    (summary,) = events.Scalars("summary/overall_avg")
    assert summary.value == pytest.approx(logged.result.metrics.overall_avg, rel=1e-6)
    assert "figures/accuracy" in events.Tags()["images"]


def test_wandb_holds_the_same_offline(logged: SimpleNamespace) -> None:
    (path,) = (logged.folder / "wandb").glob("offline-run-*/run-*.wandb")  # the second call logged nothing
    history, summary = read_wandb(path.read_bytes())
    for key in CURVE:
        title = f"training/{key}"
        curve = [(row["training/step"], row[title]) for row in history if title in row]
        assert curve == [(row["step"], pytest.approx(row[key])) for row in logged.rows]
    for name in ACCURACIES:
        values = [getattr(session, name) for session in logged.result.metrics.sessions]
        found = [row[f"sessions/{name}"] for row in history if f"sessions/{name}" in row]
        assert found == pytest.approx([value for value in values if value is not None])
    assert sum(any(key.startswith("figures/accuracy") for key in row) for row in history) == 1
    assert summary["harmonic_mean_avg"] == pytest.approx(logged.result.metrics.harmonic_mean_avg)


def read_wandb(content: bytes) -> tuple[list[dict], dict]:
    """Read what `wandb sync` would send: after 7 bytes, protobuf records in the log format of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    position, record, history, summary = 7, b"", [], {}
    while position + 7 <= len(content):
        if (left := -position % 2**15) and left < 7:  # no head of a record fits into the rest of the block
            position += left
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)  # after a checksum
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            parsed, record = Record.FromString(record), b""
            if items := parsed.history.item:
                history.append({"/".join(each.nested_key) or each.key: each.value_json for each in items})
            summary |= {
                "/".join(each.nested_key) or each.key: each.value_json for each in parsed.summary.update
            }
    decode = lambda row: {key: json.loads(value) for key, value in row.items()}  # noqa: E731
    return [decode(row) for row in history], decode(summary)


def test_a_comparison_is_logged_when_it_has_finished_and_not_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    brief = [*SMALL, "training.epochs=1"]
    compare(["ncm"], tmp_path, overrides=brief, options=StudyOptions("cpu"))
    with_tracker = StudyOptions("cpu", tracking=Tracking(["tensorboard"]))
    sizes = []
    for _ in range(2):
        compare(["ncm"], tmp_path, overrides=brief, options=with_tracker)
        events = (tmp_path / "ncm-seed0" / "tensorboard").glob("events*")
        sizes.append({path.name: path.stat().st_size for path in events})
    assert sizes[0] == sizes[1] != {}


def test_a_tracker_that_is_not_there_or_refuses_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out = load_recipe("doodles/ncm", SMALL), tmp_path / "run"
    asked = RunOptions(out, choose_hardware("cpu"), tracking=Tracking(["wandb"]))
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "find_spec", lambda name: None)
        with pytest.raises(ExtraMissing, match=r"pip install 'wandb>="):
            run(recipe, asked)
    assert not out.exists()
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB__SERVICE_WAIT", PATIENT["WANDB__SERVICE_WAIT"])
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TrackerRefused, match="WANDB_MODE=offline"):
        run(recipe, asked)
    assert not (out / "checkpoints").exists()


def test_runs_that_are_not_logged_import_no_tracker(tmp_path: Path) -> None:
    ended = fairshot(tmp_path, "run", "doodles/ncm", *SETS, "--device", "cpu", before=_refuse_trackers)
    assert ended.process.exitcode == 0, ended.stderr


def _refuse_trackers() -> None:
    import sys

    for name in ("wandb", "tensorboard", "torch.utils.tensorboard"):
        sys.modules[name] = None  # type: ignore[assignment] - importing it is an error
