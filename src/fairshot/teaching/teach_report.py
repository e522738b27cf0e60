"""What a new class did: whom it resembles, and whose images it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.models.embedder import Features
from fairshot.teaching.snapshot import Snapshot

CLOSEST = 3
FEW = 2  # images taken from a class that are not worth a warning, whatever their share


@dataclass(frozen=True)
class Stored:
    """Images of a store: their class ids and features."""

    ids: list[int]
    classes: list[int]
    features: Features


@dataclass(frozen=True)
class Reassigned:
    """Images of one class that are now answered with the class just taught."""

    name: str
    count: int
    of: int  # stored images that were answered with that class before
    images: tuple[int, ...]  # the ids of those taken


@dataclass(frozen=True)
class TeachReport:
    """What teaching some photos did, or would do."""

    name: str
    photos: int  # new ones
    known: int  # photos given that the class had already
    created: bool  # whether the class is new
    share: float  # of a class's images; to take more of them is worth a warning
    dry_run: bool = False
    closest: tuple[tuple[str, float], ...] = ()  # other classes and their similarity, the closest first
    taken: tuple[Reassigned, ...] = ()
    stored: int = 0  # images of other classes that were looked at
    changed: int = 0  # those of them whose answer is another now, whatever it is

    @property
    def warnings(self) -> list[str]:
        """One line for each class that would lose more than the set share of its images."""
        return [
            f"{self.name} takes {taken.count} of the {taken.of} stored images that were answered "
            f"{taken.name} before ({taken.count / taken.of:.0%}): its photos may show {taken.name} too, or "
            "more photos of both may be needed"
            for taken in self.taken
            if taken.count > max(FEW, self.share * taken.of)
        ]

    def sentence(self) -> str:
        """Tell it in one line."""
        if not self.photos:
            return f"{self.name}: all {self.known} photos were known already; nothing changed"
        parts = [f"{self.name}: {self.photos} {'photos' if self.photos > 1 else 'photo'}"]
        if self.known:
            parts[0] += f" ({self.known} more were known already)"
        if self.closest:
            name, similarity = self.closest[0]
            parts[0] += f", closest to {name} ({similarity:.2f})"
        if self.stored:
            total = sum(taken.count for taken in self.taken)
            losers = ", ".join(
                taken.name if len(self.taken) == 1 else f"{taken.name} ({taken.count})"
                for taken in self.taken
            )
            parts.append(
                f"takes {total} of {self.stored:,} stored images, answered {losers} before"
                if total
                else f"takes none of {self.stored:,} stored images"
            )
        return "; ".join(parts)


def closest_classes(snapshot: Snapshot, class_id: int) -> tuple[tuple[str, float], ...]:
    """Return the classes whose prototypes of h are the most similar to that of one class."""
    rows = [entry.id for entry in snapshot.entries]
    own = rows.index(class_id)
    views = round(float(snapshot.first[own] @ snapshot.first[own]))  # each view is of length 1
    similar = snapshot.first @ snapshot.first[own] / max(views, 1)
    similar[own] = torch.inf  # the class itself comes first, and is left out
    return tuple(snapshot.most_similar(similar, 1 + CLOSEST)[1:])


def answers(snapshot: Snapshot, stored: Stored) -> Tensor:
    """Return the class ids a snapshot answers for stored images."""
    ids = torch.tensor([entry.id for entry in snapshot.entries])
    return ids[snapshot.scores(stored.features)[0].argmax(1)]


def taken_images(
    before: Tensor, after: Tensor, stored: Stored, class_id: int, names: Mapping[int, str]
) -> tuple[Reassigned, ...]:
    """Find the images that another class answered for before and this class answers for now."""
    answered = Counter(before.tolist())
    lost: dict[int, list[int]] = {}
    for image, loser, winner in zip(stored.ids, before.tolist(), after.tolist(), strict=True):
        if winner == class_id != loser:
            lost.setdefault(loser, []).append(image)
    most_first = sorted(lost.items(), key=lambda pair: (-len(pair[1]), names[pair[0]]))
    return tuple(Reassigned(names[loser], len(ids), answered[loser], tuple(ids)) for loser, ids in most_first)
