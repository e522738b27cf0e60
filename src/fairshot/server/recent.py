"""Pictures asked lately, kept in memory so that a person can say what they show.

Those are prepared pictures, no files; a bounded number, of bounded size together, and none after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import torch

from fairshot.benchmarks.pictures import Bytes
from fairshot.models.embedder import Features
from fairshot.server.errors import Refused
from fairshot.teaching.photos import thumbnail
from fairshot.teaching.store import Prediction, Store

ID_LENGTH = 32  # hexadecimal digits of the fingerprint of a picture


@dataclass(frozen=True, eq=False)
class AskedPicture:
    """A picture that was asked, and its features, by which it can be answered again."""

    sha256: bytes  # its fingerprint
    picture: Bytes
    features: Features  # (1, V, d) each
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @cached_property
    def id(self) -> str:
        """The name it has in requests and responses."""
        return self.sha256.hex()[:ID_LENGTH]

    @cached_property
    def thumbnail(self) -> bytes:
        """A small version of it."""
        return thumbnail(self.picture)


@dataclass(frozen=True)
class Unsure:
    """A picture asked lately, and what the store answers for it now."""

    asked: AskedPicture
    prediction: Prediction

    @property
    def doubt(self) -> float:
        """Return the probability that the answer is wrong."""
        return 1 - self.prediction.confidence


class RecentPictures:
    """The pictures asked last; of the same pixels, one."""

    def __init__(self, most_pictures: int, most_bytes: int) -> None:
        self._most_pictures, self._most_bytes = most_pictures, most_bytes
        self._kept: dict[str, AskedPicture] = {}  # the oldest first

    def add(self, asked: AskedPicture) -> None:
        """Keep a picture; the oldest ones give way."""
        self.remove([asked.id])
        self._kept[asked.id] = asked
        while len(self._kept) > self._most_pictures or self._all_bytes() > self._most_bytes:
            self.remove([next(iter(self._kept))])

    def _all_bytes(self) -> int:
        return sum(each.picture.nbytes for each in self._kept.values())

    def remove(self, ids: Sequence[str]) -> None:
        """Keep some pictures no longer; it is no error that they are gone already."""
        for each in ids:
            self._kept.pop(each, None)

    def take(self, ids: Sequence[str]) -> list[AskedPicture]:
        """Return pictures by their ids."""
        if any(each not in self._kept for each in ids):
            raise Refused(422, "one of the pictures is not kept any more; ask it again, or teach its file")
        return [self._kept[each] for each in dict.fromkeys(ids)]

    def all(self) -> list[AskedPicture]:
        """Return all pictures, the latest first."""
        return list(reversed(self._kept.values()))

    def __contains__(self, each: str) -> bool:
        return each in self._kept


def by_doubt(store: Store, pictures: Sequence[AskedPicture], top: int) -> list[Unsure]:
    """Answer for pictures as the store is now, the most doubtful first; none while it knows no class.

    Pictures that belong to a class are left out for as long as they do: an undo brings them back.
    """
    pictures = [each for each in pictures if store.class_of_photo(each.sha256) is None]
    if not pictures or not store.snapshot().rows:
        return []
    features = {kind: torch.cat([each.features[kind] for each in pictures]) for kind in ("g", "g_tilde")}
    answered = [Unsure(*pair) for pair in zip(pictures, store.predict(features, top), strict=True)]
    return sorted(answered, key=lambda each: -each.doubt)
