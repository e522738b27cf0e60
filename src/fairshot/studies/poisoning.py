"""Poisoning: what hostile images among the unlabelled ones cost in overall accuracy, bounded or not.

After the last session a method is shown unlabelled images: the first half of every class's test images, the
natural stream, and an attack. It is judged by the second half. Attacks are aimed at one class of the last
session after the other, with those base training images that look most like it, or with noise; they come
before the natural stream, after it, or alone. What is told is the worst.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Ints, Pictures
from fairshot.benchmarks.stream import Stream
from fairshot.classifiers.similarity import similarity
from fairshot.methods.sss import SSS
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter

COUNTS = (10, 50, 200)
KINDS = ("wrong class", "noise", "a copied image")


@dataclass(frozen=True)
class Damage:
    """The worst that so many images of a kind did."""

    kind: str
    images: int
    bounded: bool
    cost: float  # points of overall accuracy, beside the same stream without the attack
    target: int  # the class at which the worst attack was aimed
    order: str  # when the attack came


@dataclass(frozen=True)
class Poisoning:
    """Overall accuracy in % with labelled images alone and with the natural stream, and the damages."""

    labelled: float
    natural: dict[str, float]  # by kind of Calibration
    damages: list[Damage]


def measure_poisoning(
    method: SSS, stream: Stream, counts: Sequence[int] = COUNTS, seed: int = 0, reporter: Reporter = SILENT
) -> Poisoning:
    """Attack a method that knows the base session of a stream and now learns the others."""
    for session in stream.sessions[1:]:
        method.learn(session.train)
    trial = _Trial(method, stream, max(counts), seed)
    natural, damages = {}, []
    with reporter.track("attacks", 2 * len(KINDS) * len(counts)) as advance:
        for bounded in (True, False):
            kind_of_calibration = "bounded" if bounded else "as in eq. 9"
            natural[kind_of_calibration] = trial.accuracy([trial.natural], bounded)
            for kind in KINDS:
                for count in counts:
                    damages.append(trial.worst(kind, count, bounded))
                    advance()
    return Poisoning(trial.accuracy([], True), natural, damages)


class _Trial:
    """A method that has learnt all sessions, images to calibrate it and images to judge it."""

    def __init__(self, method: SSS, stream: Stream, most: int, seed: int) -> None:
        last = len(stream.sessions) - 1
        test = stream.seen_test(last)
        features, first_half = method.embed(test.pictures), torch.from_numpy(_first_halves(test.labels))
        labels = torch.from_numpy(test.labels)
        self.method, self.targets = method, stream.sessions[last].classes
        self.natural = _taken(features, first_half)
        self.judged, self.truth = _taken(features, ~first_half), labels[~first_half]
        self.base = method.embed(stream.base.train.pictures)
        self.noise = method.embed(_noise(test.pictures, most, seed))

    def accuracy(self, batches: Sequence[Features], bounded: bool) -> float:
        """Overall accuracy in % once the batches have been absorbed, one after the other."""
        method = copy.copy(self.method)
        chosen = method.decision.model_copy(update={"bounded": bounded})
        method.classifier = replace(method.classifier, settings=chosen)
        for batch in batches:
            method.adapt(batch)
        return 100 * float((method.predict(self.judged).cpu() == self.truth).double().mean())

    def worst(self, kind: str, count: int, bounded: bool) -> Damage:
        """Find the target and the order in which an attack costs most."""
        reference = self.accuracy([self.natural], bounded)
        alone = self.accuracy([], bounded)
        found = []
        for target in self.targets:
            attack = self._attack(kind, count, target)
            orders = {
                "before": ([attack, self.natural], reference),
                "after": ([self.natural, attack], reference),
                "alone": ([attack], alone),
            }
            for order, (batches, without) in orders.items():
                cost = without - self.accuracy(batches, bounded)
                found.append(Damage(kind, count, bounded, cost, target, order))
        return max(found, key=lambda damage: damage.cost)

    def _attack(self, kind: str, count: int, target: int) -> Features:
        """Choose images against a class: base ones most similar to it, one of them many times, or noise."""
        if kind == "noise":
            return _taken(self.noise, torch.arange(count))
        scores = similarity(self.base["g"], self.method.classifier.prototypes[target : target + 1])[:, 0]
        order = scores.argsort(descending=True)
        return _taken(self.base, order[:count] if kind == "wrong class" else order[:1].repeat(count))


def _first_halves(labels: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the first half of the images of every class."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        chosen[mine[: len(mine) // 2]] = True
    return chosen


def _taken(features: Features, rows: Tensor) -> Features:
    return {name: value[rows.to(value.device)] for name, value in features.items()}


def _noise(pictures: Pictures, count: int, seed: int) -> Pictures:
    """Draw pictures of random pixels, as large as the first one."""
    shape = (count, *pictures[0].shape)
    return Pictures.from_array(np.random.default_rng([seed, 5]).integers(0, 256, shape, dtype=np.uint8))
