"""The gate: whether the first look (Algorithm 1) answers a novel class or sends an image to a second look.

In the paper Resistance alone works against the bias towards base classes, in the second look. The gate works
in the first, by two choices. How features are compared: by their cosine as they are, whitened by the
covariance within base classes, or with a share of each class's own covariance besides (`whitening`). And how
novel classes are favoured (`favoured`):

- `plain`: not at all, Algorithm 1 as it is;
- `constant`: a constant is added to their similarities;
- `unbiased`: their similarities are given back what the noise of few shots took from them;
- `left_out`: a constant is added with which a given share of the shots would be recognised, each by a
  prototype made without it. It follows the features and the classes met so far by itself.

How strong a rule should be is tuned on base classes that play novel ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch

from fairshot.classifiers.calibration import calibrate_labelled, moved
from fairshot.classifiers.prototypes import class_sums, prototypes
from fairshot.classifiers.similarity import similarity
from fairshot.classifiers.whitening import OwnMetrics, Spread, Whitening

Rule = Literal["plain", "constant", "unbiased", "left_out"]


@dataclass(frozen=True)
class Projected:
    """Images as the first look sees them."""

    values: torch.Tensor  # (N, V, d) in the space of comparison
    squares: torch.Tensor | None = None  # (N, B, V) of their lengths under base classes' own metrics, if any

    def take(self, rows: torch.Tensor) -> Projected:
        """Return some of the images."""
        return Projected(self.values[rows], None if self.squares is None else self.squares[rows])


@dataclass(frozen=True)
class TransferableClassifier:
    """The classifiers h in the space where they compare, and what shots tell about novel classes there."""

    base_classes: int
    space: Whitening | None  # None: features are compared as they are
    metrics: OwnMetrics | None  # of each class in the whitened space, if they have their own
    prototypes: torch.Tensor  # (C, V, d) in that space
    counts: torch.Tensor  # (C,) images behind each prototype
    noise: torch.Tensor  # (C - base_classes, 2) of each novel class: variance, squared length of its mean
    margins: torch.Tensor  # (S,) what the best base class has ahead of the own one, for each left-out shot

    @classmethod
    def begin(
        cls,
        base: torch.Tensor,
        counts: torch.Tensor,
        space: Whitening | None = None,
        metrics: OwnMetrics | None = None,
    ) -> TransferableClassifier:
        """Know the base classes, by their prototypes (B, V, d) in the space of comparison."""
        base, counts = base.clone(), counts.clone()  # a file of tensors refuses those that share memory
        return cls(len(base), space, metrics, base, counts, base.new_empty(0, 2), base.new_empty(0))

    @classmethod
    def whitened(
        cls, spread: Spread, counts: torch.Tensor, shrinkage: float, own: torch.Tensor | None = None
    ) -> TransferableClassifier:
        """Know the base classes in the space that whitens their spread, with metrics of their own or none."""
        whitening = spread.whitening(shrinkage)
        metrics = None if own is None else OwnMetrics.of_base(own)
        return cls.begin(whitening.transform_tempered(spread.means), counts, whitening, metrics)

    @classmethod
    def from_tensors(
        cls, base_classes: int, tensors: Mapping[str, torch.Tensor], power: float
    ) -> TransferableClassifier:
        """Return what `tensors` was taken from; the power is a setting."""
        own = dict(tensors)
        space = Whitening(power, own.pop("centre"), own.pop("matrix")) if "matrix" in own else None
        metrics = OwnMetrics(own.pop("metrics"), own.pop("metric_shares")) if "metrics" in own else None
        return cls(base_classes, space, metrics, **own)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in ("prototypes", "counts", "noise", "margins")}
        if self.metrics is not None:
            learnt |= {"metrics": self.metrics.base, "metric_shares": self.metrics.shares}
        if self.space is not None:
            learnt |= {"centre": self.space.centre, "matrix": self.space.matrix}
        return learnt

    def values(self, features: torch.Tensor) -> torch.Tensor:
        """Take features g (N, V, d) into the space of comparison."""
        return features if self.space is None else self.space.transform(features)

    def see(self, features: torch.Tensor) -> Projected:
        """Look at images by their features g (N, V, d)."""
        values = self.values(features)
        return Projected(values, None if self.metrics is None else self.metrics.squares(values))

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the similarity of features g (N, V, d) to each class (N, C), nobody favoured."""
        return self.similarity(self.see(features), range(len(self.prototypes)))

    def similarity(self, seen: Projected, classes: range) -> torch.Tensor:
        """Return the similarity of images to some classes that follow each other (N, K), nobody favoured."""
        if self.metrics is None:
            return similarity(seen.values, self.prototypes[classes.start : classes.stop])
        return cosine(*self._products(seen, classes))

    def _products(self, seen: Projected, classes: range) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Products x x, x p (N, K, V), p p (1, K, V) of images and prototypes, under each class's metric."""
        values, P = seen.values, self.prototypes[classes.start : classes.stop]
        if self.metrics is None:
            turned, squares = P, values.square().sum(-1)[:, None].expand(-1, len(P), -1)
        else:
            assert seen.squares is not None  # seen by a look with metrics
            turned = self.metrics.turned(P, classes)
            shares = self.metrics.shares[classes.start : classes.stop]
            squares = torch.einsum("nbv,kb->nkv", seen.squares, shares)
        return squares, torch.einsum("nvd,kvd->nkv", values, turned), (P * turned).sum(-1)[None]

    def extended(self, shots: Projected, labels: torch.Tensor, classes: range) -> TransferableClassifier:
        """Learn new classes, the next in line, from shots; shots of known classes refine their prototypes."""
        known = labels < len(self.prototypes)
        values = shots.values[known]
        refined, counts = calibrate_labelled(self.prototypes, self.counts, values, labels[known])
        look = replace(self, prototypes=refined, counts=counts)
        return look._with_new(shots.take(~known), labels[~known], classes) if classes else look

    def _with_new(self, shots: Projected, labels: torch.Tensor, classes: range) -> TransferableClassifier:
        fresh, metrics = prototypes(shots.values, labels, classes), self.metrics
        if metrics is not None:
            metrics = metrics.extended(fresh, self.prototypes[: self.base_classes])
        extended = replace(
            self,
            metrics=metrics,
            prototypes=torch.cat([self.prototypes, fresh]),
            counts=torch.cat([self.counts, labels.bincount()[classes.start :]]),
            noise=torch.cat([self.noise, noise(shots.values, labels, classes)]),
        )
        margins = extended._margins(shots, labels, classes)
        return replace(extended, margins=torch.cat([self.margins, margins]))

    def _margins(self, shots: Projected, labels: torch.Tensor, classes: range) -> torch.Tensor:
        """How far the best base class is ahead of each shot's own class without that shot (S,).

        Negative where the shot would be recognised. A class of a single shot has nothing left without it.
        """
        best = self.similarity(shots, range(self.base_classes)).amax(1)
        own = torch.arange(len(labels), device=labels.device), labels - classes.start
        xx, xp, pp = (each.expand(len(labels), -1, -1)[own] for each in self._products(shots, classes))
        k = self.counts[labels][:, None]
        others = cosine(xx, k * xp - xx, k * k * pp - 2 * k * xp + xx)  # with k p - x, the sum of the others
        return (best - others)[k[:, 0] > 1]

    def upto(self, classes: int) -> TransferableClassifier:
        """Return the look as it was when it knew the first classes alone.

        Their shots must have come before those of the others, and no class must have been refined since.
        """
        shots = self.counts[self.base_classes : classes]
        metrics = self.metrics
        if metrics is not None:
            metrics = replace(metrics, shares=metrics.shares[:classes])
        return replace(
            self,
            metrics=metrics,
            prototypes=self.prototypes[:classes],
            counts=self.counts[:classes],
            noise=self.noise[: len(shots)],
            margins=self.margins[: shots[shots > 1].sum()],
        )

    def calibrated(
        self, features: torch.Tensor, absorbed_by: torch.Tensor, alpha: torch.Tensor
    ) -> TransferableClassifier:
        """Move towards the unlabelled samples g (N, V, d) that each class absorbed (eq. 9), in this space."""
        return replace(self, prototypes=moved(self.prototypes, self.values(features), absorbed_by, alpha))

    def opened(self, scores: torch.Tensor, rule: Rule, strength: float) -> torch.Tensor:
        """Favour novel classes in scores (N, C) by a rule."""
        base, novel = scores[:, : self.base_classes], scores[:, self.base_classes :]
        return torch.cat([base, self.favoured(novel, rule, scores.new_tensor(strength))], dim=1)

    def favoured(self, novel: torch.Tensor, rule: Rule, strength: torch.Tensor) -> torch.Tensor:
        """Favour novel classes in their scores (N, K); strengths (S, 1, 1) give (S, N, K)."""
        match rule:
            case "plain":
                return novel + torch.zeros_like(strength)
            case "constant":
                return novel + strength
            case "unbiased":
                shots = self.counts[self.base_classes :]
                return unbias(novel, shots, noise_ratio(self.noise, shots), strength)
            case "left_out":
                return novel + recognising(self.margins, strength)


def cosine(xx: torch.Tensor, xy: torch.Tensor, yy: torch.Tensor) -> torch.Tensor:
    """Cosine of two vectors from their products, averaged over the views (..., V)."""
    return (xy / (xx.clamp(min=1e-12).sqrt() * yy.clamp(min=1e-12).sqrt())).mean(-1)


def noise(features: torch.Tensor, labels: torch.Tensor, classes: range) -> torch.Tensor:
    """Variance within each class and squared length of its mean, summed over the views (K, 2)."""
    sums, counts = class_sums(features, labels, classes)
    squares, _ = class_sums(features.square().sum((1, 2), keepdim=True), labels, classes)
    length = sums.square().sum((1, 2)) / counts.square().clamp(min=1)
    variance = (squares[:, 0, 0] - counts * length).clamp(min=0) / (counts - 1).clamp(min=1)
    return torch.stack([variance, length], dim=1)


def noise_ratio(noise: torch.Tensor, shots: torch.Tensor) -> torch.Tensor:
    """How much larger the variance within novel classes is than their squared mean, from `noise` (K, 2).

    Pooled over classes and views, because a few shots say little about one class; a single shot says
    nothing and is passed over. Without any pair of shots the ratio is unknown, and 0 is returned.
    """
    variance, length = noise[shots > 1].unbind(1)
    signal = (length - variance / shots[shots > 1].to(length)).sum()
    return torch.where(signal > 0, variance.sum() / signal, 0.0)


def unbias(
    novel: torch.Tensor,
    shots: torch.Tensor,
    ratio: torch.Tensor | float,
    strength: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """Give the similarities (N, K) of novel classes back what the noise of few shots took from them.

    The mean of k samples is longer than the true mean, by the variance within the class over k; its cosine
    with any image is smaller by sqrt(1 + ratio / k). `shots` (K,) are the k of the classes. With strength 1
    they answer as if their means were known, as those of base classes nearly are.
    """
    return novel * (1 + ratio / shots.to(novel)).pow(strength / 2)


def recognising(margins: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Return the constant with which that share of the left-out shots is recognised; 0 without shots."""
    if not len(margins):
        return torch.zeros_like(share)
    return margins.quantile(share.flatten()).view_as(share)
