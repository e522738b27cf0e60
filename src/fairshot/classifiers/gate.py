"""The gate: whether the first look (Algorithm 1) answers a novel class or sends an image to a second look.

In the paper Resistance alone works against the bias towards base classes, in the second look. These rules act
in the first: a constant in favour of novel classes, a space in which features are compared more fairly, and
two corrections for each class of its own. What a rule learns, it learns from base training features and from
the shots of the novel classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import normalize

from fairshot.classifiers.prototypes import class_sums, prototypes
from fairshot.classifiers.similarity import similarity, view_similarity


def favour(first: torch.Tensor, base_classes: int, offset: torch.Tensor | float) -> torch.Tensor:
    """Add a constant, or an offset for each novel class (K,), to the similarities of the novel classes."""
    return torch.cat([first[:, :base_classes], first[:, base_classes:] + offset], dim=1)


# --- whitened features


@dataclass(frozen=True)
class Whitening:
    """A space in which directions that vary within every class count less."""

    centre: torch.Tensor  # (V, d)
    matrix: torch.Tensor  # (V, d, d) symmetric
    power: float

    def transform(self, features: torch.Tensor) -> torch.Tensor:
        """Take features (N, V, d) there; prototypes are then means of transformed features."""
        return torch.einsum("nvd,vde->nve", tempered(features, self.power) - self.centre, self.matrix)


def tempered(features: torch.Tensor, power: float) -> torch.Tensor:
    """Raise features to a power, which tames the few large ones, and give each view unit length."""
    return normalize(features.sign() * features.abs().pow(power), dim=-1)


def fit_whitening(
    features: torch.Tensor, labels: torch.Tensor, base_classes: int, power: float, shrinkage: float
) -> Whitening:
    """Learn the space from the training features (N, V, d) of the base classes.

    The covariance within classes is shrunk by `shrinkage` times its mean variance on the diagonal, and
    inverted by half: W = (S + shrinkage * tr(S) / d * I) ^ -1/2.
    """
    values = tempered(features, power)
    means = prototypes(values, labels, range(base_classes))
    residual = values - means[labels]
    covariance = torch.einsum("nvd,nve->vde", residual, residual) / len(residual)
    variance = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp(min=1e-12)
    identity = torch.eye(covariance.shape[-1], dtype=values.dtype, device=values.device)
    eigenvalues, vectors = torch.linalg.eigh(covariance / variance + shrinkage * identity)
    matrix = vectors * eigenvalues.clamp(min=1e-6).rsqrt()[:, None] @ vectors.mT
    return Whitening(means.mean(0), matrix, power)


# --- the noise of few shots


def shot_noise(features: torch.Tensor, labels: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """Estimate how much of the squared length of each prototype is noise of its few shots: (C, V).

    The mean of k samples is longer than the true mean by their total variance over k, and its cosine with
    any image smaller by as much. A class of one shot is given the noise of the others' single shots.
    """
    sums, counts = class_sums(features, labels, classes)
    squares, _ = class_sums(features.square().sum(-1, keepdim=True), labels, classes)
    k = counts[:, None]
    length = (sums / k[..., None]).square().sum(-1)
    variance = (squares[..., 0] - k * length).clamp(min=0) / (k - 1).clamp(min=1)
    measured = counts > 1
    if measured.any():
        typical = (variance[measured] / length[measured].clamp(min=1e-12)).mean(0)
        variance = torch.where(measured[:, None], variance, typical / (1 + typical) * length)
    return variance / k


def unbiased_similarity(
    features: torch.Tensor, prototypes: torch.Tensor, noise: torch.Tensor, strength: float = 1.0
) -> torch.Tensor:
    """Eq. 2 with each prototype's cosine corrected for the noise of its shots (C, V): (N, C).

    With strength 1 a novel class of five shots answers as if its mean were known; base classes, of hundreds
    of images, hardly change.
    """
    length = prototypes.square().sum(-1)
    true_share = 1 - (noise / length.clamp(min=1e-12)).clamp(max=0.9)
    return (view_similarity(features, prototypes) * true_share.pow(-0.5 * strength)).mean(-1)


# --- offsets learnt from pseudo-incremental episodes


@dataclass(frozen=True)
class ClassOffsets:
    """What a novel class needs added, predicted from how close it lies to its nearest base class."""

    intercept: torch.Tensor  # ()
    slope: torch.Tensor  # ()

    def predict(self, novel: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        """Offset of each novel prototype (K, V, d), given those of the base classes (B, V, d): (K,)."""
        return self.intercept + self.slope * similarity(novel, base).amax(1)


def fit_class_offsets(
    features: torch.Tensor, labels: torch.Tensor, base_classes: int, shots: int, recall: float
) -> ClassOffsets:
    """Let every base class play a novel one, with the first `shots` of its training images.

    Its offset in that episode is what lets it win `recall` of its other images against all other base
    classes, which keep their full prototypes. A line is fitted through the offsets over the similarity of
    the class to the nearest of the others, by least squares.
    """
    P = prototypes(features, labels, range(base_classes))
    order = labels.argsort(stable=True)
    counts = labels.bincount(minlength=base_classes)
    rank = torch.empty_like(labels)
    start = counts.cumsum(0) - counts
    rank[order] = torch.arange(len(labels), device=labels.device) - start[labels[order]]
    shot = rank < shots
    novel = prototypes(features[shot], labels[shot], range(base_classes))
    queries, owner = features[~shot], labels[~shot]
    own = similarity(queries, novel).gather(1, owner[:, None])[:, 0]
    others = similarity(queries, P).scatter(1, owner[:, None], -torch.inf).amax(1)
    needed = _quantile_by_class(others - own, owner, base_classes, recall)
    nearest = similarity(novel, P).fill_diagonal_(-torch.inf).amax(1)
    slope = ((nearest - nearest.mean()) * (needed - needed.mean())).sum() / (
        (nearest - nearest.mean()).square().sum().clamp(min=1e-12)
    )
    return ClassOffsets(needed.mean() - slope * nearest.mean(), slope)


def _quantile_by_class(values: torch.Tensor, labels: torch.Tensor, classes: int, q: float) -> torch.Tensor:
    """Quantile of the values of each class (C,); the nearest of the values."""
    by_value = values.argsort(stable=True)
    order = by_value[labels[by_value].argsort(stable=True)]
    counts = labels.bincount(minlength=classes)
    if (counts == 0).any():
        raise ValueError("an episode needs more images of every class than its shots")
    start = counts.cumsum(0) - counts
    return values[order[start + (q * (counts - 1)).round().long()]]
