"""Trials on held-out images: taught photos left out one at a time, or images never taught."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import torch
from torch import Tensor

from fairshot.classifiers.similarity import directions
from fairshot.models.embedder import Features
from fairshot.teaching.confidence import Confidence, Decisions, Trials
from fairshot.teaching.derived import Shapes
from fairshot.teaching.snapshot import Snapshot

MOST_PHOTOS = 500
MOST_PRODUCTS = 5_000_000  # photos times classes
_PHOTOS = """
SELECT images.class, images.g, images.g_tilde, p.g, p.g_tilde,
  (SELECT count(*) FROM images fellows WHERE fellows.class = images.class)
FROM images JOIN prototypes p ON p.class = images.class
WHERE images.id IN (
  SELECT id FROM images WHERE class IN (SELECT class FROM images GROUP BY class HAVING count(*) > 1)
  AND class IN (SELECT class FROM prototypes WHERE novel) ORDER BY sha256 LIMIT ?
) ORDER BY images.sha256
"""


def trials_of(snapshot: Snapshot, features: Features, names: Sequence[str]) -> Trials:
    """Answer for images that were never taught; those of classes the snapshot does not know are strange.

    Without any of these, every image stands for a strange one too, answered for without its class.
    """
    columns = {name: column for column, name in enumerate(snapshot.names)}
    known = torch.tensor([name in columns for name in names], dtype=torch.bool)
    labels = torch.tensor([columns[name] for name in names if name in columns], dtype=torch.int64)
    first, second = snapshot.looks({key: value[known] for key, value in features.items()})
    scores, look = snapshot.decide(first, second)
    if bool(known.all()):
        strange = _without_own_class(snapshot, first, second, labels)
    else:
        strange = Decisions.of(*snapshot.scores({key: value[~known] for key, value in features.items()}))
    return Trials(Decisions.of(scores, look), scores.argmax(1) == labels, torch.ones(len(labels)), strange)


def leave_one_out(connection: sqlite3.Connection, snapshot: Snapshot, shapes: Shapes) -> Trials:
    """Answer for each taught photo as if it had not been taught, and then as if its class had not been.

    Photos of classes that were not trained, of at least two photos; in a large store a fair sample.
    """
    at_most = min(MOST_PHOTOS, MOST_PRODUCTS // max(len(snapshot.entries), 1))
    rows = connection.execute(_PHOTOS, (at_most,)).fetchall()
    if not rows:
        return Trials(Decisions.none(), torch.zeros(0, dtype=torch.bool), torch.zeros(0), Decisions.none())
    columns = {entry.id: column for column, entry in enumerate(snapshot.entries)}
    labels = torch.tensor([columns[row[0]] for row in rows], dtype=torch.int64)
    counts = torch.tensor([row[5] for row in rows], dtype=torch.float32)
    photos, means = (shapes.tensors([row[start : start + 2] for row in rows]) for start in (1, 3))
    first, second = snapshot.looks({"g": photos[0], "g_tilde": photos[1]})
    for scores, photo, mean in zip((first, second), photos, means, strict=True):
        if len(scores):
            scores[torch.arange(len(rows)), labels] = _similarity_without(photo, mean, counts)
    scores, look = snapshot.decide(first, second)
    strange = _without_own_class(snapshot, first, second, labels)
    return Trials(Decisions.of(scores, look), scores.argmax(1) == labels, torch.ones(len(labels)), strange)


def choose_automatically(connection: sqlite3.Connection, snapshot: Snapshot, shapes: Shapes) -> Confidence:
    """Choose confidence and threshold on the photos a store was taught.

    Not in a store with base classes: taught photos say nothing about images of those, which the second look
    decides, and would have them refused.
    """
    if snapshot.base_classes:
        return Confidence()
    trials = leave_one_out(connection, snapshot, shapes)
    source = f"{len(trials.known)} taught photos, each answered for without itself"
    return Confidence.fit(trials, source, automatic=True)


def _similarity_without(photos: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """Similarity of photos (N, V, d) to the means (N, V, d) of their classes less the photos themselves."""
    size = counts[:, None, None]
    others = (size * means - photos) / (size - 1)
    return (directions(photos) * directions(others)).sum(1) / photos.shape[1]


def _without_own_class(snapshot: Snapshot, first: Tensor, second: Tensor, labels: Tensor) -> Decisions:
    """Answer for images as if their classes were unknown; those of a single class have no other answer."""
    if len(snapshot.entries) < 2:
        return Decisions.none()
    others = first.clone(), second.clone()
    for scores in others:
        if len(scores):
            scores[torch.arange(len(labels)), labels] = -1.0
    return Decisions.of(*snapshot.decide(*others))
