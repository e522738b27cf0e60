"""Stream: a base session with many images a class, then small sessions with a few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairshot.benchmarks.pictures import Ints, Pictures


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures and their class ids, which count in the order the stream introduces the classes."""

    pictures: Pictures
    labels: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: npt.ArrayLike) -> LabelledPictures:
        """Select some of them, in the order given."""
        index = np.asarray(indices, dtype=np.int64)
        return LabelledPictures(self.pictures.take(index), self.labels[index])


@dataclass(frozen=True)
class Session:
    """What arrives at once: the training images of some new classes, and their test images."""

    classes: tuple[int, ...]
    train: LabelledPictures
    test: LabelledPictures


@dataclass(frozen=True)
class Stream:
    """A benchmark as a learner meets it: session 0 is the base session."""

    benchmark: str
    class_names: tuple[str, ...]  # by class id
    sessions: tuple[Session, ...]

    @property
    def base(self) -> Session:
        """The base session."""
        return self.sessions[0]

    @property
    def base_classes(self) -> int:
        """How many classes the base session has; their ids are 0 .. base_classes - 1."""
        return len(self.base.classes)

    def seen_classes(self, session: int) -> int:
        """How many classes have appeared up to and including a session."""
        return sum(len(past.classes) for past in self.sessions[: session + 1])
