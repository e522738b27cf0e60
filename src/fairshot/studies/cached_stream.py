"""Streams on the features of a finished embedder, through whose sessions many gates go at once.

Each part of the decision is that of `classifiers.dual`; here it is only arranged so that gates share work:
projections into a space, scores of novel classes, the answers of g~.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.classifiers.combination import separate_answers
from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.gate import Projected, TransferableClassifier
from fairshot.classifiers.whitening import ClassCovariances, WithinClassCovariance, tukey
from fairshot.evaluation.metrics import Counts, Metrics, metrics_from_counts
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter
from fairshot.studies.gates import Gate, Space


@dataclass(frozen=True)
class LabelledFeatures:
    """The features of some images: transferable g (N, V, d), class-specific g~ (N, V, d~), and labels."""

    g: Tensor
    g_tilde: Tensor
    labels: Tensor


def embed(method: Method[Any], data: LabelledPictures, reporter: Reporter = SILENT) -> LabelledFeatures:
    """Embed images with a method that has learnt the base session; without an SR module g~ is g."""
    features = method.embed(data.pictures, reporter)
    labels = torch.from_numpy(data.labels).to(features["g"].device)
    return LabelledFeatures(features["g"], features.get("g_tilde", features["g"]), labels)


@dataclass(frozen=True)
class Projection:
    """The images of a feature bank in one space: what all streams over them share."""

    space: Space | None  # None: features are compared as they are
    classifier: TransferableClassifier  # of the base classes
    images: Projected
    best_base: Tensor  # (N,) highest score of a base class


class FeatureBank:
    """The base classes, and the images on which streams that begin with them are tested and learn."""

    def __init__(self, train: LabelledFeatures, images: Sequence[LabelledFeatures]) -> None:
        self.train_g, self.train_labels = train.g, train.labels
        self.counts = train.labels.bincount()
        self.base_classes = len(self.counts)
        features = {"g": train.g, "g_tilde": train.g_tilde}
        self.classifier = DualClassifier.fit(PrototypeSettings(), features, train.labels, self.base_classes)
        self.g = torch.cat([each.g for each in images])
        self.g_tilde = torch.cat([each.g_tilde for each in images])
        self.covariance = cache(self._covariance)
        self.tukey = lru_cache(1)(partial(tukey, self.g))

    def _covariance(self, power: float) -> WithinClassCovariance:
        return WithinClassCovariance.fit(self.train_g, self.train_labels, self.base_classes, power)

    def projections(self, spaces: Iterable[Space | None]) -> Iterator[Projection]:
        """Project the images into each space; spaces that share most of the work follow each other."""
        distinct = set(spaces)
        if None in distinct:
            plain = TransferableClassifier.of_base(self.classifier.h.means, self.counts)
            yield self._projection(None, plain, Projected(self.g))
        whitened = sorted(space for space in distinct if space is not None)
        for common, alike in itertools.groupby(whitened, key=lambda space: (space.power, space.shrinkage)):
            yield from self._whitened(*common, [space.class_covariance_share for space in alike])

    def _whitened(self, power: float, shrinkage: float, shares: Sequence[float]) -> Iterator[Projection]:
        """Project the images into spaces that differ in the share of each class's own covariance."""
        covariance = self.covariance(power)
        values = covariance.whitening(shrinkage).transform_tukey(self.tukey(power))
        if 0.0 in shares:
            classifier = TransferableClassifier.whitened(covariance, self.counts, shrinkage)
            yield self._projection(Space(power, shrinkage), classifier, Projected(values))
        if some := [share for share in shares if share]:
            own = ClassCovariances.fit(self.train_g, self.train_labels, covariance, shrinkage)
            for share in some:
                metrics = own.metrics(share)
                classifier = TransferableClassifier.whitened(covariance, self.counts, shrinkage, metrics)
                images = Projected(values, metrics.squares(values))
                yield self._projection(Space(power, shrinkage, share), classifier, images)

    def _projection(
        self, space: Space | None, classifier: TransferableClassifier, images: Projected
    ) -> Projection:
        best = classifier.similarity(images, range(self.base_classes)).amax(1)
        return Projection(space, classifier, images, best)


@dataclass(frozen=True)
class Subset:
    """Some images of a feature bank, and their labels in a stream."""

    rows: Tensor
    labels: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Subset]) -> Subset:
        """Concatenate subsets."""
        return cls(torch.cat([one.rows for one in parts]), torch.cat([one.labels for one in parts]))


class CachedStream:
    """A stream over a feature bank: which of its images are tested and learnt from in which session."""

    def __init__(self, bank: FeatureBank, tests: Sequence[Subset], shots: Sequence[Subset]) -> None:
        """Take the test images of all sessions, and the shots of those after the base session."""
        self.bank, self.tests, self.shots = bank, Subset.joined(tests), shots
        fresh = [len(set(one.labels.tolist())) for one in shots]
        self.classes = list(itertools.accumulate(fresh, initial=bank.base_classes))  # seen in each session
        self.sizes = [len(one.rows) for one in tests]
        self.images = list(itertools.accumulate(self.sizes))  # tested in each session
        session = torch.arange(len(tests), device=self.tests.rows.device)
        of = session.repeat_interleave(torch.tensor(self.sizes, device=session.device))
        self.members = (of[:, None] == session).float()  # (N, T + 1) 1 in the session that brought the image
        self.classifiers = [bank.classifier]  # after each session
        for one in shots:
            features = {"g": bank.g[one.rows], "g_tilde": bank.g_tilde[one.rows]}
            self.classifiers.append(self.classifiers[-1].extend(features, one.labels))
        self.specific_answers = cache(self._specific_answers)

    def _transferable(self, projection: Projection) -> tuple[list[TransferableClassifier], Tensor]:
        """The classifier of g after each session, and the scores of the last one for novel classes (N, K)."""
        shots, novel = Subset.joined(self.shots), range(self.bank.base_classes, self.classes[-1])
        images, squares = self.bank.g[shots.rows].double(), projection.images.squares  # as `DualClassifier`
        learnt = Projected(
            projection.classifier.values(images), None if squares is None else squares[shots.rows].double()
        )
        last = projection.classifier.extended(learnt, shots.labels, novel)
        classifiers = [last.upto(classes) for classes in self.classes]
        return classifiers, last.similarity(projection.images.take(self.tests.rows), novel)

    def _specific_answers(self, gamma: float) -> list[Tensor]:
        """The classes that g~ answers after each session (N,), with Resistance if gamma is not 0."""
        settings, answers = PrototypeSettings(resistance=gamma > 0, gamma=gamma), []
        g_tilde = self.bank.g_tilde[self.tests.rows]
        for classifier, images in zip(self.classifiers, self.images, strict=True):
            scores = replace(classifier, settings=settings).specific_scores(g_tilde[:images])
            answers.append(scores.argmax(1))
        return answers

    def through(self, projection: Projection, gates: Iterable[Gate]) -> list[Metrics]:
        """Return the metrics of gates of one space over all sessions, all strengths of a rule at once."""
        classifiers, novel = self._transferable(projection)
        best_base, counts = projection.best_base[self.tests.rows], []
        for (rule, gamma), alike in itertools.groupby(gates, key=lambda gate: (gate.rule, gate.gamma)):
            strengths = novel.new_tensor([gate.strength for gate in alike])[:, None, None]
            after = []
            sessions = zip(classifiers, self.images, self.specific_answers(gamma), strict=True)
            for classifier, n, specific in sessions:
                scores = classifier.novel_bias(rule, strengths).added_to(novel[:n, : len(classifier.noise)])
                answers = separate_answers(best_base[:n], scores, specific, self.bank.base_classes)
                after.append(self._count(answers))
            counts.append(torch.stack(after, dim=1))
        return [self._metrics(each) for each in torch.cat(counts).tolist()]

    def _count(self, answers: Tensor) -> Tensor:
        """Count the right ones and the base classes among answers (S, N), by session: (S, 2, T + 1)."""
        images = answers.shape[1]
        right, as_base = answers == self.tests.labels[:images], answers < self.bank.base_classes
        return (torch.stack([right, as_base], dim=1).float() @ self.members[:images]).long()

    def _metrics(self, counts: list[list[list[int]]]) -> Metrics:
        return metrics_from_counts(
            [Counts(*(part[: t + 1] for part in (self.sizes, *after))) for t, after in enumerate(counts)]
        )


def cache_stream(method: Method[Any], stream: Stream, reporter: Reporter = SILENT) -> CachedStream:
    """Embed every image of a stream."""
    tests = [embed(method, one.test) for one in stream.sessions]
    shots = [embed(method, one.train) for one in stream.sessions[1:]]
    train, images = embed(method, stream.base.train, reporter), [*tests, *shots]
    labels = [one.labels for one in images]
    rows = torch.arange(sum(map(len, labels)), device=train.labels.device)
    parts = torch.split(rows, [len(each) for each in labels])
    subsets = [Subset(*each) for each in zip(parts, labels, strict=True)]
    return CachedStream(FeatureBank(train, images), subsets[: len(tests)], subsets[len(tests) :])
