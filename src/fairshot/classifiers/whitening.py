"""Spaces in which features are compared: whitened alike for all classes, or by each class's own covariance.

Both are learnt from the training features of base classes; a novel class borrows from those similar to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

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

    shrunk: Tensor  # (V, d, d) what shrinkage adds to each
    roots: Tensor  # (B, V, r, d) each times itself is the covariance of a class, of rank r at most

    @classmethod
    def fit(
        cls, features: Tensor, labels: Tensor, covariance: WithinClassCovariance, shrinkage: float
    ) -> ClassCovariances:
        """Learn from the training features (N, V, d); the common covariance is known."""
        matrix = covariance.whitening(shrinkage).matrix
        residuals = tukey(features, covariance.power) - covariance.means[labels]
        values = torch.einsum("nvd,vde->vne", residuals, matrix) / covariance.unit.sqrt()
        own = [values[:, labels == label] for label in range(len(covariance.means))]
        # With more images than features a triangle says as much.
        roots = [torch.linalg.qr(each / each.shape[1] ** 0.5, mode="r").R.transpose(0, 1) for each in own]
        return cls(shrinkage * matrix @ matrix, pad_sequence(roots, batch_first=True).transpose(1, 2))

    def metrics(self, share: float) -> ClassMetrics:
        """Return the inverse covariances, of which a share is the class's own, the rest the identity.

        A class of few images changes what is common to all by a matrix of their rank (Woodbury).
        """
        identity = torch.eye(self.shrunk.shape[-1]).to(self.shrunk)
        common = torch.linalg.inv((1 - share) * identity + share * self.shrunk)
        roots = share**0.5 * self.roots
        changed = roots @ common
        factor = torch.linalg.cholesky(torch.eye(roots.shape[2]).to(roots) + changed @ roots.mT)
        taken = torch.linalg.solve_triangular(factor, changed, upper=False).contiguous()
        return ClassMetrics.of_base(common.contiguous(), taken)


@dataclass(frozen=True, eq=False)
class ClassMetrics:
    """A metric for each class: base classes have their own, a novel class borrows from those like it."""

    common: Tensor  # (V, d, d) less the product of `roots` with themselves: the metrics of base classes
    roots: Tensor  # (B, V, r, d)
    shares: Tensor  # (C, B) of the metrics of base classes in that of each class

    @classmethod
    def of_base(cls, common: Tensor, roots: Tensor) -> ClassMetrics:
        """Give each base class its own metric alone."""
        return cls(common, roots, torch.eye(len(roots), dtype=roots.dtype, device=roots.device))

    @classmethod
    def of_matrices(cls, metrics: Tensor, shares: Tensor) -> ClassMetrics:
        """Take metrics as whole matrices (B, V, d, d), which files have had."""
        above = 1.01 * metrics.abs().sum(-1).amax()  # every eigenvalue
        common = above * torch.eye(metrics.shape[-1]).to(metrics).expand_as(metrics[0])
        return cls(common.clone(), torch.linalg.cholesky(common - metrics, upper=True), shares)

    def extended(self, fresh: Tensor, base: Tensor) -> ClassMetrics:
        """Let novel classes (K, V, d) borrow from the base classes (B, V, d) similar to them."""
        shares = (SHARPNESS * similarity(fresh.double(), base.double())).softmax(1).to(self.shares)
        return replace(self, shares=torch.cat([self.shares, shares]))

    def squares(self, values: Tensor) -> Tensor:
        """Squared lengths of values (N, V, d) under the metric of each base class, (N, B, V)."""
        views = values.transpose(0, 1)
        common = (views @ self.common.to(values) * views).sum(-1)
        own = [(views @ roots.to(values).mT).square_().sum(-1) for roots in self.roots]
        return (common - torch.stack(own)).permute(2, 0, 1)

    def weighted(self, prototypes: Tensor) -> Tensor:
        """Multiply the prototypes (C, V, d) of all classes by their metrics, in float64.

        There the order of the classes does not show.
        """
        P = prototypes.double().transpose(0, 1)
        weighted = P @ self.common.double()
        for share, roots in zip(self.shares.double().T, self.roots, strict=True):
            some, own = share.nonzero()[:, 0], roots.double()  # one at a time, which bounds memory
            weighted[:, some] -= share[some, None] * (P[:, some] @ own.mT @ own)
        return weighted.transpose(0, 1)


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors, computed in float64 where float32 is not enough.

    It is not where there are fewer images than features: nearly all eigenvalues are zero then, and equal.
    """
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = torch.linalg.eigh(matrices.double())
    return values.to(matrices), vectors.to(matrices)
