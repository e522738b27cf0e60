"""Episodes: small tasks of a few classes, drawn from the base session, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairshot.benchmarks.pictures import Ints
from fairshot.errors import UserError


@dataclass(frozen=True)
class Episode:
    """The shape of a task: so many classes, each with support images and then query images."""

    way: int
    shots: int
    queries: int

    @property
    def each(self) -> int:
        """Images of a class."""
        return self.shots + self.queries

    @property
    def images(self) -> int:
        """Images in all."""
        return self.way * self.each

    def check(self, available: int, processes: int) -> None:
        """Refuse episodes of more images than there are, or that processes cannot share evenly."""
        told = f"an episode of {self.way} classes with {self.shots} + {self.queries} images"
        if available < self.images:
            raise UserError(
                f"{told} needs {self.images} training images, but there are {available}; ask for smaller "
                "episodes with method.way, method.shots or method.queries"
            )
        if self.images % processes:
            raise UserError(
                f"{told} has {self.images}, which {processes} processes cannot share evenly; give other "
                "--processes, or another method.way, method.shots or method.queries"
            )

    def order(self, labels: Ints, rng: np.random.Generator) -> Ints:
        """Return images in the order of episodes, as many as fit: class by class, support images first."""
        by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        chosen = []
        for _ in range(len(labels) // self.images):
            for place in rng.choice(len(by_class), self.way, replace=False):
                images = by_class[place]
                chosen.append(rng.choice(images, self.each, replace=len(images) < self.each))
        return np.concatenate(chosen)

    def split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Part features (E * images, d) into support (E, way, shots, d) and queries (E, way, queries, d)."""
        by_class = features.reshape(-1, self.way, self.each, features.shape[1])
        return by_class[:, :, : self.shots], by_class[:, :, self.shots :]
