"""Whether the photos of a class are enough: its accuracy at 1, 2, ... of them, on photos left out.

For a taught class of n photos and k = 1 ... n - 1, each photo is answered once as if its class had been made
of the k photos that follow it, in the order of their fingerprints and beginning again after the last one. All
other classes are as the store has them, and so are Resistance and the bias of a gate; where photos whiten the
space, it is that without the photos of the class. The accuracy at k photos is the share of the n photos that
are answered with their class. Of a class with more than `SHOTS_PER_CLASS` photos, those with the smallest
fingerprints are taken. Nothing is extrapolated: what all n photos give is not known, only what n - 1 give.

The other classes keep all their photos, so that a class is judged at a disadvantage: the mean of fewer photos
is longer, by their noise, and its cosine with any photo smaller.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.left_out import few_shot_scores
from fairshot.models.embedder import Features
from fairshot.teaching.derived import Layout
from fairshot.teaching.event_log import counted_photos
from fairshot.teaching.queries import Stored
from fairshot.teaching.snapshot import Snapshot, labels_of

SHOTS_PER_CLASS = 12
MOST_SCORES = 20_000_000  # of those photos, over all classes
AT_ONCE = 256  # photos answered together, unless a class has more
GOOD = 0.9  # accuracy from which a class does well
FEW = 5  # photos, below which a good accuracy may be chance

Verdict = Literal["more", "others", "enough"]


@dataclass(frozen=True)
class ClassCurve:
    """The accuracy of a taught class by the number of photos it is made of."""

    name: str
    photos: int  # taught
    accuracy: tuple[float, ...]  # at 1, 2, ... photos; empty for a class of one photo
    mistaken: tuple[tuple[str, int], ...]  # wrong answers at the most photos, the most frequent first

    @property
    def verdict(self) -> Verdict:
        """Say whether it needs more photos, other photos, or has enough."""
        if self.photos < 2:
            return "more"
        best = self.accuracy[-1]
        if best >= GOOD:
            return "enough" if self.photos >= FEW else "more"
        rising = best > self.accuracy[(len(self.accuracy) - 1) // 2]
        return "more" if rising or self.photos < FEW else "others"

    def advice(self) -> str:
        """Tell in one sentence what helps this class."""
        if self.photos < 2:
            return f"One photo cannot be judged; give about {FEW - 1} more."
        right = f"{self.accuracy[-1]:.0%} right when taught from {counted_photos(len(self.accuracy))}"
        wrong = f", else mostly {self.mistaken[0][0]}" if self.mistaken else ""
        match self.verdict:
            case "enough":
                return f"Enough: {right}."
            case "more" if self.photos < FEW:
                return f"{right}{wrong}; {self.photos} are few, give more."
            case "more":
                return f"{right}{wrong}, and rising; give more."
        return f"{right}{wrong}, and not rising; give clearer or more varied photos."


def read_shots(connection: sqlite3.Connection, layout: Layout, classes: int) -> Stored:
    """Read the photos of taught classes that curves are made of, one class after another.

    If the store has very many classes, those with the fewest photos are taken.
    """
    rows: list[tuple[int, int, bytes, bytes | None]] = []
    query = "SELECT id, class, g, g_tilde FROM images WHERE class = ? ORDER BY sha256 LIMIT ?"
    for (class_id,) in connection.execute("SELECT class FROM prototypes ORDER BY count, class").fetchall():
        found = connection.execute(query, (class_id, SHOTS_PER_CLASS)).fetchall()
        if (len(rows) + len(found)) * classes > MOST_SCORES:
            break
        rows += found
    return Stored.of(rows, layout)


def learning_curves(snapshot: Snapshot, shots: Stored) -> Iterator[list[ClassCurve]]:
    """Give the curves of the classes that photos are given of, one class after another, some at a time."""
    labels = labels_of(shots, snapshot.rows)
    for rows in _chunks(shots.classes):
        photos = {key: some[rows] for key, some in shots.features.items()}
        yield list(_curves(snapshot, photos, labels[rows]))


def worst_first(curves: Iterable[ClassCurve]) -> list[ClassCurve]:
    """Sort curves by their last accuracy; a class of one photo, which has none, is the worst."""
    return sorted(curves, key=lambda curve: (curve.accuracy[-1:], curve.photos, curve.name))


def _chunks(classes: Sequence[int]) -> Iterator[slice]:
    """Cut a row of photos between classes, so that each part has about `AT_ONCE`."""
    start = 0
    for position in range(1, len(classes) + 1):
        ends = position == len(classes) or classes[position] != classes[position - 1]
        if ends and (position - start >= AT_ONCE or position == len(classes)):
            yield slice(start, position)
            start = position


def _curves(snapshot: Snapshot, photos: Features, labels: Tensor) -> Iterator[ClassCurve]:
    answers, names = _answers(snapshot.classifier, photos, labels), snapshot.names
    for column in torch.unique_consecutive(labels).tolist():
        own = answers[:, labels == column]
        own = own[: own.shape[1] - 1]  # one photo is answered, the others teach
        wrong = Counter(names[each] for each in own[-1:].flatten().tolist() if each != column)
        yield ClassCurve(
            names[column],
            int(snapshot.classifier.counts[column]),
            tuple((own == column).double().mean(1).tolist()),
            tuple(wrong.most_common()),
        )


def _answers(classifier: DualClassifier, photos: Features, labels: Tensor) -> Tensor:
    """Answer for each photo with its class made of the k photos after it, for k = 1, 2, ...: (K, N).

    The rows of a class of n photos are of use up to k = n - 1; after that it would answer for itself.
    """
    _, inverse, sizes = torch.unique_consecutive(labels, return_inverse=True, return_counts=True)
    size, first = sizes[inverse], (sizes.cumsum(0) - sizes)[inverse]
    position = torch.arange(len(labels)) - first
    steps = range(1, int(sizes.max()))
    following = [(position[:, None] + torch.arange(1, k + 1)) % size[:, None] for k in steps]
    others = [first[:, None] + each for each in following]
    answers = [
        classifier.combine(*scores).scores.argmax(1)
        for scores in few_shot_scores(classifier, photos, labels, others)
    ]
    return torch.stack(answers) if answers else torch.empty(0, len(labels), dtype=torch.int64)
