"""What follows from the facts of a store: prototypes of h and h~, and Delta.

Each is a function of the facts alone, whatever the order in which they came. A prototype sums the features
of its images in the order of their fingerprints. Delta sums over classes that come and go, so its terms are
whole multiples of 2^-40: such sums are exact, and taking a term back leaves no trace.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.classifiers.calibration import calibrate_labelled
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import delta_of
from fairshot.teaching.database import from_blobs, to_blob

# Of an image: that it counts for the prototype of its class.
TAUGHT = "(SELECT class FROM base WHERE base.id = images.sample_of) IS NOT images.class"


@dataclass(frozen=True)
class Shapes:
    """Views and widths of the features of a store; no shape of g~ where g~ is g."""

    g: tuple[int, int]
    g_tilde: tuple[int, int] | None

    @property
    def specific(self) -> tuple[int, int]:
        """The shape of g~."""
        return self.g_tilde or self.g

    def tensors(self, blobs: list[tuple[bytes, bytes | None]]) -> tuple[Tensor, Tensor]:
        """Stack g and g~ (which is g where there is none)."""
        g = from_blobs([pair[0] for pair in blobs], self.g)
        if self.g_tilde is None:
            return g, g
        return g, from_blobs([pair[1] or b"" for pair in blobs], self.g_tilde)


def derive(connection: sqlite3.Connection, classes: Iterable[int], shapes: Shapes) -> None:
    """Bring prototypes and Delta in line with the facts about some classes."""
    base = _base_prototypes(connection, shapes)
    change = torch.zeros(base.shape, dtype=torch.int64)
    for class_id in sorted(classes):
        former = _novel_prototype(connection, class_id, shapes)
        _renew_prototype(connection, class_id, shapes)
        present = _novel_prototype(connection, class_id, shapes)
        for sign, novel in ((-1, former), (1, present)):
            if novel is not None:
                change += sign * delta_of(base, novel)
    if bool(change.any()):
        _add_to_delta(connection, change, shapes)


def read_delta(connection: sqlite3.Connection, shapes: Shapes) -> tuple[list[int], Tensor]:
    """Return the class of each base prototype and Delta (B, V, d~) in units of 2^-40."""
    rows = connection.execute(
        "SELECT base.class, delta.sums FROM base JOIN delta ON delta.base = base.id ORDER BY base.id"
    ).fetchall()
    return [row[0] for row in rows], from_blobs([row[1] for row in rows], shapes.specific, "<i8")


def class_prototype(base: Tensor, counts: Tensor, features: Tensor) -> Tensor:
    """Mean (V, d) of base prototypes (n, V, d), each of `counts` images, and further features (K, V, d)."""
    nothing = torch.zeros(len(features), dtype=torch.int64)
    if not len(base):
        return prototypes(features, nothing, [0])[0]
    start, total = base[:1], counts[:1]
    if len(base) > 1:
        total = counts.sum(0, keepdim=True)
        start = (base * (counts / total)[:, None, None]).sum(0, keepdim=True)
    return calibrate_labelled(start, total, features, nothing)[0][0]


def _renew_prototype(connection: sqlite3.Connection, class_id: int, shapes: Shapes) -> None:
    connection.execute("DELETE FROM prototypes WHERE class = ?", (class_id,))
    named = connection.execute("SELECT 1 FROM classes WHERE id = ? AND name IS NOT NULL", (class_id,))
    if named.fetchone() is None:
        return
    base = connection.execute(
        "SELECT g, g_tilde, count FROM base WHERE class = ? ORDER BY id", (class_id,)
    ).fetchall()
    taught = connection.execute(
        f"SELECT g, g_tilde FROM images WHERE class = ? AND {TAUGHT} ORDER BY sha256", (class_id,)
    ).fetchall()
    counts = torch.tensor([row[2] for row in base], dtype=torch.int64)
    starts, features = shapes.tensors([row[:2] for row in base]), shapes.tensors(taught)
    g, g_tilde = (class_prototype(*pair) for pair in zip(starts, (counts, counts), features, strict=True))
    blobs = (to_blob(g), None if shapes.g_tilde is None else to_blob(g_tilde))
    connection.execute("INSERT INTO prototypes VALUES (?, ?, ?, ?)", (class_id, not base, *blobs))


def _novel_prototype(connection: sqlite3.Connection, class_id: int, shapes: Shapes) -> Tensor | None:
    """Return the prototype of h~ of a class that came after the base session, as it is stored now."""
    row = connection.execute(
        "SELECT g, g_tilde FROM prototypes WHERE class = ? AND novel", (class_id,)
    ).fetchone()
    return None if row is None else shapes.tensors([row])[1][0]


def _base_prototypes(connection: sqlite3.Connection, shapes: Shapes) -> Tensor:
    rows = connection.execute("SELECT g, g_tilde FROM base ORDER BY id").fetchall()
    return shapes.tensors(rows)[1]


def _add_to_delta(connection: sqlite3.Connection, change: Tensor, shapes: Shapes) -> None:
    _, sums = read_delta(connection, shapes)
    ids = connection.execute("SELECT id FROM base ORDER BY id").fetchall()
    rows = [(to_blob(row), id_) for row, (id_,) in zip(sums + change, ids, strict=True)]
    connection.executemany("UPDATE delta SET sums = ? WHERE base = ?", rows)
