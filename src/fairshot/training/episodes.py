"""Episodes: small N-way K-shot tasks drawn from the base session."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairshot.benchmarks.pictures import Floats, Ints
from fairshot.errors import BadSetting, UnevenEpisode


@dataclass(frozen=True)
class Episode:
    """How large a task is: classes, and support and query images per class."""

    way: int
    shots: int
    queries: int

    @property
    def per_class(self) -> int:
        """Images per class."""
        return self.shots + self.queries

    @property
    def images(self) -> int:
        """Images of all classes."""
        return self.way * self.per_class

    def __str__(self) -> str:
        return f"an episode of {self.way} classes with {self.shots} + {self.queries} images"

    def check(self, available: int, processes: int) -> None:
        """Refuse episodes of more images than there are, or that processes cannot share evenly."""
        if available < self.images:
            raise BadSetting(
                "method.queries",
                self.queries,
                f"{self} needs {self.images} training images, but there are {available}; ask for smaller "
                "episodes with method.way, method.shots or method.queries",
            )
        if self.images % processes:
            raise UnevenEpisode(str(self), self.images, processes)

    def order(self, labels: Ints, rng: np.random.Generator, weights: Floats | None = None) -> Ints:
        """Draw as many episodes as fit and return their images, class by class, support images first.

        Classes are equally likely; of a class, images of larger weight are drawn more often.
        """
        by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        shares = [None if weights is None else weights[own] / weights[own].sum() for own in by_class]
        chosen = []
        for _ in range(len(labels) // self.images):
            for label in rng.choice(len(by_class), self.way, replace=False):
                images = by_class[label]
                again = len(images) < self.per_class
                chosen.append(rng.choice(images, self.per_class, replace=again, p=shares[label]))
        return np.concatenate(chosen)

    def split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Split features (E * images, d) into support (E, way, shots, d) and queries (E, way, queries, d)."""
        by_class = features.reshape(-1, self.way, self.per_class, features.shape[1])
        return by_class[:, :, : self.shots], by_class[:, :, self.shots :]
