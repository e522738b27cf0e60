"""Snapshot: all classes of a store at one moment, as one classifier in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairshot.classifiers.dual import DualClassifier
from fairshot.teaching.adaptation import calibrated
from fairshot.teaching.base_classifier import (
    MOST_WHITENING,
    group_sums,
    regrouped,
    shot_covariance,
    whitened_by_photos,
)
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.database import read_transaction
from fairshot.teaching.derived import Layout, read_delta
from fairshot.teaching.event_log import last_event
from fairshot.teaching.queries import TAUGHT, Stored, repeated_images

_BASE = """
SELECT c.id, c.name, base.id - 1 FROM base JOIN classes c ON c.id = base.class
WHERE c.name IS NOT NULL ORDER BY base.id
"""
_TAUGHT = """
SELECT c.id, c.name, p.count, p.g, p.g_tilde, p.gate, p.margins
FROM prototypes p JOIN classes c ON c.id = p.class ORDER BY c.name
"""


class ClassRow(NamedTuple):
    """A class of a store."""

    id: int
    name: str


@dataclass(frozen=True)
class Snapshot:
    """The classes, base classes in the order of training and then taught ones by name, and what answers."""

    version: int  # the last event
    rows: tuple[ClassRow, ...]
    classifier: DualClassifier  # of these classes, in this order
    confidence: Confidence

    @property
    def names(self) -> list[str]:
        """Names, by class of the classifier."""
        return [row.name for row in self.rows]

    @property
    def calibrated(self) -> set[int]:
        """The ids of the classes that unlabelled samples moved."""
        memory = self.classifier.memory
        return set() if memory is None else {self.rows[owner].id for owner in memory.owner.tolist()}

    def most_similar(self, scores: Tensor, at_most: int) -> list[tuple[str, float]]:
        """Name the classes of the highest scores (C,), the highest first, equal ones in their order."""
        least = scores.topk(min(at_most, len(scores))).values[-1]
        columns = (scores >= least).nonzero()[:, 0]
        columns = columns[scores[columns].argsort(descending=True, stable=True)][:at_most]
        return [(self.rows[column].name, float(scores[column])) for column in columns.tolist()]


def read_snapshot(
    connection: sqlite3.Connection, base: DualClassifier, layout: Layout, former: Snapshot | None = None
) -> Snapshot:
    """Read the present state; a former snapshot is returned if it still holds."""
    with read_transaction(connection):
        version = last_event(connection)
        if former is not None and former.version == version:
            return former
        groups: dict[ClassRow, list[int]] = {}
        for class_id, name, position in connection.execute(_BASE):
            groups.setdefault(ClassRow(class_id, name), []).append(position)
        classifier = _with_photos(connection, regrouped(base, list(groups.values())), list(groups), layout)
        taught = connection.execute(_TAUGHT).fetchall()
        tensors = classifier.tensors()
        for key, added in layout.class_tensors([row[2:] for row in taught]).items():
            tensors[key] = torch.cat([tensors[key], added])
        if layout.g_tilde is None:
            tensors["h_tilde.means"] = tensors["h.means"]
        tensors["h_tilde.delta"] = group_sums(read_delta(connection, base), list(groups.values()))
        classifier = DualClassifier.from_tensors(base.settings, len(groups), tensors, layout.g[0])
        rows = (*groups, *(ClassRow(*row[:2]) for row in taught))
        classifier = _with_shot_covariance(connection, classifier, rows, layout)
        return Snapshot(
            version=version,
            rows=rows,
            classifier=calibrated(connection, classifier, layout),
            confidence=Confidence.read(connection),
        )


def _with_shot_covariance(
    connection: sqlite3.Connection, classifier: DualClassifier, rows: Sequence[ClassRow], layout: Layout
) -> DualClassifier:
    """Whiten by the photos of the store too, if its settings say so."""
    if not shot_covariance(classifier):  # then none are read
        return classifier
    stored = repeated_images(connection, layout, MOST_WHITENING)
    return whitened_by_photos(classifier, stored.features, labels_of(stored, rows))


def labels_of(stored: Stored, rows: Sequence[ClassRow]) -> Tensor:
    """Return the classes of stored images by their positions among the rows of a snapshot (N,)."""
    columns = {row.id: column for column, row in enumerate(rows)}
    return torch.tensor([columns[each] for each in stored.classes], dtype=torch.int64)


def _with_photos(
    connection: sqlite3.Connection, classifier: DualClassifier, base: Sequence[ClassRow], layout: Layout
) -> DualClassifier:
    """Refine base classes by the photos that were taught to them."""
    query = f"SELECT g, g_tilde FROM images WHERE class = ? AND {TAUGHT} ORDER BY sha256"  # noqa: S608 - our condition
    images = [connection.execute(query, (row.id,)).fetchall() for row in base]
    labels = [label for label, rows in enumerate(images) for _ in rows]
    if not labels:
        return classifier
    return classifier.extend(layout.features([row for rows in images for row in rows]), torch.tensor(labels))
