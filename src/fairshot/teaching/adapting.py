"""Calibration at work: classes move a little towards unlabelled images that surely show them (eq. 9, 10).

What moves is kept apart from what was taught, and never further than a set share of the prototype's length,
so that no stream of images can carry a class away.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.classifiers.calibration import calibrate, degrees
from fairshot.settings import Settings, Share
from fairshot.teaching.database import from_blobs, to_blob
from fairshot.teaching.derivation import Shapes
from fairshot.teaching.ledger import Ledger
from fairshot.teaching.snapshot import Snapshot

SETTING = "calibration"


class CalibrationSettings(Settings):
    """Degrees and limits of Calibration."""

    alpha_base: Share = 0.1
    alpha_novel: Share = 0.6
    threshold: float = 0.8  # r of eq. 10
    at_most: int = 40  # R of eq. 10
    drift: Share = 0.2  # how far a prototype may move in all, as a share of its length


@dataclass(frozen=True)
class Adaptation:
    """What unlabelled images did."""

    images: int
    absorbed: dict[str, int]  # by class: images that moved it
    stopped: tuple[str, ...]  # classes that reached the limit of their drift

    def sentence(self) -> str:
        """Tell it in one line."""
        if not self.absorbed:
            return f"none of {self.images} images was sure enough to move a class; nothing changed"
        moved = ", ".join(f"{name} ({count})" for name, count in self.absorbed.items())
        used = sum(self.absorbed.values())
        text = f"{used} of {self.images} images moved {moved}"
        return text + (f"; at the limit of their drift: {', '.join(self.stopped)}" if self.stopped else "")


def adapt(ledger: Ledger, snapshot: Snapshot, g: Tensor, shapes: Shapes) -> Adaptation:
    """Move the prototypes of h towards unlabelled features (N, V, d), within their limits."""
    settings = read_settings(ledger.connection)
    taught, shifts = _prototypes(ledger.connection, snapshot, shapes)
    alpha = degrees(len(taught), snapshot.base_classes, settings.alpha_base, settings.alpha_novel)
    calibrated = calibrate(taught + shifts, g, alpha, settings.threshold, settings.at_most)
    moved, at_limit = bounded(calibrated.prototypes - taught, taught, settings.drift)
    absorbed: dict[str, int] = {}
    stopped = []
    for column in sorted(set(calibrated.absorbed_by.tolist())):
        if column < 0:  # absorbed by nobody
            continue
        entry = snapshot.entries[column]
        ledger.change("shift", entry.id, to_blob(moved[column]))
        absorbed[entry.name] = int((calibrated.absorbed_by == column).sum())
        if at_limit[column]:
            stopped.append(entry.name)
    return Adaptation(len(g), absorbed, tuple(stopped))


def bounded(shifts: Tensor, prototypes: Tensor, drift: float) -> tuple[Tensor, Tensor]:
    """Shorten shifts (C, V, d) to at most `drift` of the prototypes' length, and say whose were (C,)."""
    allowed = drift * prototypes.norm(dim=-1, keepdim=True)
    length = shifts.norm(dim=-1, keepdim=True)
    factor = (allowed / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(max=1)
    return shifts * factor, (length > allowed).any(dim=1).squeeze(-1)


def read_settings(connection: sqlite3.Connection) -> CalibrationSettings:
    """Read how a store calibrates."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (SETTING,)).fetchone()
    return CalibrationSettings.model_validate_json(row[0])


def _prototypes(connection: sqlite3.Connection, snapshot: Snapshot, shapes: Shapes) -> tuple[Tensor, Tensor]:
    """Return the prototypes of h as taught (C, V, d), and how far each was moved already."""
    query = "SELECT p.g, s.g FROM prototypes p LEFT JOIN shifts s ON s.class = p.class WHERE p.class = ?"
    rows = [connection.execute(query, (entry.id,)).fetchone() for entry in snapshot.entries]
    nothing = to_blob(torch.zeros(shapes.g))
    taught = from_blobs([row[0] for row in rows], shapes.g)
    return taught, from_blobs([row[1] or nothing for row in rows], shapes.g)
