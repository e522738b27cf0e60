"""The trade-off of the gates: overall against novel accuracy, for each rule and each of its strengths.

It works on the features of a finished embedder, so a curve takes seconds. A strength is chosen with `best` on
a pseudo-novel stream (base classes that play novel ones), never on the test images it is then judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.classifiers.dual import separately
from fairshot.classifiers.gate import favour, fit_whitening, noise_ratio, unbias
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.similarity import similarity
from fairshot.evaluation.confusion import confusion_matrix
from fairshot.evaluation.metrics import Metrics, metrics_from_confusions
from fairshot.methods.method import Method


@dataclass(frozen=True)
class Embedded:
    """The features of some images: transferable g (N, V, d), class-specific g~ (N, V, d~), and labels."""

    g: Tensor
    g_tilde: Tensor
    labels: Tensor


@dataclass(frozen=True)
class EmbeddedSession:
    """Training and test images of one session."""

    train: Embedded
    test: Embedded

    @property
    def classes(self) -> int:
        """How many classes the session brings."""
        return len(set(self.train.labels.tolist()))


def embed_stream(method: Method[Any], stream: Stream) -> list[EmbeddedSession]:
    """Embed every image of a stream with a method that has learnt the base session."""

    def embedded(data: LabelledPictures) -> Embedded:
        features = method.embed(data.pictures)
        labels = torch.from_numpy(data.labels).to(features["g"].device)
        return Embedded(features["g"], features["g_tilde"], labels)

    return [EmbeddedSession(embedded(one.train), embedded(one.test)) for one in stream.sessions]


class Situation:
    """What a rule sees after some sessions; what several strengths share is computed once."""

    def __init__(self, sessions: Sequence[EmbeddedSession]) -> None:
        self.base = sessions[0].train
        self.train = _joined([one.train for one in sessions])
        self.test = _joined([one.test for one in sessions])
        self.sizes = [one.classes for one in sessions]
        self.base_classes, self.classes = self.sizes[0], sum(self.sizes)
        self.shots = self.train.labels.bincount()[self.base_classes :]
        self.whitened = cache(self._whitened)
        self.whitened_second = cache(self._whitened_second)

    @cached_property
    def prototypes_tilde(self) -> Tensor:
        """Prototypes of h~ (C, V, d~)."""
        return prototypes(self.train.g_tilde, self.train.labels, range(self.classes))

    @cached_property
    def plain(self) -> tuple[Tensor, Tensor]:
        """First look by the features as they are (N, C), and the noise ratio of the novel classes."""
        return self._look(self.train.g, self.test.g)

    @cached_property
    def second(self) -> Tensor:
        """Second look without Resistance (N, C)."""
        return similarity(self.test.g_tilde, self.prototypes_tilde)

    def resisting(self, gamma: float) -> Tensor:
        """Second look with Resistance (N, C)."""
        base, novel = self.prototypes_tilde.split_with_sizes(
            [self.base_classes, self.classes - self.base_classes]
        )
        delta = torch.zeros_like(base)
        for session in novel.split_with_sizes(self.sizes[1:]):
            delta = accumulate(delta, base, session)
        return similarity(self.test.g_tilde, torch.cat([resist(base, delta, gamma), novel]))

    def _whitened(self, power: float, shrinkage: float) -> tuple[Tensor, Tensor]:
        """First look in the whitened space (N, C), and the noise ratio of the novel classes there."""
        space = fit_whitening(self.base.g, self.base.labels, self.base_classes, power, shrinkage)
        return self._look(space.transform(self.train.g), space.transform(self.test.g))

    def _whitened_second(self, shrinkage: float) -> Tensor:
        """Second look in a whitened space of g~ (N, C)."""
        space = fit_whitening(self.base.g_tilde, self.base.labels, self.base_classes, 1.0, shrinkage)
        return self._look(space.transform(self.train.g_tilde), space.transform(self.test.g_tilde))[0]

    def _look(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        first = similarity(test, prototypes(train, self.train.labels, range(self.classes)))
        return first, noise_ratio(train, self.train.labels, range(self.base_classes, self.classes))


def _joined(parts: Sequence[Embedded]) -> Embedded:
    return Embedded(
        torch.cat([part.g for part in parts]),
        torch.cat([part.g_tilde for part in parts]),
        torch.cat([part.labels for part in parts]),
    )


@dataclass(frozen=True)
class Rule:
    """A way to decide between the two kinds of features, and the strengths that trace its curve."""

    name: str
    strengths: tuple[float, ...]
    looks: Callable[[Situation, float], tuple[Tensor, Tensor]]  # first and second look (N, C)


def rules(power: float = 0.5, shrinkage: float = 1.0) -> tuple[Rule, ...]:
    """Return the rules that are compared; the whitened ones in the space of that power and shrinkage."""
    return (
        Rule("Resistance", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), lambda now, s: (now.plain[0], now.resisting(s))),
        Rule(
            "constant", (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07), lambda now, s: _favoured(now, now.plain, s)
        ),
        Rule("unbiased", (0.0, 0.25, 0.5, 0.75, 1.0, 1.25), lambda now, s: _unbiased(now, now.plain, s)),
        Rule(
            "whitened, constant",
            (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16),
            lambda now, s: _favoured(now, now.whitened(power, shrinkage), s),
        ),
        Rule(
            "whitened, unbiased",
            (0.0, 0.25, 0.5, 0.75, 1.0, 1.25),
            lambda now, s: _unbiased(now, now.whitened(power, shrinkage), s),
        ),
        Rule(
            "both whitened, constant",
            (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16),
            lambda now, s: (
                favour(now.whitened(power, shrinkage)[0], now.base_classes, s),
                now.whitened_second(shrinkage),
            ),
        ),
    )


def _favoured(now: Situation, look: tuple[Tensor, Tensor], constant: float) -> tuple[Tensor, Tensor]:
    return favour(look[0], now.base_classes, constant), now.second


def _unbiased(now: Situation, look: tuple[Tensor, Tensor], strength: float) -> tuple[Tensor, Tensor]:
    return unbias(look[0], now.base_classes, now.shots, look[1], strength), now.second


@dataclass(frozen=True)
class Point:
    """One rule at one strength, and what it gives."""

    rule: str
    strength: float
    metrics: Metrics


def tradeoff(sessions: Sequence[EmbeddedSession], compared: Iterable[Rule]) -> list[Point]:
    """Take every rule at every strength through all sessions."""
    situations = [Situation(sessions[: t + 1]) for t in range(len(sessions))]
    return [
        Point(rule.name, strength, _metrics(situations, rule, strength))
        for rule in compared
        for strength in rule.strengths
    ]


def best(points: Iterable[Point], by: str = "harmonic_mean_avg") -> Point:
    """Choose the point with the highest metric of that name."""
    return max(points, key=lambda point: getattr(point.metrics, by))


def _metrics(situations: Sequence[Situation], rule: Rule, strength: float) -> Metrics:
    confusions = []
    for now in situations:
        answers = separately(*rule.looks(now, strength), now.base_classes).argmax(1)
        confusions.append(confusion_matrix(now.test.labels.cpu().numpy(), answers.cpu().numpy(), now.classes))
    return metrics_from_confusions(confusions, situations[-1].sizes)
