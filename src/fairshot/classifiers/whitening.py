"""Spaces in which features are compared: whitened alike for all classes, or by each class's own covariance.

Both are learnt from the training features of base classes; a novel class borrows from those similar to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch.nn.functional import normalize

from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity

SHARPNESS = 16.0  # with which similarity decides whose metric a novel class borrows
SAME_SHOT = 1e-4  # distance of values of one shot that were computed twice, as a share of their length


def tukey(features: torch.Tensor, power: float) -> torch.Tensor:
    """Tukey's power transformation, which makes features less skewed, then unit length for each view."""
    return normalize(features.sign() * features.abs().pow(power), dim=-1)


@dataclass(frozen=True, eq=False)
class Whitening:
    """A space in which directions that vary within every class count less."""

    power: float
    centre: torch.Tensor  # (V, d)
    matrix: torch.Tensor  # (V, d, d) symmetric

    def transform(self, features: torch.Tensor) -> torch.Tensor:
        """Project features (N, V, d)."""
        return self.transform_tukey(tukey(features, self.power))

    def transform_tukey(self, values: torch.Tensor) -> torch.Tensor:
        """Project features after `tukey`; this is affine, so class means may be taken before."""
        return torch.einsum("nvd,vde->nve", values - self.centre.to(values), self.matrix.to(values))


@dataclass(frozen=True, eq=False)
class WithinClassCovariance:
    """The means of the base classes and the covariance within them: all that whitening learns from."""

    power: float
    means: torch.Tensor  # (B, V, d) of features after `tukey`
    unit: torch.Tensor  # (V, 1, 1) mean variance
    variances: torch.Tensor  # (V, d) along the principal directions, in that unit
    directions: torch.Tensor  # (V, d, d) in columns

    @classmethod
    def fit(
        cls, features: torch.Tensor, labels: torch.Tensor, base_classes: int, power: float
    ) -> WithinClassCovariance:
        """Learn from the training features (N, V, d) of the base classes."""
        values = tukey(features, power)
        means = prototypes(values, labels, range(base_classes))
        residual = values - means[labels]
        covariance = torch.einsum("nvd,nve->vde", residual, residual) / len(residual)
        unit = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp(min=1e-12)
        return cls(power, means, unit, *_eigh(covariance / unit))

    def whitening(self, shrinkage: float) -> Whitening:
        """Shrink the covariance S towards the identity and invert it by half: (S + shrinkage * I) ^ -1/2."""
        scale = (self.variances.clamp(min=0) + shrinkage).clamp(min=1e-6).rsqrt()
        matrix = self.directions * scale[:, None] @ self.directions.mT
        return Whitening(self.power, self.means.mean(0), matrix)


@dataclass(frozen=True, eq=False)
class ShotScatter:
    """The matrix (I + factor * R'R) ^ -1/2 of residuals R (N, d) of a few classes.

    They tell the covariance along N directions alone; all others stay as they are.
    """

    factor: float
    directions: torch.Tensor  # (d, r) in columns
    changes: torch.Tensor  # (r,) of the scale along them

    @classmethod
    def of(cls, residuals: torch.Tensor, weight: float) -> ShotScatter:
        """Take the matrix of some residuals (N, d), whose weight is in units of their mean square."""
        squares = float(residuals.square().sum())
        factor = weight * residuals.shape[1] / squares if squares else 0.0
        values, vectors = torch.linalg.eigh(residuals @ residuals.T)
        some = values > 1e-9 * values[-1].clamp(min=1e-12)
        directions = residuals.T @ (vectors[:, some] / values[some].sqrt())
        return cls(factor, directions, (1 + factor * values[some]).rsqrt() - 1)

    def apply(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply rows (N, d) by the matrix."""
        return rows + rows @ self.directions * self.changes @ self.directions.T


@dataclass(frozen=True, eq=False)
class WhiteningShots:
    """The shots whose scatter within their classes is part of a space, as they are in that space."""

    factors: torch.Tensor  # (V,) of the scatter
    values: torch.Tensor  # (S, V, d)
    labels: torch.Tensor  # (S,)

    @cached_property
    def _inverse_and_counts(self) -> tuple[torch.Tensor, torch.Tensor]:
        _, inverse, counts = torch.unique(self.labels, return_inverse=True, return_counts=True)
        return inverse, counts[inverse]

    @cached_property
    def _residuals(self) -> torch.Tensor:
        rows, _ = self._inverse_and_counts
        return self.values - prototypes(self.values, rows, range(int(rows.max()) + 1))[rows]

    def residuals_of(self, label: int) -> torch.Tensor:
        """Return the residuals (N, V, d) of a class, none perhaps."""
        return self._residuals[self.labels == label]

    def lost_without(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return a vector v (N, V, d) for each shot: without the shot, the scatter is less by v v'.

        It is zero for a shot that is not part of the scatter. Shots are recognised by their values.
        """
        distances = torch.cdist(values.flatten(1), self.values.flatten(1).to(values))
        distances[labels[:, None] != self.labels] = torch.inf
        nearest, rows = distances.min(1)
        inside = nearest < SAME_SHOT * values.flatten(1).norm(dim=1)
        _, counts = self._inverse_and_counts
        scale = (counts / (counts - 1)).sqrt()[:, None, None].to(values)
        lost: torch.Tensor = (scale * self._residuals)[rows] * inside[:, None, None]
        return lost


@dataclass(frozen=True, eq=False)
class ClassCovariances:
    """The covariance of each base class in a whitened space, shrunk as it was for all."""

    variances: torch.Tensor  # (B, V, d) along the principal directions
    directions: torch.Tensor  # (B, V, d, d) in columns

    @classmethod
    def fit(
        cls, features: torch.Tensor, labels: torch.Tensor, covariance: WithinClassCovariance, shrinkage: float
    ) -> ClassCovariances:
        """Learn from the training features (N, V, d); the common covariance is known."""
        matrix = covariance.whitening(shrinkage).matrix
        values = torch.einsum(
            "nvd,vde->nve", tukey(features, covariance.power) - covariance.means[labels], matrix
        )
        own = []
        for label in range(len(covariance.means)):
            residual = values[labels == label]
            own.append(torch.einsum("nvd,nve->vde", residual, residual) / (len(residual) * covariance.unit))
        return cls(*torch.linalg.eigh(torch.stack(own) + shrinkage * matrix @ matrix))

    def _scales(self, share: float) -> torch.Tensor:
        """Invert the covariance along its directions: a share is the class's own, the rest the identity."""
        return 1 / (1 - share + share * self.variances.clamp(min=0))

    def metrics(self, share: float) -> torch.Tensor:
        """Return, for each base class, a metric (B, V, d, d) that knows a share of its own covariance."""
        return self.directions * self._scales(share)[..., None, :] @ self.directions.mT

    def squares(self, values: torch.Tensor, shares: Sequence[float]) -> torch.Tensor:
        """Squared lengths of values (N, V, d) under these metrics, (S, N, B, V) for several shares at once.

        The metrics of one class share their directions, so this takes little longer than for one share.
        """
        scales = torch.stack([self._scales(share) for share in shares], dim=-1)
        by_view = values.transpose(0, 1)
        of_class = zip(self.directions, scales, strict=True)
        found = [(by_view @ directions).square_() @ scale for directions, scale in of_class]
        return torch.stack(found).permute(3, 2, 0, 1).contiguous()


@dataclass(frozen=True, eq=False)
class ClassMetrics:
    """A metric for each class: base classes have their own, a novel class borrows from those like it."""

    base: torch.Tensor  # (B, V, d, d)
    shares: torch.Tensor  # (C, B) of the metrics of base classes in that of each class

    @classmethod
    def of_base(cls, base: torch.Tensor) -> ClassMetrics:
        """Give each base class its own metric alone."""
        return cls(base, torch.eye(len(base), dtype=base.dtype, device=base.device))

    def extended(self, fresh: torch.Tensor, base: torch.Tensor) -> ClassMetrics:
        """Let novel classes (K, V, d) borrow from the base classes (B, V, d) similar to them."""
        shares = (SHARPNESS * similarity(fresh.double(), base.double())).softmax(1).to(self.shares)
        return replace(self, shares=torch.cat([self.shares, shares]))

    def squares(self, values: torch.Tensor) -> torch.Tensor:
        """Squared lengths of values (N, V, d) under the metric of each base class, (N, B, V)."""
        weighted = (torch.einsum("nvd,vde->nve", values, one.to(values)) for one in self.base)
        return torch.stack([(each * values).sum(-1) for each in weighted], dim=1)

    def weighted(self, prototypes: torch.Tensor) -> torch.Tensor:
        """Multiply the prototypes (C, V, d) of all classes by their metrics, in float64.

        There the order of the classes does not show.
        """
        P, shares = prototypes.double(), self.shares.double()
        found = torch.zeros_like(P)
        for metric, share in zip(self.base, shares.T, strict=True):
            some = share.nonzero()[:, 0]  # base classes keep to their own metric
            found[some] += share[some, None, None] * torch.einsum("kvd,vde->kve", P[some], metric.double())
        return found


def _eigh(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues and eigenvectors, computed in float64 where float32 is not enough.

    It is not where there are fewer images than features: nearly all eigenvalues are zero then, and equal.
    """
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = torch.linalg.eigh(matrices.double())
    return values.to(matrices), vectors.to(matrices)
