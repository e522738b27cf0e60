"""The gate: whether the first look (Algorithm 1) answers a novel class or sends an image to a second look.

In the paper Resistance alone works against the bias towards base classes, in the second look. The gate works
in the first, by two choices. How features are compared: by their cosine as they are, whitened by the
covariance within base classes (`Whitening`), or with a share of each class's own covariance besides, which a
novel class borrows from the base classes similar to it. And how novel classes are favoured (`opened`):

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
from torch.nn.functional import normalize

from fairshot.classifiers.calibration import calibrate_labelled, moved
from fairshot.classifiers.prototypes import class_sums, prototypes
from fairshot.classifiers.similarity import similarity

Rule = Literal["plain", "constant", "unbiased", "left_out"]
SHARPNESS = 16.0  # with which similarity decides whose metric a novel class borrows


def tempered(features: torch.Tensor, power: float) -> torch.Tensor:
    """Raise features to a power, which tames the few large ones, and give each view unit length."""
    return normalize(features.sign() * features.abs().pow(power), dim=-1)


@dataclass(frozen=True)
class Whitening:
    """A space in which directions that vary within every class count less."""

    power: float
    centre: torch.Tensor  # (V, d)
    matrix: torch.Tensor  # (V, d, d) symmetric

    def transform(self, features: torch.Tensor) -> torch.Tensor:
        """Take features (N, V, d) there."""
        return self.transform_tempered(tempered(features, self.power))

    def transform_tempered(self, values: torch.Tensor) -> torch.Tensor:
        """Take features that are tempered already; this is affine: means of classes may be taken before."""
        return torch.einsum("nvd,vde->nve", values - self.centre, self.matrix)


@dataclass(frozen=True)
class Space:
    """How the first look compares features: whitened, and with a share of each class's own covariance."""

    power: float
    shrinkage: float
    own_share: float = 0.0


@dataclass(frozen=True)
class Spread:
    """The means of the base classes and the covariance within them: all that whitening learns from."""

    power: float
    means: torch.Tensor  # (B, V, d) of tempered features
    unit: torch.Tensor  # (V, 1, 1) mean variance
    variances: torch.Tensor  # (V, d) along the principal directions, in that unit
    directions: torch.Tensor  # (V, d, d) in columns

    @classmethod
    def fit(cls, features: torch.Tensor, labels: torch.Tensor, base_classes: int, power: float) -> Spread:
        """Learn from the training features (N, V, d) of the base classes."""
        values = tempered(features, power)
        means = prototypes(values, labels, range(base_classes))
        residual = values - means[labels]
        covariance = torch.einsum("nvd,nve->vde", residual, residual) / len(residual)
        unit = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp(min=1e-12)
        return cls(power, means, unit, *torch.linalg.eigh(covariance / unit))

    def whitening(self, shrinkage: float) -> Whitening:
        """Shrink the covariance S towards the identity and invert it by half: (S + shrinkage * I) ^ -1/2."""
        scale = (self.variances.clamp(min=0) + shrinkage).clamp(min=1e-6).rsqrt()
        matrix = self.directions * scale[:, None] @ self.directions.mT
        return Whitening(self.power, self.means.mean(0), matrix)


def own_metrics(features: torch.Tensor, labels: torch.Tensor, spread: Spread, space: Space) -> torch.Tensor:
    """Return, for each base class, a metric (B, V, d, d) of the whitened space that knows its own covariance.

    The covariance within all classes is the identity there; a share of the class's own one is put in its
    place, shrunk alike, and inverted.
    """
    matrix, share = spread.whitening(space.shrinkage).matrix, space.own_share
    values = torch.einsum("nvd,vde->nve", tempered(features, spread.power) - spread.means[labels], matrix)
    identity = torch.eye(values.shape[-1], dtype=values.dtype, device=values.device)
    floor = space.shrinkage * matrix @ matrix
    metrics = []
    for label in range(len(spread.means)):
        residual = values[labels == label]
        own = torch.einsum("nvd,nve->vde", residual, residual) / (len(residual) * spread.unit)
        metrics.append(torch.linalg.inv((1 - share) * identity + share * (own + floor)))
    return torch.stack(metrics)


def cosine_under(features: torch.Tensor, others: torch.Tensor, metric: torch.Tensor | None) -> torch.Tensor:
    """Cosine of features (N, V, d) with others (N or 1, V, d) under a metric (V, d, d): (N,)."""
    if metric is None:
        return (normalize(features, dim=-1) * normalize(others, dim=-1)).sum(-1).mean(-1)
    turned = torch.einsum("nvd,vde->nve", features, metric)
    length = (turned * features).sum(-1).clamp(min=1e-12).sqrt()
    other = torch.einsum("nvd,vde,nve->nv", others, metric, others).clamp(min=1e-12).sqrt()
    return ((turned * others).sum(-1) / (length * other)).mean(-1)


@dataclass(frozen=True)
class Metrics:
    """A metric for each class: base classes have their own, a novel class borrows from those like it."""

    base: torch.Tensor  # (B, V, d, d)
    shares: torch.Tensor  # (C, B) of the metrics of base classes in that of each class

    @classmethod
    def of_base(cls, base: torch.Tensor) -> Metrics:
        """Let base classes keep to their own."""
        return cls(base, torch.eye(len(base), dtype=base.dtype, device=base.device))

    def extended(self, fresh: torch.Tensor, base: torch.Tensor) -> Metrics:
        """Let novel classes (K, V, d) borrow from the base classes (B, V, d) similar to them."""
        shares = (SHARPNESS * similarity(fresh, base)).softmax(1)
        return replace(self, shares=torch.cat([self.shares, shares]))

    def of(self, label: int) -> torch.Tensor:
        """Return the metric of one class (V, d, d)."""
        return torch.einsum("b,bvde->vde", self.shares[label], self.base)

    def similarity(self, values: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
        """Cosine of values (N, V, d) with each of the first classes (C, V, d) under its metric, (N, C).

        Products with whole metrics are those of base classes alone: what is borrowed is a mean of these.
        """
        shares = self.shares[: len(prototypes)]
        squares = torch.stack(
            [(torch.einsum("nvd,vde->nve", values, one) * values).sum(-1) for one in self.base], dim=1
        )
        lengths = torch.einsum("nbv,cb->ncv", squares, shares).clamp(min=1e-12).sqrt()
        known = len(self.base)
        by_base = torch.einsum("bvde,cve->cbvd", self.base, prototypes[known:])
        turned = torch.cat(
            [
                torch.einsum("bvde,bve->bvd", self.base[: len(prototypes)], prototypes[:known]),
                torch.einsum("cb,cbvd->cvd", shares[known:], by_base),
            ]
        )
        own = (turned * prototypes).sum(-1).clamp(min=1e-12).sqrt()
        return (torch.einsum("nvd,cvd->ncv", values, turned) / (lengths * own)).mean(-1)


@dataclass(frozen=True)
class FirstLook:
    """The classifiers h in the space where they compare, and what shots tell about novel classes there."""

    base_classes: int
    space: Whitening | None  # None: features are compared as they are
    metrics: Metrics | None  # of each class in the whitened space, if they have their own
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
        metrics: Metrics | None = None,
    ) -> FirstLook:
        """Know the base classes, by their prototypes (B, V, d) in the space of comparison."""
        return cls(len(base), space, metrics, base, counts, base.new_empty(0, 2), base.new_empty(0))

    @classmethod
    def whitened(
        cls, features: torch.Tensor, labels: torch.Tensor, spread: Spread, space: Space
    ) -> FirstLook:
        """Know the base classes in a space learnt from their training features g (N, V, d)."""
        whitening = spread.whitening(space.shrinkage)
        metrics = None
        if space.own_share:
            metrics = Metrics.of_base(own_metrics(features, labels, spread, space))
        base = whitening.transform_tempered(spread.means)
        return cls.begin(base, labels.bincount(), whitening, metrics)

    @classmethod
    def from_tensors(cls, base_classes: int, tensors: Mapping[str, torch.Tensor], power: float) -> FirstLook:
        """Return what `tensors` was taken from; the power is a setting."""
        own = dict(tensors)
        space = Whitening(power, own.pop("centre"), own.pop("matrix")) if "matrix" in own else None
        metrics = Metrics(own.pop("metrics"), own.pop("metric_shares")) if "metrics" in own else None
        return cls(base_classes, space, metrics, **own)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in ("prototypes", "counts", "noise", "margins")}
        if self.metrics is not None:
            learnt |= {"metrics": self.metrics.base, "metric_shares": self.metrics.shares}
        if self.space is not None:
            learnt |= {"centre": self.space.centre, "matrix": self.space.matrix}
        return learnt

    def features(self, features: torch.Tensor) -> torch.Tensor:
        """Take features g (N, V, d) into the space of comparison."""
        return features if self.space is None else self.space.transform(features)

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the similarity of features g (N, V, d) to each class (N, C), nobody favoured."""
        return self._similarity(self.features(features), len(self.prototypes))

    def _similarity(self, values: torch.Tensor, classes: int) -> torch.Tensor:
        """Return the similarity of values in the space of comparison to the first classes."""
        compared = self.prototypes[:classes]
        if self.metrics is None:
            return similarity(values, compared)
        return self.metrics.similarity(values, compared)

    def extended(self, features: torch.Tensor, labels: torch.Tensor, classes: range) -> FirstLook:
        """Learn new classes, the next in line, from shots; shots of known classes refine their prototypes."""
        values = self.features(features)
        known = labels < len(self.prototypes)
        refined, counts = calibrate_labelled(self.prototypes, self.counts, values[known], labels[known])
        look = replace(self, prototypes=refined, counts=counts)
        return look._with_new(values[~known], labels[~known], classes) if classes else look

    def _with_new(self, values: torch.Tensor, labels: torch.Tensor, classes: range) -> FirstLook:
        fresh, metrics = prototypes(values, labels, classes), self.metrics
        if metrics is not None:
            metrics = metrics.extended(fresh, self.prototypes[: self.base_classes])
        extended = replace(
            self,
            metrics=metrics,
            prototypes=torch.cat([self.prototypes, fresh]),
            counts=torch.cat([self.counts, labels.bincount()[classes.start :]]),
            noise=torch.cat([self.noise, noise(values, labels, classes)]),
        )
        return replace(extended, margins=torch.cat([self.margins, extended._margins(values, labels)]))

    def _margins(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """How far the best base class is ahead of each shot's own class without that shot (S,).

        Negative where the shot would be recognised. A class of a single shot has nothing left without it.
        """
        best, margins = self._similarity(values, self.base_classes).amax(1), [values.new_empty(0)]
        for label in sorted(set(labels.tolist())):
            mine = labels == label
            shots, metric = values[mine], None if self.metrics is None else self.metrics.of(label)
            if len(shots) > 1:
                margins.append(best[mine] - cosine_under(shots, shots.sum(0) - shots, metric))
        return torch.cat(margins)

    def calibrated(self, features: torch.Tensor, absorbed_by: torch.Tensor, alpha: torch.Tensor) -> FirstLook:
        """Move towards the unlabelled samples g (N, V, d) that each class absorbed (eq. 9), in this space."""
        return replace(self, prototypes=moved(self.prototypes, self.features(features), absorbed_by, alpha))

    def opened(self, scores: torch.Tensor, rule: Rule, strength: float) -> torch.Tensor:
        """Favour novel classes in scores (N, C) by a rule."""
        match rule:
            case "plain":
                return scores
            case "constant":
                return favour(scores, self.base_classes, strength)
            case "unbiased":
                shots = self.counts[self.base_classes :]
                return unbias(scores, self.base_classes, shots, noise_ratio(self.noise, shots), strength)
            case "left_out":
                return favour(scores, self.base_classes, recognising(self.margins, strength))


def favour(first: torch.Tensor, base_classes: int, constant: torch.Tensor | float) -> torch.Tensor:
    """Add a constant to the similarities (N, C) of the novel classes."""
    return torch.cat([first[:, :base_classes], first[:, base_classes:] + constant], dim=1)


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


def recognising(margins: torch.Tensor, share: float) -> torch.Tensor:
    """Return the constant with which that share of the left-out shots is recognised; 0 without shots."""
    return margins.quantile(share) if len(margins) else margins.new_zeros(())
