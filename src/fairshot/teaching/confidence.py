"""Confidence P(right | known) and p_known, the probability that an image shows a known class.

*Confidence*: given that the image shows a known class, how probable is it that the answer is right?
*p_known*: how probable is it that the image shows a known class, when as many show none? Below a threshold of
p_known the answer is "unknown". Both are logistic in the similarity of the best class, in its lead over the
next and in the logarithm of the number of classes; one model where transferable features decided, another
where class-specific ones did. They are fitted to held-out images: those that the classifiers which answered
for them were not made of.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

SETTING = "confidence"
KEEP = 0.9  # share of the held-out images of known classes that get an answer
ENOUGH = 20  # held-out images, below which nothing is fitted


@dataclass(frozen=True)
class Decisions:
    """What confidence is judged by, for each image."""

    signals: (
        Tensor  # (N, 3): similarity of the best class, its lead over the next, log of the number of classes
    )
    specific: Tensor  # (N,) whether class-specific features decided

    @classmethod
    def of(cls, scores: Tensor, specific: Tensor) -> Self:
        """Take the signals from scores (N, C)."""
        best = scores.topk(min(2, scores.shape[1]), dim=1).values
        lead = best[:, 0] - best[:, 1] if best.shape[1] > 1 else best[:, 0]
        number = torch.full_like(lead, math.log(scores.shape[1]))
        return cls(torch.stack([best[:, 0], lead, number], dim=1), specific)

    @classmethod
    def none(cls) -> Self:
        """Return no decisions."""
        return cls(torch.zeros(0, 3), torch.zeros(0, dtype=torch.bool))

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
    def concatenate(cls, parts: list[Trials]) -> Self:
        """Put trials together; the known images of each part have the same weight together."""
        return cls(
            Decisions.concatenate([part.known for part in parts]),
            torch.cat([part.right for part in parts]),
            torch.cat([part.weights / part.weights.sum().clamp(min=1) for part in parts]),
            Decisions.concatenate([part.unknown for part in parts]),
        )


class Logistic(BaseModel):
    """A logistic model per kind of features that decided: an offset, and a weight for each signal."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    transferable: tuple[float, float, float, float]
    specific: tuple[float, float, float, float]

    @classmethod
    def fit(cls, decisions: Decisions, truth: Tensor, weights: Tensor, default: Logistic) -> Self:
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
            model.fit(decisions.signals[chosen].numpy(), true, share)
            models.append((float(model.intercept_[0]), *model.coef_[0].tolist()))
        return cls(transferable=models[0], specific=models[1])

    def probability(self, decisions: Decisions) -> Tensor:
        """Return the probability (N,)."""
        transferable, specific = (
            torch.sigmoid(offset + decisions.signals @ torch.tensor(weights))
            for offset, *weights in (self.transferable, self.specific)
        )
        return torch.where(decisions.specific, specific, transferable)


AS_SOFTMAX = Logistic(transferable=(0, 0, 16, 0), specific=(0, 0, 16, 0))  # scale 16, between the best two
CERTAIN = Logistic(transferable=(9, 0, 0, 0), specific=(9, 0, 0, 0))


class Confidence(BaseModel):
    """The models of confidence and of p_known, and the threshold of p_known below which it is "unknown"."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    right: Logistic = AS_SOFTMAX
    known: Logistic = CERTAIN
    threshold: float = 0.0
    source: str = "no held-out images yet: unknown is never answered"
    automatic: bool = True  # fitted again to the taught photos whenever the store changes

    @classmethod
    def fit(cls, trials: Trials, source: str, automatic: bool = False, keep: float = KEEP) -> Self:
        """Fit both models, and choose the threshold that lets `keep` of the known images through."""
        if len(trials.known) < ENOUGH:
            return cls()
        right = Logistic.fit(trials.known, trials.right, trials.weights, AS_SOFTMAX)
        shares = [
            trials.weights / trials.weights.sum(),
            torch.full((len(trials.unknown),), 1 / max(len(trials.unknown), 1)),
        ]
        both = Decisions.concatenate([trials.known, trials.unknown])
        is_known = torch.arange(len(both)) < len(trials.known)
        known = Logistic.fit(both, is_known, torch.cat(shares), CERTAIN)
        threshold = _quantile(known.probability(trials.known), trials.weights, 1 - keep)
        return cls(right=right, known=known, threshold=threshold, source=source, automatic=automatic)

    def probabilities(self, decisions: Decisions) -> tuple[Tensor, Tensor]:
        """Return confidence, P(known) x P(right | known), and p_known (N,)."""
        p_known = self.known.probability(decisions)
        return p_known * self.right.probability(decisions), p_known

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


def _quantile(values: Tensor, weights: Tensor, share: float) -> float:
    """Return the lowest value that is not among the lowest `share` of the weight."""
    order = values.argsort()
    passed = np.cumsum(weights[order].numpy()) / float(weights.sum()) <= share
    return float(values[order[min(int(passed.sum()), len(order) - 1)]])
