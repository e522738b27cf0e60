"""Spaces in which features are compared: whitened alike for all classes, or by each class's own covariance.

Both are learnt from the training features of base classes; a novel class borrows from those similar to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity

SHARPNESS = 16.0  # with which similarity decides whose metric a novel class borrows


def tukey(features: Tensor, power: float) -> Tensor:
    """Tukey's power transformation, which makes features less skewed, then unit length for each view."""
    return normalize(features.sign() * features.abs().pow(power), dim=-1)


@dataclass(frozen=True, eq=False)
class Whitening:
    """A space in which directions that vary within every class count less."""

    power: float
    centre: Tensor  # (V, d)
    matrix: Tensor  # (V, d, d) symmetric

    def transform(self, features: Tensor) -> Tensor:
        """Project features (N, V, d)."""
        return self.transform_tukey(tukey(features, self.power))

    def transform_tukey(self, values: Tensor) -> Tensor:
        """Project features after `tukey`; this is affine, so class means may be taken before."""
        return torch.einsum("nvd,vde->nve", values - self.centre.to(values), self.matrix.to(values))


@dataclass(frozen=True, eq=False)
class WithinClassCovariance:
    """The means of the base classes and the covariance within them: all that whitening learns from."""

    power: float
    means: Tensor  # (B, V, d) of features after `tukey`
    unit: Tensor  # (V, 1, 1) mean variance
    variances: Tensor  # (V, d) along the principal directions, in that unit
    directions: Tensor  # (V, d, d) in columns

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, base_classes: int, power: float) -> WithinClassCovariance:
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
class ClassCovariances:
    """The covariance of each base class in a whitened space, shrunk as it was for all."""

    variances: Tensor  # (B, V, d) along the principal directions
    directions: Tensor  # (B, V, d, d) in columns

    @classmethod
    def fit(
        cls, features: Tensor, labels: Tensor, covariance: WithinClassCovariance, shrinkage: float
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

    def _scales(self, share: float) -> Tensor:
        """Invert the covariance along its directions: a share is the class's own, the rest the identity."""
        return 1 / (1 - share + share * self.variances.clamp(min=0))

    def metrics(self, share: float) -> Tensor:
        """Return, for each base class, a metric (B, V, d, d) that knows a share of its own covariance."""
        return self.directions * self._scales(share)[..., None, :] @ self.directions.mT

    def squares(self, values: Tensor, shares: Sequence[float]) -> Tensor:
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

    base: Tensor  # (B, V, d, d)
    shares: Tensor  # (C, B) of the metrics of base classes in that of each class

    @classmethod
    def of_base(cls, base: Tensor) -> ClassMetrics:
        """Give each base class its own metric alone."""
        return cls(base, torch.eye(len(base), dtype=base.dtype, device=base.device))

    def extended(self, fresh: Tensor, base: Tensor) -> ClassMetrics:
        """Let novel classes (K, V, d) borrow from the base classes (B, V, d) similar to them."""
        shares = (SHARPNESS * similarity(fresh.double(), base.double())).softmax(1).to(self.shares)
        return replace(self, shares=torch.cat([self.shares, shares]))

    def squares(self, values: Tensor) -> Tensor:
        """Squared lengths of values (N, V, d) under the metric of each base class, (N, B, V)."""
        weighted = (torch.einsum("nvd,vde->nve", values, one.to(values)) for one in self.base)
        return torch.stack([(each * values).sum(-1) for each in weighted], dim=1)

    def weighted(self, prototypes: Tensor) -> Tensor:
        """Multiply the prototypes (C, V, d) of all classes by their metrics, in float64.

        There the order of the classes does not show.
        """
        P, shares = prototypes.double(), self.shares.double()
        found = torch.zeros_like(P)
        for metric, share in zip(self.base, shares.T, strict=True):
            some = share.nonzero()[:, 0]  # base classes keep to their own metric
            found[some] += share[some, None, None] * torch.einsum("kvd,vde->kve", P[some], metric.double())
        return found


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors, computed in float64 where float32 is not enough.

    It is not where there are fewer images than features: nearly all eigenvalues are zero then, and equal.
    """
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = torch.linalg.eigh(matrices.double())
    return values.to(matrices), vectors.to(matrices)
