"""Streams on the features of a finished embedder, and many gates taken through their sessions at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.classifiers.gate import Projected, TransferableClassifier
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, no_delta, resist
from fairshot.classifiers.similarity import directions
from fairshot.classifiers.whitening import ClassSpread, Spread, tempered
from fairshot.evaluation.metrics import Counts, Metrics, metrics_from_counts
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter
from fairshot.studies.gates import Gate, Space


@dataclass(frozen=True)
class Embedded:
    """The features of some images: transferable g (N, V, d), class-specific g~ (N, V, d~), and labels."""

    g: Tensor
    g_tilde: Tensor
    labels: Tensor


def embed(method: Method[Any], data: LabelledPictures, reporter: Reporter = SILENT) -> Embedded:
    """Embed images with a method that has learnt the base session."""
    features = method.embed(data.pictures, reporter)
    labels = torch.from_numpy(data.labels).to(features["g"].device)
    return Embedded(features["g"], features["g_tilde"], labels)


@dataclass(frozen=True)
class Projection:
    """The images of a gallery, seen in one space: what all streams over them share."""

    space: Space | None  # None: features are compared as they are
    look: TransferableClassifier  # before the first novel class
    seen: Projected
    best_base: Tensor  # (N,) similarity to the most similar base class


class FeatureBank:
    """The base classes, and the images on which streams that begin with them are tested and learn."""

    def __init__(self, train: Embedded, images: Sequence[Embedded]) -> None:
        self.train_g, self.train_labels = train.g, train.labels
        self.counts = train.labels.bincount()
        self.base_classes = len(self.counts)
        self.prototypes_tilde = prototypes(train.g_tilde, train.labels, range(self.base_classes))
        self.g = torch.cat([each.g for each in images])
        self.g_tilde = torch.cat([each.g_tilde for each in images])
        self.directions_tilde = directions(self.g_tilde)
        self.spread = cache(self._spread)
        self.tempered = lru_cache(1)(partial(tempered, self.g))

    def _spread(self, power: float) -> Spread:
        return Spread.fit(self.train_g, self.train_labels, self.base_classes, power)

    def sightings(self, spaces: Iterable[Space | None]) -> Iterator[Projection]:
        """Look at the images in each space, those that share most of the work after each other."""
        distinct = set(spaces)
        if None in distinct:
            P = prototypes(self.train_g, self.train_labels, range(self.base_classes))
            yield self._sighting(None, TransferableClassifier.plain(P, self.counts), Projected(self.g))
        whitened = sorted(space for space in distinct if space is not None)
        for common, alike in itertools.groupby(whitened, key=lambda space: (space.power, space.shrinkage)):
            yield from self._whitened(*common, [space.class_covariance_share for space in alike])

    def _whitened(self, power: float, shrinkage: float, own_shares: Sequence[float]) -> Iterator[Projection]:
        """Look at the images in spaces that differ in the share of classes' own covariances."""
        spread = self.spread(power)
        values = spread.whitening(shrinkage).transform_tempered(self.tempered(power))
        if 0.0 in own_shares:
            look = TransferableClassifier.whitened(spread, self.counts, shrinkage)
            yield self._sighting(Space(power, shrinkage), look, Projected(values))
        shares = [share for share in own_shares if share]
        if shares:
            own = ClassSpread.fit(self.train_g, self.train_labels, spread, shrinkage)
            for share, squares in zip(shares, own.squares(values, shares), strict=True):
                look = TransferableClassifier.whitened(spread, self.counts, shrinkage, own.metrics(share))
                yield self._sighting(Space(power, shrinkage, share), look, Projected(values, squares))

    def _sighting(self, space: Space | None, look: TransferableClassifier, seen: Projected) -> Projection:
        return Projection(space, look, seen, look.similarity(seen, range(self.base_classes)).amax(1))


@dataclass(frozen=True)
class Subset:
    """Some images of a gallery, and their labels in a stream."""

    rows: Tensor
    labels: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Subset]) -> Subset:
        """Put some after each other."""
        return cls(torch.cat([one.rows for one in parts]), torch.cat([one.labels for one in parts]))


class CachedStream:
    """A stream over a gallery: which of its images are tested and learnt from in which session."""

    def __init__(self, gallery: FeatureBank, tests: Sequence[Subset], shots: Sequence[Subset]) -> None:
        """Take the test images of all sessions, and the shots of those after the base session."""
        self.gallery, self.tests, self.shots = gallery, Subset.joined(tests), shots
        fresh = [len(set(one.labels.tolist())) for one in shots]
        self.classes = list(itertools.accumulate(fresh, initial=gallery.base_classes))  # seen in each session
        self.sizes = [len(one.rows) for one in tests]
        self.images = list(itertools.accumulate(self.sizes))  # tested in each session
        session = torch.arange(len(tests), device=self.tests.rows.device)
        of = session.repeat_interleave(torch.tensor(self.sizes, device=session.device))
        self.members = (of[:, None] == session).float()  # (N, T + 1) 1 in the session that brought the image
        self.second = cache(self._second)

    def _first(self, sighting: Projection) -> tuple[list[TransferableClassifier], Tensor]:
        """The first look after each session, and what the last one says of novel classes (N, K)."""
        shots, novel = Subset.joined(self.shots), range(self.gallery.base_classes, self.classes[-1])
        last = sighting.look.extended(sighting.seen.take(shots.rows), shots.labels, novel)
        looks = [last.upto(classes) for classes in self.classes]
        return looks, last.similarity(sighting.seen.take(self.tests.rows), novel)

    def _second(self, gamma: float) -> list[Tensor]:
        """What the second look answers after each session, with Resistance if gamma is not 0."""
        gallery, base = self.gallery, self.gallery.prototypes_tilde
        directions_tilde = gallery.directions_tilde[self.tests.rows]
        delta, novel, answers = no_delta(base), base[:0], []
        for t, images in enumerate(self.images):
            if t > 0:
                shots = self.shots[t - 1]
                fresh = prototypes(
                    gallery.g_tilde[shots.rows], shots.labels, range(self.classes[t - 1], self.classes[t])
                )
                delta, novel = accumulate(delta, base, fresh), torch.cat([novel, fresh])
            P_tilde = torch.cat([resist(base, delta, gamma) if gamma else base, novel])
            answers.append((directions_tilde[:images] @ directions(P_tilde).T).argmax(1))
        return answers

    def through(self, sighting: Projection, gates: Iterable[Gate]) -> list[Metrics]:
        """Take gates of one space through all sessions, all strengths of a rule at once."""
        looks, novel = self._first(sighting)
        base, counts = sighting.best_base[self.tests.rows], []
        for (rule, gamma), alike in itertools.groupby(gates, key=lambda gate: (gate.rule, gate.gamma)):
            strengths = novel.new_tensor([gate.strength for gate in alike])[:, None, None]
            after = []
            for look, images, second in zip(looks, self.images, self.second(gamma), strict=True):
                favoured = look.novel_with_bias(novel[:images, : len(look.noise)], rule, strengths)
                after.append(self._count(self._decide(base[:images], favoured, second)))
            counts.append(torch.stack(after, dim=1))
        return [self._metrics(each) for each in torch.cat(counts).tolist()]

    def _decide(self, base: Tensor, favoured: Tensor, second: Tensor) -> Tensor:
        """Algorithm 1: the best novel class (S, N, K) stands if ahead of base ones (N,), else look again."""
        if not favoured.shape[-1]:
            return second.expand(len(favoured), -1)
        best, novel = favoured.max(-1)
        return torch.where(best > base, self.gallery.base_classes + novel, second)

    def _count(self, answers: Tensor) -> Tensor:
        """Count the right ones and the base classes among answers (S, N), by session: (S, 2, T + 1)."""
        images = answers.shape[1]
        right, as_base = answers == self.tests.labels[:images], answers < self.gallery.base_classes
        return (torch.stack([right, as_base], dim=1).float() @ self.members[:images]).long()

    def _metrics(self, counts: list[list[list[int]]]) -> Metrics:
        return metrics_from_counts(
            [Counts(*(part[: t + 1] for part in (self.sizes, *after))) for t, after in enumerate(counts)]
        )


def cache_stream(method: Method[Any], stream: Stream, reporter: Reporter = SILENT) -> CachedStream:
    """Embed every image of a stream."""
    tests = [embed(method, one.test) for one in stream.sessions]
    shots = [embed(method, one.train) for one in stream.sessions[1:]]
    return own_bank_stream(embed(method, stream.base.train, reporter), tests, shots)


def own_bank_stream(train: Embedded, tests: Sequence[Embedded], shots: Sequence[Embedded]) -> CachedStream:
    """Return a stream that has a gallery for itself."""
    images = [*tests, *shots]
    labels = [one.labels for one in images]
    rows = torch.arange(sum(map(len, labels)), device=train.labels.device)
    parts = torch.split(rows, [len(each) for each in labels])
    picked = [Subset(*each) for each in zip(parts, labels, strict=True)]
    return CachedStream(FeatureBank(train, images), picked[: len(tests)], picked[len(tests) :])
