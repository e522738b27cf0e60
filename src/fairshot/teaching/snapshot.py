"""Snapshot: all classes of a store at one moment, in memory, ready to answer.

The rule is that of SSS: Algorithm 1 over prototypes of which the base ones step back (Resistance). Base
classes come first, in the order of training; taught ones follow by name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairshot.classifiers.combination import separately
from fairshot.classifiers.resistance import resist
from fairshot.classifiers.similarity import directions, similarity_to
from fairshot.models.embedder import Features
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.database import from_blobs, one_moment
from fairshot.teaching.derived import Shapes, read_delta
from fairshot.teaching.event_log import last_event, touched_classes

_CLASSES = """
SELECT c.id, c.name, p.novel, (SELECT min(b.id) FROM base b WHERE b.class = c.id), p.g, p.g_tilde, s.g
FROM classes c JOIN prototypes p ON p.class = c.id LEFT JOIN shifts s ON s.class = c.id
WHERE c.name IS NOT NULL
"""
_MANY = 500  # changed classes from which on everything is read again


@dataclass(frozen=True, order=True)
class ClassRow:
    """A class in its place: base classes by rank, then taught ones by name."""

    novel: bool
    rank: int
    name: str
    id: int


@dataclass(frozen=True)
class Snapshot:
    """The classifiers h and h~ as directions, one row a class."""

    version: int  # the last event
    entries: tuple[ClassRow, ...]
    base_classes: int  # so many rows come first
    first: Tensor  # h, (C, V * d)
    second: Tensor  # h~ with the base classes resisting, (C, V * d~); empty in a store without base classes
    calibrated: bool  # whether unlabelled samples move any class
    confidence: Confidence

    @property
    def names(self) -> list[str]:
        """Names by column."""
        return [entry.name for entry in self.entries]

    def most_similar(self, cosines: Tensor, at_most: int) -> list[tuple[str, float]]:
        """Name the classes of the highest cosines (C,), the highest first, equal ones in their order."""
        least = cosines.topk(min(at_most, len(cosines))).values[-1]
        columns = (cosines >= least).nonzero()[:, 0]
        columns = columns[cosines[columns].argsort(descending=True, stable=True)][:at_most]
        return [(self.entries[column].name, float(cosines[column])) for column in columns.tolist()]

    def scores(self, features: Features) -> tuple[Tensor, Tensor]:
        """Return the cosines (N, C) of the look that decides, and whether that was the second look (N,)."""
        return self.decide(*self.looks(features))

    def looks(self, features: Features) -> tuple[Tensor, Tensor]:
        """Return the cosines (N, C) of both looks; no second ones (0, C) where no image needs them."""
        first = similarity_to(features["g"], self.first)
        if not bool(self._sees_base(first).any()):
            return first, first[:0]
        return first, similarity_to(features["g_tilde"], self.second)

    def decide(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Choose for each image the look that decides (Algorithm 1)."""
        sees_base = self._sees_base(first)
        if not len(second):
            return first, sees_base
        return separately(first, second, self.base_classes)

    def _sees_base(self, first: Tensor) -> Tensor:
        if not self.base_classes:
            return torch.zeros(len(first), dtype=torch.bool)
        return first.argmax(1) < self.base_classes


@dataclass(frozen=True)
class SnapshotReader:
    """Reads snapshots from a database."""

    shapes: Shapes
    gamma: float  # strength of Resistance; 0: none

    def read(self, connection: sqlite3.Connection, former: Snapshot | None = None) -> Snapshot:
        """Read the present state; what did not change since a former snapshot is taken from it."""
        with one_moment(connection):
            version = last_event(connection)
            if former is not None and former.version == version:
                return former
            touched = touched_classes(connection, former.version) if former is not None else set()
            all_move = former is not None and (former.calibrated or _calibrates(connection))
            if former is None or all_move or len(touched) > _MANY:
                return self._assemble(connection, version, connection.execute(_CLASSES).fetchall())
            rows = [
                row
                for class_id in touched
                for row in connection.execute(f"{_CLASSES} AND c.id = ?", (class_id,)).fetchall()
            ]
            return self._assemble(connection, version, rows, former, touched)

    def _assemble(
        self,
        connection: sqlite3.Connection,
        version: int,
        rows: list[tuple[Any, ...]],
        former: Snapshot | None = None,
        touched: Collection[int] = (),
    ) -> Snapshot:
        entries = [ClassRow(bool(row[2]), row[3] or 0, row[1], row[0]) for row in rows]
        g, g_tilde = self.shapes.tensors([row[4:6] for row in rows])
        for index, row in enumerate(rows):
            if row[6] is not None:
                g = g.index_add(0, torch.tensor([index]), from_blobs([row[6]], self.shapes.g))
        looks_twice = connection.execute("SELECT 1 FROM base LIMIT 1").fetchone() is not None
        first, second = directions(g), directions(g_tilde if looks_twice else g_tilde[:0])
        if former is not None:
            kept = [index for index, entry in enumerate(former.entries) if entry.id not in touched]
            entries = [former.entries[index] for index in kept] + entries
            first = torch.cat([former.first[kept], first])
            second = torch.cat([former.second[kept], second]) if looks_twice else second
        order = sorted(range(len(entries)), key=entries.__getitem__)
        entries, first = [entries[index] for index in order], first[order]
        base_classes = sum(not entry.novel for entry in entries)
        if looks_twice:
            second = second[order]
            second[:base_classes] = self._resisting(connection, entries[:base_classes])
        return Snapshot(
            version=version,
            entries=tuple(entries),
            base_classes=base_classes,
            first=first,
            second=second,
            calibrated=_calibrates(connection),
            confidence=Confidence.read(connection),
        )

    def _resisting(self, connection: sqlite3.Connection, base: list[ClassRow]) -> Tensor:
        """Directions of h~ of the base classes for inference (eq. 7)."""
        query = "SELECT g, g_tilde FROM prototypes WHERE class = ?"
        rows = [connection.execute(query, (entry.id,)).fetchone() for entry in base]
        _, prototypes = self.shapes.tensors(rows)
        if not self.gamma:
            return directions(prototypes)
        owners, exact = read_delta(connection, self.shapes)
        place = {entry.id: index for index, entry in enumerate(base)}
        sums = torch.zeros(prototypes.shape, dtype=torch.int64)
        for owner, part in zip(owners, exact, strict=True):
            if owner in place:  # a class merged of several base classes resists for all of them
                sums[place[owner]] += part
        return directions(resist(prototypes, sums, self.gamma))


def _calibrates(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM shifts LIMIT 1").fetchone() is not None
