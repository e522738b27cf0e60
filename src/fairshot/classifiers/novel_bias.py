"""The bias of a gate: what the scores of novel classes by g get, so that more of them are answered.

- `plain`: none, Algorithm 1 as it is;
- `constant`: a constant;
- `unbiased`: the scores are given back what the noise of few shots took from them;
- `left_out`: the constant with which a given share of the shots would be recognised, each by a prototype made
  without it. It follows the features and the classes met so far by itself.

How strong the bias should be is tuned on base classes that play novel ones.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fairshot.classifiers.prototypes import class_sums

Bias = Literal["plain", "constant", "unbiased", "left_out"]


class NovelBias(NamedTuple):
    """By what scores of novel classes are multiplied or, where there is no factor, what is added to them."""

    constant: Tensor | float = 0.0
    factor: Tensor | None = None

    def added_to(self, novel: Tensor) -> Tensor:
        """Return scores of novel classes (N, K) with the bias; several strengths give (S, N, K)."""
        return novel + self.constant if self.factor is None else novel * self.factor


def novel_bias(bias: Bias, strength: Tensor, shots: Tensor, noise: Tensor, margins: Tensor) -> NovelBias:
    """Return the bias of this strength, or of several strengths (S, 1, 1) at once.

    `shots` (K,) are the numbers of shots of the novel classes, `noise` (K, 2) is what the function of that
    name gives, and `margins` (S,) say how far the best base class is ahead of a left-out shot's own class.
    """
    match bias:
        case "plain":
            return NovelBias(torch.zeros_like(strength))
        case "constant":
            return NovelBias(strength)
        case "unbiased":
            return NovelBias(factor=unbiasing(shots, noise_ratio(noise, shots), strength))
        case "left_out":
            return NovelBias(recognising(margins, strength))


def noise(
    features: Tensor, labels: Tensor, classes: range, earlier: tuple[Tensor, Tensor, Tensor] | None = None
) -> Tensor:
    """Variance within each class and squared length of its mean, summed over the views (K, 2).

    `earlier` are the noise (K, 2), means (K, V, d) and counts (K,) of earlier samples of these classes, which
    are pooled with the samples given.
    """
    sums, counts = class_sums(features, labels, classes)
    squares, _ = class_sums(features.double().square().sum((1, 2), keepdim=True), labels, classes)
    squares, changed = squares.flatten(), counts > 0
    if earlier is not None:
        known, means, before = (each.double() for each in earlier)
        squares = known[:, 0] * (before - 1).clamp(min=0) + before * means.square().sum((1, 2)) + squares
        sums, counts = before[:, None, None] * means + sums, before + counts
    length = sums.square().sum((1, 2)) / counts.square().clamp(min=1)
    variance = (squares - counts * length).clamp(min=0) / (counts - 1).clamp(min=1)
    found = torch.stack([variance, length], dim=1)
    return found if earlier is None else torch.where(changed[:, None], found, known)


def noise_ratio(noise: Tensor, shots: Tensor) -> Tensor:
    """How much larger the variance within novel classes is than their squared mean, from `noise` (K, 2).

    Pooled over classes and views, because a few shots say little about one class; a single shot says
    nothing and is passed over. Without any pair of shots the ratio is unknown, and 0 is returned. Sums are in
    float64, where the order of the classes does not show.
    """
    variance, length = noise[shots > 1].double().unbind(1)
    signal = (length - variance / shots[shots > 1].to(length)).sum()
    return torch.where(signal > 0, variance.sum() / signal, 0.0).to(noise.dtype)


def unbiasing(shots: Tensor, ratio: Tensor | float, strength: Tensor | float = 1.0) -> Tensor:
    """Return the factors (K,) that give similarities of novel classes back what few shots took from them.

    The mean of k samples is longer than the true mean, by the variance within the class over k; its cosine
    with any image is smaller by sqrt(1 + ratio / k). `shots` (K,) are the k of the classes. With strength 1
    they answer as if their means were known, as those of base classes nearly are.
    """
    return (1 + ratio / shots.to(torch.float32)).pow(strength / 2)


def recognising(margins: Tensor, share: Tensor) -> Tensor:
    """Return the constant with which that share of the left-out shots is recognised; 0 without shots."""
    if not len(margins):
        return torch.zeros_like(share)
    return margins.quantile(share.flatten()).view_as(share)
