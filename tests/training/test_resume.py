"""Checkpoints: whole or absent, damaged ones refused by name; training goes on from each of them exactly."""

import itertools
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fairshot import files
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import TrainingStopped
from fairshot.methods import method_named
from fairshot.methods.ncm import NCM
from fairshot.models.embedder import ModelSettings
from fairshot.models.pixels import crop_resize
from fairshot.progress import Reporter
from fairshot.tensor_files import write_tensors
from fairshot.training import checkpoints, loop
from fairshot.training.batches import Batches
from fairshot.training.checkpoints import Checkpoint, Checkpoints
from fairshot.training.hardware import choose_hardware
from fairshot.training.interruption import watch_for_interruption
from fairshot.training.loop import Trainer, TrainingSettings
from fairshot.training.state import AnotherTraining
from fairshot.training.views import ViewSettings


class Listener(Reporter):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)


def checkpoint(step: int) -> Checkpoint:
    tensors = {
        "weights.a": torch.randn(3, 4, generator=torch.Generator().manual_seed(step)),
        "weights.b": torch.tensor([step]),
        "weights.c": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "weights.d": torch.tensor(0.1, dtype=torch.bfloat16),
    }
    return Checkpoint(step, tensors, {"history": [{"step": step}]})


def written(folder: Path, *steps: int) -> Checkpoints:
    kept = Checkpoints(folder, Listener())
    for step in steps:
        kept.write(checkpoint(step))
    return kept


def test_what_is_written_is_read_back_bit_by_bit(tmp_path):
    given = checkpoint(7)
    kept = Checkpoints(tmp_path / "made" / "here")
    kept.write(given)
    read = kept.read_last()
    assert read.step == 7
    assert read.note["history"] == [{"step": 7}]
    assert read.tensors.keys() == given.tensors.keys()
    for name, value in given.tensors.items():
        assert torch.equal(read.tensors[name], value)
        assert read.tensors[name].dtype == value.dtype


def test_nothing_written_is_nothing_read(tmp_path):
    assert Checkpoints(tmp_path / "nowhere").read_last() is None


def test_the_last_two_are_kept_and_what_a_kill_left_is_removed(tmp_path):
    (tmp_path / ".step-00000001.safetensors.x1.partial").write_text("half")
    (tmp_path / "step-00000001.json").write_text("of another version")
    written(tmp_path, 3, 10, 200)
    names = [f"step-00000{step}.safetensors" for step in ("010", "200")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit": flip_a_bit,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "without a checksum": lambda path: save_file({"a": torch.zeros(2)}, path),
    "without a note": lambda path: write_tensors(path, {"a": torch.zeros(2)}, {}),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, kind):
    kept = written(tmp_path, 1, 2)
    DAMAGE[kind](tmp_path / "step-00000002.safetensors")
    assert kept.read_last().step == 1
    (message,) = kept.reporter.messages
    assert "step-00000002.safetensors is " in message
    DAMAGE[kind](tmp_path / "step-00000001.safetensors")
    assert kept.read_last() is None


def test_a_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    go_on = threading.Event()

    def slowly(*given):
        assert go_on.wait(timeout=60)
        write_tensors(*given)

    monkeypatch.setattr(checkpoints, "write_tensors", slowly)
    kept, given = Checkpoints(tmp_path, background=True), checkpoint(3)
    before, rows = given.tensors["weights.a"].clone(), list(given.note["history"])
    kept.begin(given)
    given.tensors["weights.a"].zero_()  # the next step
    given.note["history"].append({"step": 4})
    assert not kept.due()
    assert kept.read_last() is None
    go_on.set()
    kept.wait()
    found = kept.read_last()
    assert torch.equal(found.tensors["weights.a"], before)
    assert found.note["history"] == rows


def test_nothing_is_written_after_a_training_has_failed(tmp_path, monkeypatch):
    go_on, written = threading.Event(), threading.Event()

    def slowly(*given):
        assert go_on.wait(timeout=60)
        write_tensors(*given)
        written.set()

    def fail(trainer, phase, *given):
        phase.checkpoints.begin(checkpoint(1))
        threading.Timer(0.2, go_on.set).start()
        raise KeyError

    monkeypatch.setattr(checkpoints, "write_tensors", slowly)
    monkeypatch.setattr(loop.Trainer, "_loop", fail)
    monkeypatch.setattr(loop, "Checkpoints", lambda *given: Checkpoints(*given[:2], background=True))
    with pytest.raises(KeyError):
        fit_ncm(base_session(), tmp_path)
    assert written.is_set()


def test_what_hinders_the_writing_of_a_checkpoint_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "write_tensors", Mock(side_effect=OSError("no space left")))
    kept = Checkpoints(tmp_path, background=True)
    kept.begin(checkpoint(1))
    with pytest.raises(OSError, match="no space left"):
        kept.begin(checkpoint(2))


def test_a_damaged_checkpoint_does_not_take_the_place_of_a_good_one(tmp_path):
    kept = written(tmp_path, 10, 20)
    flip_a_bit(tmp_path / "step-00000020.safetensors")
    assert kept.read_last().step == 10
    kept.write(checkpoint(15))  # the training went on from step 10
    flip_a_bit(tmp_path / "step-00000015.safetensors")
    assert kept.read_last().step == 10


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_checkpoint_half_written_does_not_exist(tmp_path, monkeypatch, name):
    kept = written(tmp_path, 1)

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, name, die)
    with pytest.raises(KeyboardInterrupt):
        kept.write(checkpoint(2))
    assert kept.read_last().step == 1
    assert kept.reporter.messages == []


def test_a_write_that_fails_leaves_the_old_content_and_no_trace(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def fail(*_):
        raise OSError("no space left")

    for name in ("fsync", "replace"):
        monkeypatch.setattr(files.os, name, fail)
        with pytest.raises(OSError, match="no space"):
            files.write_atomically(path, b"new and longer")
        monkeypatch.undo()
        assert path.read_bytes() == b"old"
        assert [item.name for item in tmp_path.iterdir()] == ["file"]


# Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_question_until_it_is_repeated(number):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with watch_for_interruption() as interrupted:
        assert not interrupted()
        signal.raise_signal(number)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_only_the_main_thread_can_be_asked():
    answers = []

    def watch() -> None:
        with watch_for_interruption() as interrupted:
            answers.append(interrupted())

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert answers == [False]


# Training in steps of one process each


def test_a_step_is_a_function_of_seed_and_step():
    def steps(seed: int) -> list[tuple[np.ndarray, torch.Tensor]]:
        batches = Batches(base_session(), 4, 1, 6, seed, torch.device("cpu"))
        order = np.random.default_rng(seed).permutation(6)  # steps may be asked for in any order
        drawn = {int(step): (batches.rows(int(step)), batches[int(step)][2]) for step in order}
        return [drawn[step] for step in range(6)]

    first, again, other = steps(1), steps(1), steps(2)
    for (rows, noise), (same_rows, same_noise) in zip(first, again, strict=True):
        assert rows.tolist() == same_rows.tolist()
        assert torch.equal(noise, same_noise)
    for epoch in (first[:3], first[3:]):
        assert len({row for rows, _ in epoch for row in rows[:4].tolist()}) == 12  # no picture twice
        assert all(rows[4] == rows[0] for rows, _ in epoch)  # the last has the first as its neighbour
    noises = [noise[:4] for _, noise in (*first, *other)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(noises, 2))
    assert [rows.tolist() for rows, _ in first[:3]] != [rows.tolist() for rows, _ in first[3:]]


def base_session() -> LabelledPictures:
    rng = np.random.default_rng(0)
    labels = np.arange(14, dtype=np.int64) % 3
    return LabelledPictures(Pictures.from_array(rng.integers(0, 256, (14, 9, 9, 3), dtype=np.uint8)), labels)


def trained(folder: Path | None, name: str, options: dict, impatient: bool) -> tuple[dict, list, int]:
    """Train to the end, by processes that each stop after one step if they are impatient."""
    starts = 0
    while True:
        starts += 1
        torch.manual_seed(5)
        method_class = method_named(name)
        settings = method_class.Settings(**options)
        method = method_class(settings, ModelSettings(backbone="tiny", size=8), channels=3, base_classes=3)
        training = TrainingSettings(epochs=3, batch=4, average_decay=0.7, low_resolution=8, weight_decay=0.01)
        fabric, limit = choose_hardware("cpu"), {"deadline": 0.0} if impatient else {}
        trainer = Trainer(fabric, training, ViewSettings(), 10, seed=1, folder=folder, **limit)
        try:
            method.fit_base(base_session(), trainer)
        except TrainingStopped:
            continue
        return method.tensors(), trainer.history, starts


def fit_ncm(data: LabelledPictures, folder: Path, classes: int = 3, batch: int = 4) -> None:
    training = TrainingSettings(epochs=1, batch=batch)
    trainer = Trainer(choose_hardware("cpu"), training, ViewSettings(), 10, seed=1, folder=folder)
    NCM(NCM.Settings(), ModelSettings(backbone="tiny", size=8), 3, classes).fit_base(data, trainer)


def test_a_training_on_other_images_is_not_gone_on_with(tmp_path):
    data = base_session()
    fit_ncm(data, tmp_path)
    fit_ncm(data, tmp_path)
    for other in (data.take(range(9)), data.take([*range(1, 14), 0])):
        with pytest.raises(AnotherTraining, match="other images"):
            fit_ncm(other, tmp_path)
    with pytest.raises(AnotherTraining, match="another network") as problem:
        fit_ncm(data, tmp_path, classes=4)
    assert problem.value.folder == tmp_path / "base"
    with pytest.raises(AnotherTraining):
        fit_ncm(data, tmp_path, batch=5)


def test_a_step_that_would_end_after_the_deadline_is_not_begun(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

    def slowly(batches, step, take=Batches.__getitem__):
        clock.now += 10
        return take(batches, step)

    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(Batches, "__getitem__", slowly)
    for deadline, steps in ((0, 1), (9, 1), (19, 1), (21, 2), (39, 3)):
        clock.now = 0.0
        training = TrainingSettings(epochs=3, batch=4)
        trainer = Trainer(choose_hardware("cpu"), training, ViewSettings(), 10, seed=1, deadline=deadline)
        method = NCM(NCM.Settings(), ModelSettings(backbone="tiny", size=8), channels=3, base_classes=3)
        with pytest.raises(TrainingStopped, match=f"stopped after {steps} of 9 steps"):
            method.fit_base(base_session(), trainer)


def test_streamed_pictures_are_the_same_as_resident_ones():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (5 + i, 9 - i % 3, 3), dtype=np.uint8) for i in range(11)]
    data = LabelledPictures(Pictures.from_list(images), np.arange(11, dtype=np.int64))
    resident, streamed = (
        Batches(data, 3, 1, 2, seed=0, device=torch.device("cpu"), resident=choice)
        for choice in (True, False)
    )
    for step in (0, 1, 2, 5, 4):
        (pictures, labels, noise), (others, *rest) = resident[step], streamed[step]
        whole = torch.cat([torch.zeros(4, 2), pictures.sizes], dim=1)
        assert torch.equal(crop_resize(pictures, whole, 6), crop_resize(others, whole, 6))
        assert torch.equal(labels, rest[0])
        assert torch.equal(noise, rest[1])


@pytest.mark.parametrize(("name", "options"), [("sss", {"sr_width": 6}), ("ncm", {})])
def test_stopped_after_every_step_training_ends_exactly_as_if_never_stopped(tmp_path, name, options):
    with torch.random.fork_rng():
        never, curve, once = trained(None, name, options, impatient=False)
        always, resumed_curve, starts = trained(tmp_path, name, options, impatient=True)
    assert (once, starts) == (1, 10)  # 3 epochs of 3 steps, and one start more that finds them done
    for key, value in never.items():
        assert torch.equal(always[key], value), key
    assert [row["loss"] for row in resumed_curve] == [row["loss"] for row in curve]
    last = Checkpoints(tmp_path / "base").read_last()
    assert last.step == 9
    note = last.note
    assert note["seconds"] > note["epoch_seconds"] >= 0
