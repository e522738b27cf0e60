"""The covariance within classes of a few shots, which may whiten a space besides that of base classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairshot.classifiers.prototypes import prototypes

SAME_SHOT = 1e-4  # distance of values of one shot that were computed twice, as a share of their length


@dataclass(frozen=True, eq=False)
class ShotScatter:
    """The matrix (I + factor * R'R) ^ -1/2 of residuals R (N, d) of a few classes.

    They tell the covariance along N directions alone; all others stay as they are.
    """

    factor: float
    directions: Tensor  # (d, r) in columns
    changes: Tensor  # (r,) of the scale along them

    @classmethod
    def of(cls, residuals: Tensor, weight: float) -> ShotScatter:
        """Take the matrix of some residuals (N, d), whose weight is in units of their mean square."""
        squares = float(residuals.square().sum())
        factor = weight * residuals.shape[1] / squares if squares else 0.0
        values, vectors = torch.linalg.eigh(residuals @ residuals.T)
        some = values > 1e-9 * values[-1].clamp(min=1e-12)
        directions = residuals.T @ (vectors[:, some] / values[some].sqrt())
        return cls(factor, directions, (1 + factor * values[some]).rsqrt() - 1)

    def apply(self, rows: Tensor) -> Tensor:
        """Multiply rows (N, d) by the matrix."""
        return rows + rows @ self.directions * self.changes @ self.directions.T


@dataclass(frozen=True, eq=False)
class WhiteningShots:
    """The shots whose scatter within their classes is part of a space, as they are in that space."""

    factors: Tensor  # (V,) of the scatter
    values: Tensor  # (S, V, d)
    labels: Tensor  # (S,)

    @cached_property
    def _inverse_and_counts(self) -> tuple[Tensor, Tensor]:
        _, inverse, counts = torch.unique(self.labels, return_inverse=True, return_counts=True)
        return inverse, counts[inverse]

    @cached_property
    def _residuals(self) -> Tensor:
        rows, _ = self._inverse_and_counts
        return self.values - prototypes(self.values, rows, range(int(rows.max()) + 1))[rows]

    def residuals_of(self, label: int) -> Tensor:
        """Return the residuals (N, V, d) of a class, none perhaps."""
        return self._residuals[self.labels == label]

    def lost_without(self, values: Tensor, labels: Tensor) -> Tensor:
        """Return a vector v (N, V, d) for each shot: without the shot, the scatter is less by v v'.

        It is zero for a shot that is not part of the scatter. Shots are recognised by their values.
        """
        distances = torch.cdist(values.flatten(1), self.values.flatten(1).to(values))
        distances[labels[:, None] != self.labels] = torch.inf
        nearest, rows = distances.min(1)
        inside = nearest < SAME_SHOT * values.flatten(1).norm(dim=1)
        _, counts = self._inverse_and_counts
        scale = (counts / (counts - 1)).sqrt()[:, None, None].to(values)
        lost: Tensor = (scale * self._residuals)[rows] * inside[:, None, None]
        return lost
