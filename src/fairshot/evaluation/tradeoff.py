"""The trade-off of the gates: overall against novel accuracy, for each rule and each of its strengths.

It works on the features of a finished embedder, so hundreds of settings take seconds. Every parameter of a
rule is chosen with `choose` on base classes that play novel ones (`evaluation.pseudo`), never on the test
images it is then judged by.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.classifiers.gate import FirstLook, Rule, Space, Spread
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.similarity import similarity
from fairshot.evaluation.confusion import confusion_matrix
from fairshot.evaluation.metrics import Metrics, metrics_from_confusions
from fairshot.methods.method import Method

POWERS = (0.5, 0.7, 1.0)
SHRINKAGES = (0.5, 1.0, 2.0, 4.0, 8.0)
OWN_SHARES = (0.1, 0.2, 0.4, 0.6)
STRENGTHS: Mapping[Rule, tuple[float, ...]] = {
    "constant": (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2),
    "unbiased": (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
    "left_out": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
GAMMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class Embedded:
    """The features of some images: transferable g (N, V, d), class-specific g~ (N, V, d~), and labels."""

    g: Tensor
    g_tilde: Tensor
    labels: Tensor

    def take(self, rows: Tensor) -> Embedded:
        """Return some of the images, with their labels."""
        return Embedded(self.g[rows], self.g_tilde[rows], self.labels[rows])


@dataclass(frozen=True)
class EmbeddedSession:
    """Training and test images of one session."""

    train: Embedded
    test: Embedded


def embed(method: Method[Any], data: LabelledPictures) -> Embedded:
    """Embed images with a method that has learnt the base session."""
    features = method.embed(data.pictures)
    labels = torch.from_numpy(data.labels).to(features["g"].device)
    return Embedded(features["g"], features["g_tilde"], labels)


def embed_stream(method: Method[Any], stream: Stream) -> list[EmbeddedSession]:
    """Embed every image of a stream."""
    return [EmbeddedSession(embed(method, one.train), embed(method, one.test)) for one in stream.sessions]


@dataclass(frozen=True)
class Gate:
    """A rule with all of its parameters: the settings of SSS that decide between its two looks."""

    rule: Rule
    strength: float
    space: Space | None = None  # None: features are compared as they are
    gamma: float = 0.0  # of Resistance in the second look

    @property
    def family(self) -> str:
        """The name of its curve."""
        if self.rule == "plain":
            return "Resistance"
        kind = "" if self.space is None else "own covariance, " if self.space.own_share else "whitened, "
        return kind + self.rule.replace("_", " ")

    @property
    def position(self) -> float:
        """The parameter that moves along the curve."""
        return self.gamma if self.rule == "plain" else self.strength

    def settings(self) -> dict[str, Any]:
        """The settings of SSS that are this gate."""
        space = {} if self.space is None else {"whitening": True, **asdict(self.space)}
        resistance = {"resistance": self.gamma > 0, "gamma": self.gamma}
        return {"gate": self.rule, "gate_strength": self.strength, **space, **resistance}


def curve(gate: Gate) -> list[Gate]:
    """Return the gates that differ from this one in their place on the curve alone."""
    if gate.rule == "plain":
        return [replace(gate, gamma=gamma) for gamma in GAMMAS]
    return [replace(gate, strength=strength) for strength in STRENGTHS[gate.rule]]


def gates_of(spaces: Iterable[Space | None]) -> list[Gate]:
    """Return every rule at every strength in some spaces, space by space: these share most of their work."""
    starts = [Gate(rule, 0.0, space) for space in spaces for rule in STRENGTHS]
    return [gate for start in starts for gate in curve(start)]


def common_gates() -> list[Gate]:
    """Return Resistance, and every rule on features as they are and whitened alike for all classes."""
    spaces = itertools.starmap(Space, itertools.product(POWERS, SHRINKAGES))
    return [*curve(Gate("plain", 0.0)), *gates_of([None, *spaces])]


def own_gates(near: Space) -> list[Gate]:
    """Return the rules with classes' own covariances, in spaces near one that is good without them."""
    place = SHRINKAGES.index(near.shrinkage)
    around = SHRINKAGES[max(0, place - 1) : place + 2]
    return gates_of(Space(near.power, s, share) for s, share in itertools.product(around, OWN_SHARES))


class BaseSession:
    """The training images of the base classes; what several streams that begin with them share."""

    def __init__(self, train: Embedded) -> None:
        self.train = train
        self.counts = train.labels.bincount()
        self.classes = len(self.counts)
        self.prototypes_tilde = prototypes(train.g_tilde, train.labels, range(self.classes))
        self.spread = cache(self._spread)
        self.first_look = lru_cache(1)(self._first_look)

    def _spread(self, power: float) -> Spread:
        return Spread.fit(self.train.g, self.train.labels, self.classes, power)

    def _first_look(self, space: Space | None) -> FirstLook:
        """The first look before the first novel class."""
        g, labels = self.train.g, self.train.labels
        if space is None:
            return FirstLook.begin(prototypes(g, labels, range(self.classes)), self.counts)
        return FirstLook.whitened(g, labels, self.spread(space.power), space)


class Course:
    """A stream of embedded sessions; what many gates share on it is computed once."""

    def __init__(self, base: BaseSession, sessions: Sequence[EmbeddedSession]) -> None:
        self.base, self.shots = base, [one.train for one in sessions[1:]]
        self.g = torch.cat([one.test.g for one in sessions])
        self.g_tilde = torch.cat([one.test.g_tilde for one in sessions])
        self.labels = torch.cat([one.test.labels for one in sessions]).cpu().numpy()
        self.sizes = [len(set(one.train.labels.tolist())) for one in sessions]
        self.classes = list(itertools.accumulate(self.sizes))  # seen in each session
        self.images = list(itertools.accumulate(len(one.test.labels) for one in sessions))
        self.first = lru_cache(1)(self._first)
        self.second = cache(self._second)

    def _first(self, space: Space | None) -> tuple[list[FirstLook], Tensor]:
        """The first look after each session, and the scores (N, C) of the last: earlier ones are a part."""
        looks = [self.base.first_look(space)]
        for t, shots in enumerate(self.shots):
            looks.append(
                looks[-1].extended(shots.g, shots.labels, range(self.classes[t], self.classes[t + 1]))
            )
        scores = looks[-1].scores(self.g)
        return [_favouring(look) for look in looks], scores.cpu()

    def _second(self, gamma: float) -> list[Tensor]:
        """What the second look answers after each session, with Resistance if gamma is not 0."""
        base = self.base.prototypes_tilde
        delta, seen, answers = torch.zeros_like(base), base, []
        for t, images in enumerate(self.images):
            if t > 0:
                shots = self.shots[t - 1]
                fresh = prototypes(shots.g_tilde, shots.labels, range(self.classes[t - 1], self.classes[t]))
                delta, seen = accumulate(delta, base, fresh), torch.cat([seen, fresh])
            P_tilde = torch.cat([resist(base, delta, gamma), seen[len(base) :]]) if gamma else seen
            answers.append(similarity(self.g_tilde[:images], P_tilde).argmax(1).cpu())
        return answers

    def through(self, gate: Gate) -> Metrics:
        """Take a gate through all sessions (Algorithm 1)."""
        looks, scores = self.first(gate.space)
        second, confusions = self.second(gate.gamma), []
        for t, (look, images, classes) in enumerate(zip(looks, self.images, self.classes, strict=True)):
            first = look.opened(scores[:images, :classes], gate.rule, gate.strength).argmax(1)
            answers = torch.where(first < self.base.classes, second[t], first)
            confusions.append(confusion_matrix(self.labels[:images], answers.cpu().numpy(), classes))
        return metrics_from_confusions(confusions, self.sizes)


def _favouring(look: FirstLook) -> FirstLook:
    """Keep what favouring novel classes needs, which is little, where many small steps are fast."""
    small = {name: getattr(look, name).cpu() for name in ("counts", "noise", "margins")}
    return replace(look, space=None, metrics=None, prototypes=look.prototypes[:0], **small)


@dataclass(frozen=True)
class Point:
    """What a gate gives, averaged over the streams it was taken through."""

    gate: Gate
    overall_avg: float
    inc_avg: float
    base_avg: float
    harmonic_mean_avg: float

    @property
    def both(self) -> float:
        """The mean of overall accuracy and harmonic mean: what a choice maximises."""
        return (self.overall_avg + self.harmonic_mean_avg) / 2


def tradeoff(courses: Sequence[Course], gates: Iterable[Gate]) -> list[Point]:
    """Take every gate through every stream."""
    points = []
    for gate in gates:
        found = [course.through(gate) for course in courses]
        names = ("overall_avg", "inc_avg", "base_avg", "harmonic_mean_avg")
        points.append(Point(gate, *(fmean(getattr(one, name) for one in found) for name in names)))
    return points


def search(courses: Sequence[Course]) -> list[Point]:
    """Try the gates: first those common to all classes, then own covariances near the best whitening."""
    points = tradeoff(courses, common_gates())
    whitened = max((point for point in points if point.gate.space is not None), key=lambda point: point.both)
    assert whitened.gate.space is not None
    return points + tradeoff(courses, own_gates(whitened.gate.space))


def choose(points: Iterable[Point]) -> dict[str, Point]:
    """Choose the best point of each curve by the mean of overall accuracy and harmonic mean."""
    best: dict[str, Point] = {}
    for point in points:
        family = point.gate.family
        if family not in best or point.both > best[family].both:
            best[family] = point
    return best
