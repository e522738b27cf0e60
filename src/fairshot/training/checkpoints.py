"""Checkpoints: a safetensors file and a JSON file with its sha256; the last two are kept."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter

KEPT = 2
TIME_SHARE = 0.03  # largest share of the time that goes into writing checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after some steps."""

    step: int
    tensors: dict[str, Tensor]
    note: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training, in a folder of their own."""

    def __init__(self, folder: Path, reporter: Reporter = SILENT) -> None:
        self.folder = folder
        self.reporter = reporter
        self.ended = time.monotonic()
        self.took = 0.0  # unknown before the first, which is therefore due after the first step

    def due(self) -> bool:
        """Say whether so long has passed since the last one that another costs little."""
        return time.monotonic() - self.ended > self.took / TIME_SHARE

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, the tensors before the JSON note: without a note it does not exist."""
        began = time.monotonic()
        content = save({name: tensor.contiguous().cpu() for name, tensor in checkpoint.tensors.items()})
        note = {"step": checkpoint.step, "sha256": hashlib.sha256(content).hexdigest(), **checkpoint.note}
        write_atomically(self._tensors(checkpoint.step), content)
        write_atomically(self._note(checkpoint.step), json.dumps(note).encode())
        # A later step is there only if it is damaged, else the training had gone on from it.
        whole = [step for step in self._steps() if step <= checkpoint.step][-KEPT:]
        kept = {path for step in whole for path in (self._note(step), self._tensors(step))}
        for path in sorted(self.folder.iterdir()):  # notes before their tensors; also leftovers of a kill
            if path not in kept:
                path.unlink(missing_ok=True)
        self.ended = time.monotonic()
        self.took = self.ended - began

    def read_last(self) -> Checkpoint | None:
        """Read the newest intact checkpoint; report damaged ones."""
        for step in reversed(self._steps()):
            try:
                return self._read(step)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                self.reporter.say(
                    f"checkpoint {self._tensors(step)} is damaged ({problem}); using the one before it"
                )
        return None

    def _read(self, step: int) -> Checkpoint:
        note = json.loads(self._note(step).read_bytes())
        content = self._tensors(step).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != note["sha256"]:
            raise ValueError(f"its sha256 is {found[:12]}, its note says {note['sha256'][:12]}")
        return Checkpoint(step, load(content), note)

    def _steps(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-*.json"))

    def _tensors(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    def _note(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.json"
