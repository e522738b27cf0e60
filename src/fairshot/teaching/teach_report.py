"""What teaching did: which classes the new one resembles, and which stored images are reassigned to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairshot.classifiers.similarity import similarity
from fairshot.models.embedder import Features
from fairshot.teaching.event_log import counted_photos
from fairshot.teaching.network import Photo, stacked
from fairshot.teaching.queries import Stored
from fairshot.teaching.snapshot import Snapshot

CLOSEST = 3
FEW = 2  # reassigned images, or mistaken photos, that are not worth a warning whatever their share
MISTAKEN_SHARE = 0.5  # of the photos of a known class; if more were answered with one other, it is warned


@dataclass(frozen=True)
class Reassigned:
    """Stored images that were answered with one class before, and with the class just taught now."""

    name: str  # of the class before
    count: int
    of: int  # all stored images that were answered with that class before
    images: tuple[int, ...]  # ids


@dataclass(frozen=True)
class TeachReport:
    """What teaching some photos did, or would do."""

    name: str
    photos: int  # new ones
    known: int  # photos given that the class had already
    created: bool  # whether the class is new
    warn_share: float  # of the images answered with a class; if more of them are reassigned, it is warned
    dry_run: bool = False
    closest: tuple[tuple[str, float], ...] = ()  # other classes and their similarity, the closest first
    reassigned: tuple[Reassigned, ...] = ()
    stored: int = 0  # stored images of other classes whose answers were compared
    changed: int = 0  # those of them whose answer changed, to whatever class
    mistaken: tuple[tuple[str, int], ...] = ()  # other classes, and photos of a known one answered so before
    skipped: Mapping[str, str] = field(default_factory=dict)  # files that were left out, and why

    @property
    def warnings(self) -> list[str]:
        """One line for each class that the photos may show instead, judged by what they do and by answers."""
        given = self.photos + self.known
        return [
            f"{count} of the {given} photos were answered {name} before: they may show {name} instead"
            for name, count in self.mistaken
            if count > max(FEW, MISTAKEN_SHARE * given)
        ] + [
            f"{self.name} takes {each.count} of the {each.of} stored images that were answered {each.name} "
            f"before ({each.count / each.of:.0%}): its photos may show {each.name} too, or more photos of "
            "both may be needed"
            for each in self.reassigned
            if each.count > max(FEW, self.warn_share * each.of)
        ]

    def sentence(self) -> str:
        """Tell it in one line."""
        if not self.photos:
            known = "the photo was" if self.known == 1 else f"all {self.known} photos were"
            return f"{self.name}: {known} known already; nothing changed"
        told = f"{self.name}: {counted_photos(self.photos)}"
        if self.known:
            told += f" ({self.known} more were known already)"
        if self.closest:
            name, similarity = self.closest[0]
            told += f", closest to {name} ({similarity:.2f})"
        if not self.stored:
            return told
        if not self.reassigned:
            return f"{told}; none of {self.stored:,} images of other classes changes to it"
        total = sum(each.count for each in self.reassigned)
        counts = {
            each.name: f" ({each.count})" if len(self.reassigned) > 1 else "" for each in self.reassigned
        }
        before = ", ".join(name + count for name, count in counts.items())
        change = "changes" if total == 1 else "change"
        return f"{told}; {total} of {self.stored:,} images of other classes {change} to it, from {before}"


def closest_classes(snapshot: Snapshot, class_id: int) -> tuple[tuple[str, float], ...]:
    """Return the classes whose prototypes of h are the most similar to that of one class."""
    own = [row.id for row in snapshot.rows].index(class_id)
    prototypes = snapshot.classifier.prototypes
    similar = similarity(prototypes[own : own + 1], prototypes)[0]
    similar[own] = torch.inf  # the class itself comes first, and is left out
    return tuple(snapshot.most_similar(similar, 1 + CLOSEST)[1:])


def answers(snapshot: Snapshot, features: Features) -> Tensor:
    """Return the ids of the classes that a snapshot answers for images (N,)."""
    ids = torch.tensor([row.id for row in snapshot.rows])
    return ids[snapshot.classifier.decide(features).scores.argmax(1)]


def mistaken_photos(
    snapshot: Snapshot, photos: Sequence[Photo], class_id: int
) -> tuple[tuple[str, int], ...]:
    """Count the photos of a class that a snapshot answers with another class, the most frequent one first."""
    found = answers(snapshot, stacked(photos)).tolist()
    names = {row.id: row.name for row in snapshot.rows}
    return tuple(Counter(names[each] for each in found if each != class_id).most_common())


def reassigned_images(
    before: Tensor, after: Tensor, stored: Stored, class_id: int, names: Mapping[int, str]
) -> tuple[Reassigned, ...]:
    """Find the images that another class was the answer for before, and this class is now."""
    answered = Counter(before.tolist())
    lost: dict[int, list[int]] = {}
    for image, former, present in zip(stored.ids, before.tolist(), after.tolist(), strict=True):
        if present == class_id != former:
            lost.setdefault(former, []).append(image)
    most_first = sorted(lost.items(), key=lambda pair: (-len(pair[1]), names[pair[0]]))
    return tuple(Reassigned(names[each], len(ids), answered[each], tuple(ids)) for each, ids in most_first)
