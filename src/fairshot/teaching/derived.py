"""Derived tables: the rows of taught classes in the classifiers h and h~ and in the gate, and Delta.

Each is a function of the recorded values alone, whatever the order of the events. The rows of a class are
those that `DualClassifier.extend` adds to the classifiers of the base session for its images, in the order of
their fingerprints. Delta sums over all taught classes in whole numbers: a class that leaves leaves no trace.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.prototype_classifier import ResistingPrototypes
from fairshot.classifiers.resistance import accumulate
from fairshot.models.embedder import Features
from fairshot.teaching.database import columns, from_blobs, to_blob
from fairshot.teaching.network import Network, Photo

AT_ONCE = 256  # classes derived together

_IMAGES = """
SELECT g, g_tilde FROM images
WHERE class = ? AND class IN (SELECT id FROM classes WHERE name IS NOT NULL)
AND class NOT IN (SELECT class FROM base) ORDER BY sha256
"""
ImageBlobs = tuple[bytes, bytes | None]  # g, g~
ClassBlobs = tuple[int, bytes, bytes | None, bytes | None, bytes | None]  # columns of `prototypes`


@dataclass(frozen=True)
class Layout:
    """How features of images, and the rows of classes, are kept as blobs."""

    g: tuple[int, int]  # views and width
    g_tilde: tuple[int, int] | None  # none where g~ is g
    gate: dict[str, tuple[int, ...]]  # parts of the row of a class in the gate; none without a gate

    @classmethod
    def of(cls, network: Network, base: DualClassifier) -> Layout:
        """Return the layout of a store."""
        if base.gate is None:
            return cls(network.shape, network.shape_tilde, {})
        gate: dict[str, tuple[int, ...]] = {"gate.prototypes": network.shape, "gate.noise": (2,)}
        if base.gate.metrics is not None:
            gate["gate.metric_shares"] = (base.classes,)
        return cls(network.shape, network.shape_tilde, gate)

    def image_blobs(self, photo: Photo) -> ImageBlobs:
        """Return the features of a photo."""
        return to_blob(photo.g), None if self.g_tilde is None else to_blob(photo.g_tilde)

    def features(self, blobs: Sequence[ImageBlobs]) -> Features:
        """Stack the features of images."""
        g = from_blobs([pair[0] for pair in blobs], self.g)
        tilde = g if self.g_tilde is None else from_blobs([pair[1] or b"" for pair in blobs], self.g_tilde)
        return {"g": g, "g_tilde": tilde}

    def class_blobs(self, extended: DualClassifier, known: int) -> list[ClassBlobs]:
        """Return the rows of the classes after the first `known` ones."""
        tensors = extended.tensors()
        counts = extended.counts[known:].tolist()
        parts = [tensors[name] for name in self.gate]
        margins = tensors.get("gate.margins", torch.empty(0))
        by_class = torch.split(margins, [count if count > 1 else 0 for count in counts] if self.gate else [0])
        rows: list[ClassBlobs] = []
        for index, count in enumerate(counts):
            row = known + index
            gate = own = None
            if self.gate:
                # counted from the end: noise has rows of novel classes alone
                values = [part[row - extended.classes].flatten() for part in parts]
                gate, own = to_blob(torch.cat(values)), to_blob(by_class[index])
            g_tilde = None if self.g_tilde is None else to_blob(extended.h_tilde.means[row])
            rows.append((count, to_blob(extended.h.means[row]), g_tilde, gate, own))
        return rows

    def class_tensors(self, rows: Sequence[ClassBlobs]) -> dict[str, Tensor]:
        """Stack the rows of classes, by the names that they have among the tensors of a classifier."""
        features = self.features([row[1:3] for row in rows])
        counts = torch.tensor([row[0] for row in rows], dtype=torch.int64)
        tensors = {"counts": counts, "h.means": features["g"], "h_tilde.means": features["g_tilde"]}
        if self.gate:
            sizes = [torch.Size(shape).numel() for shape in self.gate.values()]
            gate = torch.split(from_blobs([row[3] or b"" for row in rows], (sum(sizes),)), sizes, dim=1)
            for (name, shape), part in zip(self.gate.items(), gate, strict=True):
                tensors[name] = part.reshape(len(rows), *shape)
            margins = b"".join(row[4] or b"" for row in rows)
            tensors |= {"gate.counts": counts, "gate.margins": from_blobs([margins], (-1,))[0]}
        return tensors


def derive(
    connection: sqlite3.Connection, classes: Iterable[int], base: DualClassifier, layout: Layout
) -> None:
    """Derive the rows of some classes, and Delta, from the images recorded."""
    chosen, h_tilde = sorted(classes), base.h_tilde
    assert isinstance(h_tilde, ResistingPrototypes)
    change = torch.zeros_like(h_tilde.delta)
    for start in range(0, len(chosen), AT_ONCE):
        some = [(class_id,) for class_id in chosen[start : start + AT_ONCE]]
        change -= accumulate(
            torch.zeros_like(change), h_tilde.trained, _stored_means(connection, some, layout)
        )
        connection.executemany("DELETE FROM prototypes WHERE class = ?", some)
        images = {key: connection.execute(_IMAGES, key).fetchall() for key in some}
        images = {key: rows for key, rows in images.items() if rows}
        if not images:
            continue
        labels = [base.classes + index for index, rows in enumerate(images.values()) for _ in rows]
        features = layout.features([row for rows in images.values() for row in rows])
        extended = base.extend(features, torch.tensor(labels))
        assert isinstance(extended.h_tilde, ResistingPrototypes)
        change += extended.h_tilde.delta - h_tilde.delta
        rows = zip(images, layout.class_blobs(extended, base.classes), strict=True)
        connection.executemany(
            f"INSERT INTO prototypes ({columns()['prototypes']}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
            [(*key, *blobs) for key, blobs in rows],
        )
    if bool(change.any()):
        sums = to_blob(read_delta(connection, base) + change)
        connection.execute("UPDATE delta SET sums = ?, checksum = NULL", (sums,))


def derive_all(connection: sqlite3.Connection, base: DualClassifier, layout: Layout) -> None:
    """Derive all rows, and Delta, anew."""
    connection.execute("DELETE FROM prototypes")
    connection.execute("DELETE FROM delta")
    connection.execute("INSERT INTO delta (sums) VALUES (?)", (to_blob(base.tensors()["h_tilde.delta"]),))
    derive(connection, [row[0] for row in connection.execute("SELECT id FROM classes")], base, layout)


def read_delta(connection: sqlite3.Connection, base: DualClassifier) -> Tensor:
    """Return Delta (B, V, d~) of all base classes, in the units of `classifiers.resistance`."""
    (sums,) = connection.execute("SELECT sums FROM delta").fetchone()
    return from_blobs([sums], tuple(base.h_tilde.means.shape), "<i8")[0]


def _stored_means(connection: sqlite3.Connection, classes: Sequence[tuple[int]], layout: Layout) -> Tensor:
    """Return the prototypes of h~ of those classes that have a row."""
    query = "SELECT g, g_tilde FROM prototypes WHERE class = ?"
    rows = [row for key in classes for row in connection.execute(query, key)]
    return layout.features(rows)["g_tilde"]
