"""The gate of Algorithm 1: whether g answers a novel class or leaves the decision to g~.

In the paper Resistance alone works against the bias towards base classes, on g~. The gate works on g, by two
choices. How features are compared: by their cosine as they are, whitened by the covariance within base
classes, or with a share of each class's own covariance besides (`whitening`). And the bias that is added to
the scores of novel classes:

- `plain`: none, Algorithm 1 as it is;
- `constant`: a constant;
- `unbiased`: the scores are given back what the noise of few shots took from them;
- `left_out`: the constant with which a given share of the shots would be recognised, each by a prototype made
  without it. It follows the features and the classes met so far by itself.

How strong the bias should be is tuned on base classes that play novel ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch

from fairshot.classifiers.calibration import calibrate_labelled, moved
from fairshot.classifiers.prototypes import class_sums, prototypes
from fairshot.classifiers.similarity import padded, prototype_directions, similarity, similarity_to
from fairshot.classifiers.whitening import (
    ClassMetrics,
    ShotScatter,
    Whitening,
    WhiteningShots,
    WithinClassCovariance,
)

Bias = Literal["plain", "constant", "unbiased", "left_out"]
LEARNT = ("prototypes", "counts", "noise", "margins")  # tensors that every gate has


class NovelBias(NamedTuple):
    """By what scores of novel classes are multiplied or, where there is no factor, what is added to them."""

    constant: torch.Tensor | float = 0.0
    factor: torch.Tensor | None = None

    def added_to(self, novel: torch.Tensor) -> torch.Tensor:
        """Return scores of novel classes (N, K) with the bias; several strengths give (S, N, K)."""
        return novel + self.constant if self.factor is None else novel * self.factor


@dataclass(frozen=True, eq=False)
class Projected:
    """Images in the space in which they are compared with the classes."""

    values: torch.Tensor  # (N, V, d)
    squares: torch.Tensor | None = None  # (N, B, V) squared lengths under the metrics of base classes, if any

    def take(self, rows: torch.Tensor) -> Projected:
        """Return some of the images."""
        return Projected(self.values[rows], None if self.squares is None else self.squares[rows])


@dataclass(frozen=True, eq=False)
class TransferableClassifier:
    """The classifiers h in the space of comparison, and what the shots tell about novel classes there."""

    base_classes: int
    space: Whitening | None  # None: features are compared as they are
    metrics: ClassMetrics | None  # of each class in the whitened space, if classes have their own
    prototypes: torch.Tensor  # (C, V, d) in that space
    counts: torch.Tensor  # (C,) images behind each prototype
    noise: torch.Tensor  # (C - base_classes, 2) of each novel class: variance, squared length of its mean
    margins: torch.Tensor  # (S,) how far the best base class is ahead of the own class, per left-out shot
    scatter: WhiteningShots | None = None  # that whiten the space too

    @classmethod
    def whitened(
        cls,
        covariance: WithinClassCovariance,
        counts: torch.Tensor,
        shrinkage: float,
        metrics: torch.Tensor | None = None,
    ) -> TransferableClassifier:
        """Make the classifier of the base classes in the whitened space, each with its own metric or none."""
        space = covariance.whitening(shrinkage)
        own = None if metrics is None else ClassMetrics.of_base(metrics)
        return cls.of_base(space.transform_tukey(covariance.means), counts, space, own)

    @classmethod
    def of_base(
        cls,
        base: torch.Tensor,
        counts: torch.Tensor,
        space: Whitening | None = None,
        metrics: ClassMetrics | None = None,
    ) -> TransferableClassifier:
        """Make the classifier of base prototypes (B, V, d) in a space, or of features as they are."""
        base, counts = base.clone(), counts.clone()  # a file of tensors refuses those that share memory
        return cls(len(base), space, metrics, base, counts, base.new_empty(0, 2), base.new_empty(0))

    @classmethod
    def from_tensors(
        cls, base_classes: int, tensors: Mapping[str, torch.Tensor], power: float
    ) -> TransferableClassifier:
        """Return what `tensors` was taken from; the power is a setting."""
        own = dict(tensors)
        space = Whitening(power, own.pop("centre"), own.pop("matrix")) if "matrix" in own else None
        metrics = ClassMetrics(own.pop("metrics"), own.pop("metric_shares")) if "metrics" in own else None
        prototypes, counts, noise, margins = (own[name] for name in LEARNT)
        return cls(base_classes, space, metrics, prototypes, counts, noise, margins)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in LEARNT}
        if self.metrics is not None:
            learnt |= {"metrics": self.metrics.base, "metric_shares": self.metrics.shares}
        if self.space is not None:
            learnt |= {"centre": self.space.centre, "matrix": self.space.matrix}
        return learnt

    def values(self, g: torch.Tensor) -> torch.Tensor:
        """Project features g (N, V, d) into the space of comparison."""
        return g if self.space is None else self.space.transform(g)

    def project(self, g: torch.Tensor) -> Projected:
        """Project features g (N, V, d), with all that comparing them needs."""
        values = self.values(g)
        return Projected(values, None if self.metrics is None else self.metrics.squares(values))

    def scores(self, g: torch.Tensor) -> torch.Tensor:
        """Return the similarity of features g (N, V, d) to each class (N, C), without bias."""
        if self.metrics is None:
            return similarity_to(self.values(g), self._directions, len(self.prototypes))
        return self.similarity(self.project(g), range(len(self.prototypes)))

    @cached_property
    def _directions(self) -> torch.Tensor:
        return prototype_directions(self.prototypes)

    def similarity(self, images: Projected, classes: range) -> torch.Tensor:
        """Return the similarity of images to consecutive classes (N, K), without bias."""
        if self.metrics is None:
            P = self.prototypes[classes.start : classes.stop]
            return similarity(images.values, P.to(images.values))
        return cosine(*self._products(images, classes))

    def _products(self, images: Projected, classes: range) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Products x x, x p (N, K, V), p p (1, K, V) of images and prototypes, under each class's metric."""
        values, chosen, count = images.values, slice(classes.start, classes.stop), len(classes)
        P, weighted = (padded(each[chosen]).to(values) for each in (self.prototypes, self._weighted))
        if self.metrics is None:
            squares = values.square().sum(-1)[:, None].expand(-1, count, -1)
        else:
            assert images.squares is not None  # projected by a classifier with metrics
            shares = padded(self.metrics.shares[chosen]).to(values)
            squares = torch.einsum("nbv,kb->nkv", images.squares, shares)[:, :count]
        xp = torch.einsum("nvd,kvd->nkv", values, weighted)[:, :count]
        return squares, xp, (P * weighted).sum(-1)[None, :count]

    @cached_property
    def _weighted(self) -> torch.Tensor:
        """Prototypes multiplied by the metrics of their classes (C, V, d)."""
        return self.prototypes if self.metrics is None else self.metrics.weighted(self.prototypes)

    def extended(self, shots: Projected, labels: torch.Tensor, classes: range) -> TransferableClassifier:
        """Learn new classes, the next in line, from shots; shots of known classes refine their prototypes."""
        known = labels < len(self.prototypes)
        classifier = self._refined(shots.take(known), labels[known]) if bool(known.any()) else self
        return classifier._with_new(shots.take(~known), labels[~known], classes) if classes else classifier

    def _refined(self, shots: Projected, labels: torch.Tensor) -> TransferableClassifier:
        """Take further shots of known classes: prototypes, noise and margins as if they had come before."""
        means, counts = calibrate_labelled(self.prototypes, self.counts, shots.values, labels)
        novel = slice(self.base_classes, len(counts))
        earlier = self.noise, self.prototypes[novel], self.counts[novel]
        pooled = noise(shots.values, labels, range(self.base_classes, len(counts)), earlier)
        refined = replace(self, prototypes=means, counts=counts, noise=pooled.to(self.noise))
        of_novel = labels >= self.base_classes
        if not bool(of_novel.any()):
            return refined
        margins = refined.shot_margins(shots.take(of_novel), labels[of_novel])
        return replace(refined, margins=torch.cat([self.margins, margins.to(self.margins)]))

    def _with_new(self, shots: Projected, labels: torch.Tensor, classes: range) -> TransferableClassifier:
        fresh = prototypes(shots.values, labels, classes).to(self.prototypes)
        metrics = self.metrics
        if metrics is not None:
            metrics = metrics.extended(fresh, self.prototypes[: self.base_classes])
        extended = replace(
            self,
            metrics=metrics,
            prototypes=torch.cat([self.prototypes, fresh]),
            counts=torch.cat([self.counts, labels.bincount()[classes.start :]]),
            noise=torch.cat([self.noise, noise(shots.values, labels, classes).to(self.noise)]),
        )
        margins = extended.shot_margins(shots, labels)
        return replace(extended, margins=torch.cat([self.margins, margins.to(self.margins)]))

    def shot_margins(self, shots: Projected, labels: torch.Tensor) -> torch.Tensor:
        """How far the best base class is ahead of each shot's own class without that shot (S,).

        Negative where the shot would be recognised. A class of a single shot has nothing left without it and
        is passed over.
        """
        if not self.base_classes:
            return -self.left_out(shots, labels)[self.counts[labels] > 1]
        best = self.similarity(shots, range(self.base_classes)).amax(1)
        return (best - self.left_out(shots, labels))[self.counts[labels] > 1]

    def left_out(self, shots: Projected, labels: torch.Tensor) -> torch.Tensor:
        """Similarity of each shot to its own class as it would be without that shot (S,), without bias."""
        classes = range(int(labels.min()), int(labels.max()) + 1)
        own = torch.arange(len(labels), device=labels.device), labels - classes.start
        xx, xp, pp = (each.expand(len(labels), -1, -1)[own] for each in self._products(shots, classes))
        k = self.counts[labels][:, None]
        return cosine(xx, k * xp - xx, k * k * pp - 2 * k * xp + xx)  # with k p - x, the sum of the others

    def with_shot_covariance(
        self, g: torch.Tensor, labels: torch.Tensor, weight: float
    ) -> TransferableClassifier:
        """Whiten by the covariance within the classes of shots g (S, V, d) too, in a space without metrics.

        It differs from that of base classes: birds vary otherwise than everyday things. The shots may be some
        of those that classes were made of, at least two of each class. In float64, where the order of the
        shots hardly shows.
        """
        assert self.space is not None
        values = self.space.transform(g.double())
        used, rows = torch.unique(labels, return_inverse=True)
        residuals = values - prototypes(values, rows, range(len(used)))[rows]
        scatters = [ShotScatter.of(each, weight) for each in residuals.unbind(1)]

        def applied(views: torch.Tensor) -> list[torch.Tensor]:
            pairs = zip(scatters, views.double(), strict=True)
            return [scatter.apply(rows).to(views) for scatter, rows in pairs]

        return replace(
            self,
            space=replace(self.space, matrix=torch.stack(applied(self.space.matrix))),
            prototypes=torch.stack(applied(self.prototypes.transpose(0, 1)), dim=1),
            scatter=WhiteningShots(
                values.new_tensor([scatter.factor for scatter in scatters]),
                torch.stack(applied(values.transpose(0, 1)), dim=1),
                labels,
            ),
        )

    def left_out_scores(self, shots: Projected, labels: torch.Tensor) -> torch.Tensor:
        """Similarity (S, C) of shots to all classes, each as if it had not been taught, without bias."""
        if self.scatter is not None:
            return cosine(*self.left_out_products(shots, labels))
        scores = self.similarity(shots, range(len(self.prototypes)))
        own = torch.arange(len(labels), device=labels.device), labels
        scores[own] = self.left_out(shots, labels)
        return scores

    def left_out_products(
        self, shots: Projected, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Products x x (S, 1, V), x p, p p (S, C, V) of shots and classes, as if a shot had not been taught.

        Where shots are part of the space, it is that without the shot: a scatter that is less by the product
        of a vector with itself has an inverse that is more by such a product (Sherman and Morrison).
        """
        own = torch.arange(len(labels), device=labels.device), labels
        x, P, k = shots.values, self.prototypes.to(shots.values), self.counts[labels][:, None].double()
        rest = (k[..., None] * P[labels] - x) / (k[..., None] - 1)  # the own class without the shot
        if self.scatter is None:
            r, factors = torch.zeros_like(x), x.new_zeros(x.shape[1])
        else:
            r, factors = self.scatter.lost_without(x, labels), self.scatter.factors.to(x)

        def with_all(vectors: torch.Tensor) -> torch.Tensor:
            products = torch.einsum("nvd,cvd->ncv", vectors, P)
            products[own] = (vectors * rest).sum(-1)
            return products

        factor = (factors / (1 - factors * r.square().sum(-1)).clamp(min=1e-6))[:, None]
        xr, rp = (x * r).sum(-1)[:, None], with_all(r)
        pp = P.square().sum(-1)[None].repeat(len(x), 1, 1)
        pp[own] = rest.square().sum(-1)
        xx = x.square().sum(-1)[:, None]
        return xx + factor * xr.square(), with_all(x) + factor * xr * rp, pp + factor * rp.square()

    def upto(self, classes: int) -> TransferableClassifier:
        """Return the classifier as it was when it knew the first classes alone.

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

    def few_shot_scores(
        self, shots: Projected, labels: torch.Tensor, others: Sequence[torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Similarity (S, C) of shots to all classes, their own made of other shots alone, without bias.

        Each of `others` (S, k) gives one table of scores: their positions among the shots. Where shots are
        part of the space, it is that without the shots of the own class.
        """
        own = torch.arange(len(labels), device=labels.device), labels
        if self.scatter is None:
            scores = self.similarity(shots, range(len(self.prototypes)))
            made = [self.made_of(shots, each) for each in others]
        else:
            scores = shots.values.new_empty(len(labels), len(self.prototypes))
            means = torch.stack([shots.values[each].mean(1) for each in others])
            found = means.new_empty(means.shape[:2])
            for label in torch.unique(labels).tolist():
                rows = labels == label
                scores[rows], found[:, rows] = self._without_scatter_of(
                    label, self.scatter, shots.values[rows], means[:, rows]
                )
            made = list(found)
        for each in made:
            yield scores.index_put(own, each)

    def _without_scatter_of(
        self, label: int, scatter: WhiteningShots, x: torch.Tensor, made: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Similarity (N, C) of shots x (N, V, d) to all classes, and (K, N) to classes `made` (K, N, V, d).

        Residuals of the class are taken out of the scatter of the space, whose inverse changes by a matrix of
        their rank (Woodbury).
        """
        P, R = self.prototypes.to(x), scatter.residuals_of(label).to(x)
        factor = scatter.factors.to(x)[:, None, None]
        gram = torch.einsum("nvd,mvd->vnm", R, R)
        change = factor * torch.linalg.inv(torch.eye(len(R)).to(gram) - factor * gram)
        ux, up, um = (torch.einsum("...vd,nvd->...vn", each, R) for each in (x, P, made))

        def product(one: torch.Tensor, other: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return (one * other).sum(-1) + torch.einsum("...vn,vnm,...vm->...v", u, change, w)

        xx, pp, mm = product(x, x, ux, ux), product(P, P, up, up), product(made, made, um, um)
        xp = torch.einsum("nvd,cvd->ncv", x, P) + torch.einsum("nvk,vkm,cvm->ncv", ux, change, up)
        return cosine(xx[:, None], xp, pp[None]), cosine(xx[None], product(x, made, ux, um), mm)

    def made_of(self, shots: Projected, others: torch.Tensor) -> torch.Tensor:
        """Similarity of each shot to a novel class made of other shots alone (S,), without bias.

        `others` (S, k) are their positions among the shots.
        """
        P = shots.values[others].mean(1)
        metrics = self.metrics
        if metrics is not None:
            shares = metrics.extended(P, self.prototypes[: self.base_classes]).shares[-len(P) :]
            metrics = replace(metrics, shares=shares)
        made = replace(self, prototypes=P, metrics=metrics)
        own = torch.arange(len(P), device=P.device)
        products = made._products(shots, range(len(P)))
        return cosine(*(each.expand(len(P), -1, -1)[own, own] for each in products))

    def calibrated(
        self, g: torch.Tensor, absorbed_by: torch.Tensor, alpha: torch.Tensor
    ) -> TransferableClassifier:
        """Move towards the unlabelled samples g (N, V, d) that each class absorbed (eq. 9), in this space."""
        return replace(self, prototypes=moved(self.prototypes, self.values(g), absorbed_by, alpha))

    def novel_bias(self, bias: Bias, strength: torch.Tensor) -> NovelBias:
        """Return the bias of this strength, or of several strengths (S, 1, 1) at once."""
        match bias:
            case "plain":
                return NovelBias(torch.zeros_like(strength))
            case "constant":
                return NovelBias(strength)
            case "unbiased":
                shots = self.counts[self.base_classes :]
                return NovelBias(factor=unbiasing(shots, noise_ratio(self.noise, shots), strength))
            case "left_out":
                return NovelBias(recognising(self.margins, strength))


def cosine(xx: torch.Tensor, xy: torch.Tensor, yy: torch.Tensor) -> torch.Tensor:
    """Cosine of two vectors from their products, averaged over the views (..., V)."""
    return (xy / (xx.clamp(min=1e-12).sqrt() * yy.clamp(min=1e-12).sqrt())).mean(-1)


def noise(
    features: torch.Tensor,
    labels: torch.Tensor,
    classes: range,
    earlier: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
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


def noise_ratio(noise: torch.Tensor, shots: torch.Tensor) -> torch.Tensor:
    """How much larger the variance within novel classes is than their squared mean, from `noise` (K, 2).

    Pooled over classes and views, because a few shots say little about one class; a single shot says
    nothing and is passed over. Without any pair of shots the ratio is unknown, and 0 is returned. Sums are in
    float64, where the order of the classes does not show.
    """
    variance, length = noise[shots > 1].double().unbind(1)
    signal = (length - variance / shots[shots > 1].to(length)).sum()
    return torch.where(signal > 0, variance.sum() / signal, 0.0).to(noise.dtype)


def unbiasing(
    shots: torch.Tensor, ratio: torch.Tensor | float, strength: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Return the factors (K,) that give similarities of novel classes back what few shots took from them.

    The mean of k samples is longer than the true mean, by the variance within the class over k; its cosine
    with any image is smaller by sqrt(1 + ratio / k). `shots` (K,) are the k of the classes. With strength 1
    they answer as if their means were known, as those of base classes nearly are.
    """
    return (1 + ratio / shots.to(torch.float32)).pow(strength / 2)


def recognising(margins: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Return the constant with which that share of the left-out shots is recognised; 0 without shots."""
    if not len(margins):
        return torch.zeros_like(share)
    return margins.quantile(share.flatten()).view_as(share)
