"""Calibration at work: classes move a little towards unlabelled images that surely show them.

The rules of `classifiers.bounded_calibration` bound the movement. A store keeps the samples they keep, and
how far each class moves follows from these samples and from what was taught, whatever came first.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.bounded_calibration import Calibration
from fairshot.classifiers.calibration import degrees
from fairshot.errors import UserError
from fairshot.settings import Settings, Share
from fairshot.teaching.database import from_blobs, to_blob
from fairshot.teaching.derived import Shapes
from fairshot.teaching.event_log import EventLog

SETTING = "calibration"
MOST_CLASSES = 10_000  # each is compared with every other
_CLASSES = """
SELECT c.id, c.name, p.novel, p.g FROM classes c JOIN prototypes p ON p.class = c.id
ORDER BY p.novel, (SELECT min(b.id) FROM base b WHERE b.class = c.id), c.name
"""


class CalibrationSettings(Settings):
    """Degrees and bounds of Calibration."""

    alpha_base: Share = 0.1
    alpha_novel: Share = 0.6
    threshold: float = 0.8  # r of eq. 10
    at_most: int = Field(40, ge=1)  # R of eq. 10
    drift: float = Field(
        0.2, ge=0
    )  # farthest a class may move, as a share of the way to the nearest other one

    @property
    def bounds(self) -> bounded_calibration.Bounds:
        """What `classifiers.bounded_calibration` calls these settings."""
        return bounded_calibration.Bounds(self.threshold, self.at_most, self.drift)


@dataclass(frozen=True)
class Adaptation:
    """What unlabelled images did."""

    images: int
    absorbed: dict[str, int]  # by class: images that move it now

    def sentence(self) -> str:
        """Tell it in one line."""
        if not self.absorbed:
            return f"none of {self.images} images was sure enough, or new enough, to move a class"
        moved = ", ".join(f"{name} ({count})" for name, count in self.absorbed.items())
        return f"{sum(self.absorbed.values())} of {self.images} images move {moved}"


@dataclass(frozen=True)
class Sample:
    """An unlabelled image."""

    sha256: bytes
    g: Tensor  # (V, d)


def absorb(ledger: EventLog, samples: list[Sample], shapes: Shapes) -> Adaptation:
    """Keep the samples that the rules keep, in place of those they displace."""
    connection = ledger.connection
    state, names = _calibration(connection, shapes)
    if len(names) > MOST_CLASSES:
        raise UserError(f"the store has {len(names):,} classes; adapting works up to {MOST_CLASSES:,}")
    settings = read_settings(connection)
    rows = torch.tensor([_row_of(connection, sample) for sample in samples])
    features = torch.stack([sample.g for sample in samples])
    after = bounded_calibration.absorb(state, features, rows, settings.bounds)
    entry = after.journal[-1]
    for row in entry.displaced.tolist():
        ledger.change("sample", row, 0)
    for row in entry.added.tolist():
        ledger.change("sample", row, 1)
    return Adaptation(len(samples), dict(Counter(names[owner] for owner in entry.added_to.tolist())))


def derive_shifts(connection: sqlite3.Connection, shapes: Shapes) -> None:
    """Bring in line how far each class is moved by the samples kept."""
    connection.execute("DELETE FROM shifts")
    if not connection.execute("SELECT 1 FROM unlabelled WHERE kept LIMIT 1").fetchone():
        return
    state, _ = _calibration(connection, shapes)
    shifts = bounded_calibration.prototypes(state, read_settings(connection).bounds) - state.labelled
    ids = [row[0] for row in connection.execute(_CLASSES)]
    owners = sorted(set(state.owner.tolist()))
    connection.executemany(
        "INSERT INTO shifts VALUES (?, ?)", [(ids[owner], to_blob(shifts[owner])) for owner in owners]
    )


def _calibration(connection: sqlite3.Connection, shapes: Shapes) -> tuple[Calibration, list[str]]:
    """Return the state of Calibration, and the names of the classes in its order."""
    settings = read_settings(connection)
    classes = connection.execute(_CLASSES).fetchall()
    labelled = from_blobs([row[3] for row in classes], shapes.g)
    alpha = degrees(
        len(classes), sum(not row[2] for row in classes), settings.alpha_base, settings.alpha_novel
    )
    rows = connection.execute("SELECT id, g FROM unlabelled WHERE kept ORDER BY sha256").fetchall()
    ids = torch.tensor([row[0] for row in rows], dtype=torch.int64)
    kept = from_blobs([row[1] for row in rows], shapes.g)
    state = bounded_calibration.Calibration(labelled, alpha, kept, ids, torch.zeros_like(ids))
    names = [row[1] for row in classes]
    return bounded_calibration.relabel(state, labelled, alpha, settings.bounds), names


def _row_of(connection: sqlite3.Connection, sample: Sample) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO unlabelled (sha256, kept, g) VALUES (?, 0, ?)",
        (sample.sha256, to_blob(sample.g)),
    )
    row = connection.execute("SELECT id FROM unlabelled WHERE sha256 = ?", (sample.sha256,)).fetchone()
    return int(row[0])


def read_settings(connection: sqlite3.Connection) -> CalibrationSettings:
    """Read how a store calibrates."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (SETTING,)).fetchone()
    return CalibrationSettings.model_validate_json(row[0])
