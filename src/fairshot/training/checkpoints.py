"""Checkpoints: one safetensors file each, with a checksum; the last two are kept.

Those of a GPU are written by a thread while the training goes on, so that it does not wait for a disk. On a
CPU such a thread would take a core from the training, which then loses more than it saves.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fairshot.errors import DamagedFile, UserError
from fairshot.progress import SILENT, Reporter
from fairshot.tensor_files import read_metadata, read_tensors, write_tensors

KEPT = 2
NOTE = "note"  # in the metadata of the file: what is no tensor, as JSON
TIME_SHARE = 0.03  # largest share of the time that goes into writing checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after some steps."""

    step: int
    tensors: dict[str, Tensor]
    note: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training, in a folder of their own."""

    def __init__(self, folder: Path, reporter: Reporter = SILENT, background: bool = False) -> None:
        self.folder = folder
        self.reporter = reporter
        self.ended = time.monotonic()
        self.took = 0.0  # unknown before the first, which is therefore due after the first step
        self._thread = ThreadPoolExecutor(max_workers=1) if background else None
        self._writing: Future[None] | None = None

    def due(self) -> bool:
        """Say whether so long has passed since the last one that another costs little."""
        if self._writing is not None and not self._writing.done():
            return False
        return time.monotonic() - self.ended > self.took / TIME_SHARE

    def begin(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; in the background from a copy, for the next step changes its tensors."""
        self.wait()
        note = {NOTE: json.dumps(checkpoint.note)}
        if self._thread is None:
            self._write(checkpoint.step, checkpoint.tensors, note)
            return
        copied = {name: value.detach().to("cpu", copy=True) for name, value in checkpoint.tensors.items()}
        self._writing = self._thread.submit(self._write, checkpoint.step, copied, note)

    def wait(self) -> None:
        """Wait until what was begun is written; a problem that its writing met is raised here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint before anything else is done."""
        self.begin(checkpoint)
        self.wait()

    def _write(self, step: int, tensors: dict[str, Tensor], note: dict[str, str]) -> None:
        """Write a checkpoint, and remove those that it makes unneeded."""
        began = time.monotonic()
        write_tensors(self._path(step), tensors, note)
        # A later step is there only if it is damaged, else the training had gone on from it.
        kept = {self._path(each) for each in [s for s in self._steps() if s <= step][-KEPT:]}
        for path in sorted(self.folder.iterdir()):  # also leftovers of a kill
            if path not in kept:
                path.unlink(missing_ok=True)
        self.ended = time.monotonic()
        self.took = self.ended - began

    def read_last(self) -> Checkpoint | None:
        """Read the newest intact checkpoint; report damaged ones."""
        for step in reversed(self._steps()):
            try:
                return self._read(step)
            except UserError as problem:
                self.reporter.say(f"{problem}; the checkpoint before it is used")
        return None

    def _read(self, step: int) -> Checkpoint:
        path = self._path(step)
        tensors, note = read_tensors(path), read_metadata(path).get(NOTE)
        if note is None:
            raise DamagedFile(path, "it is no checkpoint")
        return Checkpoint(step, tensors, json.loads(note))

    def _steps(self) -> list[int]:
        names = [path.stem.removeprefix("step-") for path in self.folder.glob("step-*.safetensors")]
        return sorted(int(name) for name in names if name.isdecimal())

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"
