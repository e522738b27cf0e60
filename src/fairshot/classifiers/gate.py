"""The gate: whether the first look (Algorithm 1) answers a novel class or sends an image to a second look.

In the paper Resistance alone works against the bias towards base classes, in the second look. These rules act
in the first: a constant in favour of novel classes (`favour`), a space in which features are compared more
fairly (`Whitening`), and a correction for what few shots take from a cosine (`unbias`). How strong the
constant or the correction should be is tuned on base classes that play novel ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import normalize

from fairshot.classifiers.prototypes import class_sums, prototypes


def favour(first: torch.Tensor, base_classes: int, constant: float) -> torch.Tensor:
    """Add a constant to the similarities (N, C) of the novel classes."""
    return torch.cat([first[:, :base_classes], first[:, base_classes:] + constant], dim=1)


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

    The covariance S within classes, in units of its mean variance, is shrunk towards the identity and
    inverted by half: W = (S + shrinkage * I) ^ -1/2.
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


def noise_ratio(features: torch.Tensor, labels: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """How much larger the variance within novel classes is than their squared mean, from their shots.

    Pooled over classes and views, because a few shots say little about one class; a single shot says
    nothing and is passed over. Without any pair of shots the ratio is unknown, and 0 is returned.
    """
    sums, counts = class_sums(features, labels, classes)
    squares, _ = class_sums(features.square().sum(-1, keepdim=True), labels, classes)
    k = counts[:, None]
    length = sums.square().sum(-1) / k.square().clamp(min=1)
    variance = (squares[..., 0] - k * length).clamp(min=0) / (k - 1).clamp(min=1)
    told = (k > 1).expand_as(length)
    signal = (length - variance / k.clamp(min=1))[told].sum()
    return variance.sum() / signal if signal > 0 else torch.zeros_like(signal)


def unbias(
    first: torch.Tensor,
    base_classes: int,
    shots: torch.Tensor,
    ratio: torch.Tensor | float,
    strength: float = 1.0,
) -> torch.Tensor:
    """Give the similarities (N, C) of novel classes back what the noise of few shots took from them.

    The mean of k samples is longer than the true mean, by the variance within the class over k; its cosine
    with any image is smaller by sqrt(1 + ratio / k). `shots` (C - base_classes,) are the k of the novel
    classes. With strength 1 they answer as if their means were known, as those of base classes nearly are.
    """
    gain = (1 + ratio / shots.to(first)).pow(strength / 2)
    return torch.cat([first[:, :base_classes], first[:, base_classes:] * gain], dim=1)
