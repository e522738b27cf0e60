"""Confidence, the probability that an answer is right, and p_known, that an image shows a known class.

*p_known*: how probable is it that the image shows a known class, when as many show none? Below a threshold of
p_known the answer is "unknown". *Confidence* is P(known) x P(right | known). Both factors are logistic in the
similarity of the best class, its lead over the next, the logarithm of the number of classes, one over the
number of images behind the best class, and the distance from it; one model where transferable features
decided, another where class-specific ones did. They are fitted to held-out images: those that the classifiers
which answered for them were not made of. A store on a backbone whose statistics are known begins with a
`Prior` that was fitted to photos of other classes; held-out images of its own move it.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import softplus

from fairshot.classifiers.combination import Decision
from fairshot.classifiers.dual import DualClassifier
from fairshot.models.embedder import Features

SETTING = "confidence"
KEEP = 0.9  # share of the held-out images of known classes that get an answer
NEAREST = -1.0  # log of a squared distance: no held-out photo was nearer to its class, a taught one may be
ENOUGH = 20  # held-out images, below which nothing is fitted without a prior
PRIOR_TRIALS = 50.0  # held-out images that a prior is worth
STEPS = 25  # of Newton's method, which needs fewer
SMALLEST_STEP = 1e-9
SIGNALS = 5
LEAD, NUMBER = 1, 2  # positions of two of them
FEW_SIGNALS = 3  # the first of them, which a store without a prior uses: it has few images to fit them to
Weights = Annotated[tuple[float, ...], Field(min_length=SIGNALS + 1, max_length=SIGNALS + 1)]


@dataclass(frozen=True)
class Decisions:
    """What confidence is judged by, for each image."""

    # (N, 5): similarity of the best class, its lead over the next, log of the number of classes, one over the
    # number of images behind the best class, log of the squared distance from it
    signals: Tensor
    specific: Tensor  # (N,) whether class-specific features decided

    @classmethod
    def of(
        cls,
        classifier: DualClassifier,
        decision: Decision,
        g: Tensor,
        distances: Tensor | None = None,
    ) -> Self:
        """Take the signals from the scores (N, C) of a classifier for features g (N, V, d).

        Squared `distances` (N, C) are given if the classes differ from image to image. A score of minus
        infinity is that of a class which is left out.
        """
        scores, specific = decision
        best, classes = scores.topk(min(2, scores.shape[1]), dim=1)
        lead = best[:, 0]
        if best.shape[1] > 1:
            lead = torch.where(best[:, 1] > -torch.inf, best[:, 0] - best[:, 1], best[:, 0])
        number = (scores > -torch.inf).sum(1).to(scores).log()
        behind = 1 / classifier.counts[classes[:, 0]]
        squared = None if distances is None else distances.gather(1, classes[:, :1])[:, 0]
        distance = _log_distance(classifier, g, best[:, 0], classes[:, 0], squared)
        return cls(torch.stack([best[:, 0], lead, number, behind, distance], dim=1), specific)

    @classmethod
    def none(cls) -> Self:
        """Return no decisions."""
        return cls(torch.zeros(0, SIGNALS), torch.zeros(0, dtype=torch.bool))

    @classmethod
    def concatenate(cls, parts: list[Decisions]) -> Self:
        """Put decisions one after another."""
        return cls(torch.cat([part.signals for part in parts]), torch.cat([part.specific for part in parts]))

    def __len__(self) -> int:
        return len(self.signals)


@dataclass(frozen=True)
class Trials:
    """Answers to held-out images of known classes, and to images of no known class."""

    known: Decisions
    right: Tensor  # (N,) whether the answer was right
    weights: Tensor  # (N,) of each image in the fit
    unknown: Decisions

    @classmethod
    def none(cls) -> Self:
        """Return no answers."""
        return cls(Decisions.none(), torch.zeros(0, dtype=torch.bool), torch.zeros(0), Decisions.none())

    @classmethod
    def concatenate(cls, parts: list[Trials]) -> Self:
        """Put trials together; the known images of each part have the same weight together."""
        return cls(
            Decisions.concatenate([part.known for part in parts]),
            torch.cat([part.right for part in parts]),
            torch.cat([part.weights / part.weights.sum().clamp(min=1) for part in parts]),
            Decisions.concatenate([part.unknown for part in parts]),
        )


class _Model(BaseModel):
    """A part of what a store keeps of confidence: finite numbers, and no others than these."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Logistic(_Model):
    """A logistic model per kind of features that decided: an offset, and a weight for each signal."""

    transferable: Weights
    specific: Weights

    @classmethod
    def fit(
        cls,
        decisions: Decisions,
        truth: Tensor,
        weights: Tensor,
        default: Logistic,
        signals: int = FEW_SIGNALS,
    ) -> Self:
        """Fit both models; one with too few decisions, or all of them true or all false, is the default's."""
        from sklearn.linear_model import LogisticRegression  # a second to import, and answers need no fit

        models = []
        for chosen, fallback in (
            (~decisions.specific, default.transferable),
            (decisions.specific, default.specific),
        ):
            true = truth[chosen].numpy()
            if len(true) < ENOUGH or true.all() or not true.any():
                models.append(fallback)
                continue
            share = (weights[chosen] / weights[chosen].mean()).numpy()
            model = LogisticRegression(C=100.0, max_iter=1000)
            model.fit(decisions.signals[chosen, :signals].numpy(), true, share)
            unused = (0.0,) * (SIGNALS - signals)
            models.append((float(model.intercept_[0]), *model.coef_[0].tolist(), *unused))
        return cls(transferable=models[0], specific=models[1])

    def probability(self, decisions: Decisions) -> Tensor:
        """Return the probability (N,)."""
        transferable, specific = (
            torch.sigmoid(offset + decisions.signals @ torch.tensor(weights))
            for offset, *weights in (self.transferable, self.specific)
        )
        return torch.where(decisions.specific, specific, transferable)


_SCALE_16, _NINE = (0, 0, 16, 0, 0, 0), (9, 0, 0, 0, 0, 0)
AS_SOFTMAX = Logistic(transferable=_SCALE_16, specific=_SCALE_16)  # between the best two
CERTAIN = Logistic(transferable=_NINE, specific=_NINE)


class LogisticPrior(_Model):
    """A logistic model of transferable features, and how surely its weights are known."""

    weights: Weights
    information: Annotated[tuple[Weights, ...], Field(min_length=SIGNALS + 1, max_length=SIGNALS + 1)]

    @classmethod
    def fit(cls, decisions: Decisions, truth: Tensor, weights: Tensor) -> Self:
        """Fit the weights; the information (second derivatives) is that of one image on average."""
        nothing = Logistic(transferable=(0,) * (SIGNALS + 1), specific=(0,) * (SIGNALS + 1))
        fitted = torch.tensor(Logistic.fit(decisions, truth, weights, nothing, SIGNALS).transferable).double()
        X = _with_offset(decisions)
        information = _information(X, fitted, weights.double() / weights.sum())
        return cls(weights=tuple(fitted.tolist()), information=tuple(map(tuple, information.tolist())))

    def moved(self, decisions: Decisions, truth: Tensor, weights: Tensor) -> Logistic:
        """Return the most probable model after held-out images of a store, by Newton's method.

        A step is halved until the model is more probable after it: where photos are in wrong classes, whole
        steps lead away.
        """
        mean = torch.tensor(self.weights, dtype=torch.float64)
        precision = PRIOR_TRIALS * torch.tensor(self.information, dtype=torch.float64)
        X, y, share, w = _with_offset(decisions), truth.double(), weights.double(), mean

        def loss(w: Tensor) -> Tensor:
            z, moved = X @ w, w - mean
            return share @ (softplus(z) - y * z) + moved @ precision @ moved / 2

        for _ in range(STEPS if len(X) else 0):
            gradient = X.T @ (share * (torch.sigmoid(X @ w) - y)) + precision @ (w - mean)
            step = torch.linalg.solve(_information(X, w, share) + precision, gradient)
            while bool(loss(w - step) > loss(w)) and float(step.abs().max()) > SMALLEST_STEP:
                step = step / 2
            w = w - step
        return _both(tuple(w.tolist()))


class Alone(_Model):
    """What p_known and its threshold are in a store of a single class."""

    known: Weights
    threshold: float


class Prior(_Model):
    """What confidence begins with: models and threshold, fitted to photos of other classes."""

    right: LogisticPrior
    known: LogisticPrior
    threshold: float
    source: str
    alone: Alone | None = None  # none: in a store that was made before there was one

    @classmethod
    def fit(cls, trials: Trials, alone: Trials, source: str, keep: float = KEEP) -> Self:
        """Fit both models to stores of any size, and that of stores of a single class.

        The thresholds let `keep` of the known images through.
        """
        known = LogisticPrior.fit(*_known_and_unknown(trials))
        right = LogisticPrior.fit(trials.known, trials.right, trials.weights)
        single = LogisticPrior.fit(*_known_and_unknown(alone)).weights
        return cls(
            right=right,
            known=known,
            threshold=_threshold(_both(known.weights), trials, keep),
            source=source,
            alone=Alone(known=single, threshold=_threshold(_both(single), alone, keep)),
        )

    def confidence(self, trials: Trials, classes: int) -> Confidence:
        """Return the confidence of a store of so many classes, with held-out images of its own, none perhaps.

        A single class leads over nothing, so that other weights hold; and if it is known, it is right.
        """
        if classes == 1 and self.alone is not None:
            known, threshold = _both(self.alone.known), self.alone.threshold
            return Confidence(right=CERTAIN, known=known, threshold=threshold, source=self.source, prior=self)
        if not len(trials.unknown):  # images of known classes alone do not tell what is unknown
            trials = Trials.none()
        both, is_known, shares = _known_and_unknown(trials)
        count = len(trials.known)
        known = self.known.moved(both, is_known, shares * 2 * count)
        right = self.right.moved(trials.known, trials.right, trials.weights)
        threshold, source = self.threshold, self.source
        if count:
            own = _threshold(known, trials, KEEP)
            threshold = (PRIOR_TRIALS * threshold + count * own) / (PRIOR_TRIALS + count)
            source += f", and {count} taught photos, each answered for without itself"
        return Confidence(right=right, known=known, threshold=threshold, source=source, prior=self)


class Confidence(_Model):
    """The models of confidence and of p_known, and the threshold of p_known below which it is "unknown"."""

    right: Logistic = AS_SOFTMAX
    known: Logistic = CERTAIN
    threshold: float = 0.0
    source: str = "no held-out images yet: unknown is never answered"
    automatic: bool = True  # fitted again to the taught photos whenever the store changes
    prior: Prior | None = None  # what it is fitted from

    @classmethod
    def fit(cls, trials: Trials, source: str, automatic: bool = False, keep: float = KEEP) -> Self:
        """Fit both models, and choose the threshold that lets `keep` of the known images through."""
        if len(trials.known) < ENOUGH:
            return cls()
        right = Logistic.fit(trials.known, trials.right, trials.weights, AS_SOFTMAX)
        known = Logistic.fit(*_known_and_unknown(trials), CERTAIN, _comparable_signals(trials))
        threshold = _threshold(known, trials, keep)
        return cls(right=right, known=known, threshold=threshold, source=source, automatic=automatic)

    def judge(self, classifier: DualClassifier, features: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores (N, C), confidence, which is P(known) x P(right | known), and p_known (N,)."""
        decision = classifier.decide(features)
        decisions = Decisions.of(classifier, decision, features["g"])
        p_known = self.known.probability(decisions)
        return decision.scores, p_known * self.right.probability(decisions), p_known

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Self:
        """Read what a store answers with."""
        row = connection.execute("SELECT value FROM settings WHERE key = ?", (SETTING,)).fetchone()
        return cls.model_validate_json(row[0])

    def write(self, connection: sqlite3.Connection) -> None:
        """Write it, without an event."""
        connection.execute(
            "INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", (SETTING, self.model_dump_json())
        )


def _both(weights: Weights) -> Logistic:
    """Return the model with the same weights whichever features decided."""
    return Logistic(transferable=weights, specific=weights)


def _threshold(known: Logistic, trials: Trials, keep: float) -> float:
    """Return the p_known that `keep` of the known images reach."""
    return _quantile(known.probability(trials.known), trials.weights, 1 - keep)


def _known_and_unknown(trials: Trials) -> tuple[Decisions, Tensor, Tensor]:
    """Return all decisions, which are of known classes, and weights: half of the whole for either kind."""
    shares = [
        trials.weights / (2 * trials.weights.sum().clamp(min=1e-12)),
        torch.full((len(trials.unknown),), 0.5 / max(len(trials.unknown), 1)),
    ]
    both = Decisions.concatenate([trials.known, trials.unknown])
    return both, torch.arange(len(both)) < len(trials.known), torch.cat(shares)


def _comparable_signals(trials: Trials) -> int:
    """Return how many of the signals, the first, may tell unknown images from known ones.

    Where the class of an image is left out, one fewer is left than the store has: the number of classes would
    tell such images by itself, and a single class that is left leads over nothing.
    """
    known, unknown = trials.known.signals[:, NUMBER], trials.unknown.signals[:, NUMBER]
    if bool((unknown == 0).any()):
        return LEAD
    return NUMBER if bool((known == known[0]).all()) else FEW_SIGNALS


def _log_distance(
    classifier: DualClassifier, g: Tensor, best: Tensor, classes: Tensor, squared: Tensor | None
) -> Tensor:
    """Log of the squared distance (N,) of images from the classes most similar to them, where g is whitened.

    In units of the variance within the classes taught, which differs between birds and everyday things; 0
    where nothing is known of that variance.
    """
    expected, gate = getattr(classifier.settings, "within_variance", 0.0), classifier.gate
    if not expected or gate is None:
        return torch.zeros_like(best)
    degrees = (gate.counts[gate.base_classes :] - 1).double()
    variance = (expected + degrees @ gate.noise[:, 0].double()) / (1 + degrees.sum())
    if squared is None:
        x = gate.values(g).flatten(1).norm(dim=1)
        p = gate.prototypes.flatten(1).norm(dim=1)[classes]
        squared = x * x + p * p - 2 * x * p * best
    return (squared / variance.to(squared)).clamp(min=math.exp(NEAREST)).log()


def _with_offset(decisions: Decisions) -> Tensor:
    signals = decisions.signals.double()
    return torch.cat([torch.ones(len(signals), 1, dtype=torch.float64), signals], dim=1)


def _information(X: Tensor, w: Tensor, share: Tensor) -> Tensor:
    """Second derivatives of the logistic loss, whose images (N, signals) have weights (N,)."""
    p = torch.sigmoid(X @ w)
    return X.T @ (X * (share * p * (1 - p))[:, None])


def _quantile(values: Tensor, weights: Tensor, share: float) -> float:
    """Return the lowest value that is not among the lowest `share` of the weight."""
    order = values.argsort()
    passed = np.cumsum(weights[order].numpy()) / float(weights.sum()) <= share
    return float(values[order[min(int(passed.sum()), len(order) - 1)]])
