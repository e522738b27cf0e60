"""Calibration in a store: classes move a little towards unlabelled images that surely show them.

The rules of `classifiers.bounded_calibration` bound the movement. A store records the samples that they keep;
how far each class moves follows from these samples and from what was taught, whatever came first.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.bounded_calibration import Calibration
from fairshot.classifiers.dual import DualClassifier
from fairshot.errors import BadInput
from fairshot.teaching.database import from_blobs, to_blob
from fairshot.teaching.derived import Layout
from fairshot.teaching.event_log import EventLog
from fairshot.teaching.network import Photo

MOST_CLASSES = 10_000  # each is compared with every other


@dataclass(frozen=True)
class Adaptation:
    """What unlabelled images did."""

    images: int
    absorbed: dict[str, int]  # by class: images of these that move it now
    skipped: Mapping[str, str] = field(default_factory=dict)  # files that cannot be read, and why

    def sentence(self) -> str:
        """Tell it in one line."""
        if not self.absorbed:
            return f"none of {self.images} images was sure enough, or new enough, to move a class"
        moved = ", ".join(f"{name} ({count})" for name, count in self.absorbed.items())
        return f"{sum(self.absorbed.values())} of {self.images} images move {moved}"


def absorb(
    log: EventLog, photos: Sequence[Photo], classifier: DualClassifier, names: Sequence[str]
) -> dict[str, int]:
    """Keep the photos that the rules keep, in place of those they displace; count them by class."""
    if len(names) > MOST_CLASSES:
        raise BadInput("store", f"it has {len(names):,} classes; adapting works up to {MOST_CLASSES:,}")
    state = classifier.memory or bounded_calibration.begin(classifier.h.means, classifier.alphas())
    rows = torch.tensor([_row_of(log.connection, photo) for photo in photos])
    g = torch.stack([photo.g for photo in photos])
    entry = bounded_calibration.absorb(state, g, rows, classifier.bounds).journal[-1]
    for row in entry.displaced.tolist():
        log.change("sample", row, 0)
    for row in entry.added.tolist():
        log.change("sample", row, 1)
    return dict(Counter(names[owner] for owner in entry.added_to.tolist()))


def calibrated(connection: sqlite3.Connection, classifier: DualClassifier, layout: Layout) -> DualClassifier:
    """Return the classifier with the samples that are kept; each belongs to the class that recognises it."""
    rows = connection.execute("SELECT id, g FROM unlabelled WHERE kept ORDER BY sha256").fetchall()
    if not rows or not classifier.classes:
        return classifier
    kept, ids = from_blobs([row[1] for row in rows], layout.g), torch.tensor([row[0] for row in rows])
    labelled, alpha = classifier.h.means, classifier.alphas()
    state = Calibration(labelled, alpha, kept, ids, torch.zeros_like(ids))
    return replace(classifier, memory=bounded_calibration.relabel(state, labelled, alpha, classifier.bounds))


def _row_of(connection: sqlite3.Connection, photo: Photo) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO unlabelled (sha256, kept, g) VALUES (?, 0, ?)",
        (photo.sha256, to_blob(photo.g)),
    )
    row = connection.execute("SELECT id FROM unlabelled WHERE sha256 = ?", (photo.sha256,)).fetchone()
    return int(row[0])
