"""The gate of Algorithm 1: whether g answers a novel class or leaves the decision to g~.

In the paper Resistance alone works against the bias towards base classes, on g~. The gate works on g, by two
choices. How features are compared: by their cosine as they are, whitened by the covariance within base
classes, or with a share of each class's own covariance besides (`whitening`). And the bias that the scores of
novel classes get (`novel_bias`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fairshot.classifiers.calibration import calibrate_labelled, moved
from fairshot.classifiers.novel_bias import Bias, NovelBias, noise, novel_bias
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.shot_covariance import ShotScatter, WhiteningShots
from fairshot.classifiers.similarity import padded, prototype_directions, similarity, similarity_to
from fairshot.classifiers.whitening import ClassMetrics, Whitening, WithinClassCovariance

LEARNT = ("prototypes", "counts", "noise", "margins")  # tensors that every gate has


@dataclass(frozen=True, eq=False)
class Projected:
    """Images in the space in which they are compared with the classes."""

    values: Tensor  # (N, V, d)
    squares: Tensor | None = None  # (N, B, V) squared lengths under the metrics of base classes, if any

    def take(self, rows: Tensor) -> Projected:
        """Return some of the images."""
        return Projected(self.values[rows], None if self.squares is None else self.squares[rows])


@dataclass(frozen=True, eq=False)
class TransferableClassifier:
    """The classifiers h in the space of comparison, and what the shots tell about novel classes there."""

    base_classes: int
    space: Whitening | None  # None: features are compared as they are
    metrics: ClassMetrics | None  # of each class in the whitened space, if classes have their own
    prototypes: Tensor  # (C, V, d) in that space
    counts: Tensor  # (C,) images behind each prototype
    noise: Tensor  # (C - base_classes, 2) of each novel class: variance, squared length of its mean
    margins: Tensor  # (S,) how far the best base class is ahead of the own class, per left-out shot
    scatter: WhiteningShots | None = None  # that whiten the space too

    @classmethod
    def whitened(
        cls,
        covariance: WithinClassCovariance,
        counts: Tensor,
        shrinkage: float,
        metrics: ClassMetrics | None = None,
    ) -> TransferableClassifier:
        """Make the classifier of the base classes in the whitened space, each with its own metric or none."""
        space = covariance.whitening(shrinkage)
        return cls.of_base(space.transform_tukey(covariance.means), counts, space, metrics)

    @classmethod
    def of_base(
        cls, base: Tensor, counts: Tensor, space: Whitening | None = None, metrics: ClassMetrics | None = None
    ) -> TransferableClassifier:
        """Make the classifier of base prototypes (B, V, d) in a space, or of features as they are."""
        base, counts = base.clone(), counts.clone()  # a file of tensors refuses those that share memory
        return cls(len(base), space, metrics, base, counts, base.new_empty(0, 2), base.new_empty(0))

    @classmethod
    def from_tensors(
        cls, base_classes: int, tensors: Mapping[str, Tensor], power: float
    ) -> TransferableClassifier:
        """Return what `tensors` was taken from; the power is a setting."""
        own = dict(tensors)
        space = Whitening(power, own.pop("centre"), own.pop("matrix")) if "matrix" in own else None
        metrics = None
        if "metrics" in own:
            metrics = ClassMetrics.of_matrices(own["metrics"], own["metric_shares"])
        elif "metric_roots" in own:
            metrics = ClassMetrics(own["metric_common"], own["metric_roots"], own["metric_shares"])
        prototypes, counts, noise, margins = (own[name] for name in LEARNT)
        return cls(base_classes, space, metrics, prototypes, counts, noise, margins)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in LEARNT}
        if self.metrics is not None:
            learnt |= {f"metric_{name}": value for name, value in vars(self.metrics).items()}
        if self.space is not None:
            learnt |= {"centre": self.space.centre, "matrix": self.space.matrix}
        return learnt

    def values(self, g: Tensor) -> Tensor:
        """Project features g (N, V, d) into the space of comparison."""
        return g if self.space is None else self.space.transform(g)

    def project(self, g: Tensor, squares: Tensor | None = None) -> Projected:
        """Project features g (N, V, d), with all that comparing them needs; squared lengths may be known."""
        values = self.values(g)
        if squares is None and self.metrics is not None:
            squares = self.metrics.squares(values)
        return Projected(values, squares)

    def scores(self, g: Tensor, squares: Tensor | None = None) -> Tensor:
        """Return the similarity of features g (N, V, d) to each class (N, C), without bias."""
        if self.metrics is None:
            return similarity_to(self.values(g), self._directions, len(self.prototypes))
        return self.similarity(self.project(g, squares), range(len(self.prototypes)))

    @cached_property
    def _directions(self) -> Tensor:
        return prototype_directions(self.prototypes)

    def similarity(self, images: Projected, classes: range) -> Tensor:
        """Return the similarity of images to consecutive classes (N, K), without bias."""
        if self.metrics is None:
            P = self.prototypes[classes.start : classes.stop]
            return similarity(images.values, P.to(images.values))
        return cosine(*self.products(images, classes))

    def products(self, images: Projected, classes: range) -> tuple[Tensor, Tensor, Tensor]:
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
    def _weighted(self) -> Tensor:
        """Prototypes multiplied by the metrics of their classes (C, V, d)."""
        return self.prototypes if self.metrics is None else self.metrics.weighted(self.prototypes)

    def extended(self, shots: Projected, labels: Tensor, classes: range) -> TransferableClassifier:
        """Learn new classes, the next in line, from shots; shots of known classes refine their prototypes."""
        known = labels < len(self.prototypes)
        classifier = self._refined(shots.take(known), labels[known]) if bool(known.any()) else self
        return classifier._with_new(shots.take(~known), labels[~known], classes) if classes else classifier

    def _refined(self, shots: Projected, labels: Tensor) -> TransferableClassifier:
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

    def _with_new(self, shots: Projected, labels: Tensor, classes: range) -> TransferableClassifier:
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

    def shot_margins(self, shots: Projected, labels: Tensor) -> Tensor:
        """How far the best base class is ahead of each shot's own class without that shot (S,).

        Negative where the shot would be recognised. A class of a single shot has nothing left without it and
        is passed over.
        """
        if not self.base_classes:
            return -self.left_out(shots, labels)[self.counts[labels] > 1]
        best = self.similarity(shots, range(self.base_classes)).amax(1)
        return (best - self.left_out(shots, labels))[self.counts[labels] > 1]

    def left_out(self, shots: Projected, labels: Tensor) -> Tensor:
        """Similarity of each shot to its own class as it would be without that shot (S,), without bias."""
        classes = range(int(labels.min()), int(labels.max()) + 1)
        own = torch.arange(len(labels), device=labels.device), labels - classes.start
        xx, xp, pp = (each.expand(len(labels), -1, -1)[own] for each in self.products(shots, classes))
        k = self.counts[labels][:, None]
        return cosine(xx, k * xp - xx, k * k * pp - 2 * k * xp + xx)  # with k p - x, the sum of the others

    def with_shot_covariance(self, g: Tensor, labels: Tensor, weight: float) -> TransferableClassifier:
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

        def applied(views: Tensor) -> list[Tensor]:
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

    def calibrated(self, g: Tensor, absorbed_by: Tensor, alpha: Tensor) -> TransferableClassifier:
        """Move towards the unlabelled samples g (N, V, d) that each class absorbed (eq. 9), in this space."""
        return replace(self, prototypes=moved(self.prototypes, self.values(g), absorbed_by, alpha))

    def novel_bias(self, bias: Bias, strength: Tensor) -> NovelBias:
        """Return the bias of this strength, or of several strengths (S, 1, 1) at once."""
        shots = self.counts[self.base_classes :]
        return novel_bias(bias, strength, shots, self.noise, self.margins)


def cosine(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """Cosine of two vectors from their products, averaged over the views (..., V)."""
    return (xy / (xx.clamp(min=1e-12).sqrt() * yy.clamp(min=1e-12).sqrt())).mean(-1)
