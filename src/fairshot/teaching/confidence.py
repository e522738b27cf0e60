"""How sure an answer is, and when it is no answer at all.

Two questions, two estimates. *Confidence*: given that the image shows a known class, how probable is it that
the answer is right? *Familiarity*: how probable is it that the image shows a known class, when as many show
none? Below a threshold of p_known the answer is "unknown". Both are logistic in the similarity of the
answer, in its lead over the runner-up and in the logarithm of the number of classes, for each of the two
looks of Algorithm 1 apart, and are chosen on held-out images: those that the classifiers which answered them
were not made of.
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
KEEP = 0.9  # of the held-out images of known classes get an answer
ENOUGH = 20  # held-out images, below which nothing is chosen


@dataclass(frozen=True)
class Decisions:
    """The signals by which answers are judged, and the look that decided each."""

    signals: Tensor  # (N, 3): similarity of the best class, its lead over the next, log of their number
    second_look: Tensor  # (N,)

    @classmethod
    def of(cls, scores: Tensor, second_look: Tensor) -> Self:
        """Take the signals from scores (N, C)."""
        best = scores.topk(min(2, scores.shape[1]), dim=1).values
        lead = best[:, 0] - best[:, 1] if best.shape[1] > 1 else best[:, 0]
        number = torch.full_like(lead, math.log(scores.shape[1]))
        return cls(torch.stack([best[:, 0], lead, number], dim=1), second_look)

    @classmethod
    def none(cls) -> Self:
        """Return no decisions."""
        return cls(torch.zeros(0, 3), torch.zeros(0, dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.signals)


@dataclass(frozen=True)
class Trials:
    """Answers to held-out images: of known classes, and of things that no class stands for."""

    known: Decisions
    right: Tensor  # (N,) whether the answer was
    weights: Tensor  # (N,) how much each counts
    strange: Decisions

    @classmethod
    def concatenate(cls, parts: list[Trials]) -> Self:
        """Put trials together, the known ones of each part weighing the same."""
        shares = [part.weights / part.weights.sum().clamp(min=1) for part in parts]
        known, strange = ([getattr(part, kind) for part in parts] for kind in ("known", "strange"))
        return cls(
            _joined(known), torch.cat([part.right for part in parts]), torch.cat(shares), _joined(strange)
        )


class Logistic(BaseModel):
    """A logistic model for each look: an offset, and a weight for each signal."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    first: tuple[float, float, float, float]
    second: tuple[float, float, float, float]

    @classmethod
    def fit(cls, decisions: Decisions, truth: Tensor, weights: Tensor, otherwise: Logistic) -> Self:
        """Fit the model of each look; where a look has nothing to tell true from false, take another's."""
        from sklearn.linear_model import LogisticRegression  # a second to import, and answers need no fit

        models = []
        for second, fallback in ((False, otherwise.first), (True, otherwise.second)):
            chosen = decisions.second_look == second
            true = truth[chosen].numpy()
            if len(true) < ENOUGH or true.all() or not true.any():
                models.append(fallback)
                continue
            share = (weights[chosen] / weights[chosen].mean()).numpy()
            model = LogisticRegression(C=100.0, max_iter=1000)
            model.fit(decisions.signals[chosen].numpy(), true, share)
            models.append((float(model.intercept_[0]), *model.coef_[0].tolist()))
        return cls(first=models[0], second=models[1])

    def of(self, decisions: Decisions) -> Tensor:
        """Return the probability (N,)."""
        first, second = (
            torch.sigmoid(offset + decisions.signals @ torch.tensor(weights))
            for offset, *weights in (self.first, self.second)
        )
        return torch.where(decisions.second_look, second, first)


AS_SOFTMAX = Logistic(first=(0, 0, 16, 0), second=(0, 0, 16, 0))  # of scale 16, between the best two
CERTAIN = Logistic(first=(9, 0, 0, 0), second=(9, 0, 0, 0))


class Confidence(BaseModel):
    """What makes answers sure and images familiar, and the threshold below which they are unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    right: Logistic = AS_SOFTMAX
    familiar: Logistic = CERTAIN
    threshold: float = 0.0
    source: str = "no held-out images yet: unknown is never answered"
    automatic: bool = True  # chosen anew, on the taught photos, with every lesson

    @classmethod
    def fit(cls, trials: Trials, source: str, automatic: bool = False, keep: float = KEEP) -> Self:
        """Choose both models, and the threshold that lets `keep` of the known images through."""
        if len(trials.known) < ENOUGH:
            return cls()
        right = Logistic.fit(trials.known, trials.right, trials.weights, AS_SOFTMAX)
        shares = [
            trials.weights / trials.weights.sum(),
            torch.full((len(trials.strange),), 1 / max(len(trials.strange), 1)),
        ]
        both = _joined([trials.known, trials.strange])
        is_known = torch.arange(len(both)) < len(trials.known)
        familiar = Logistic.fit(both, is_known, torch.cat(shares), CERTAIN)
        threshold = _quantile(familiar.of(trials.known), trials.weights, 1 - keep)
        return cls(right=right, familiar=familiar, threshold=threshold, source=source, automatic=automatic)

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Self:
        """Read what was chosen last."""
        row = connection.execute("SELECT value FROM settings WHERE key = ?", (SETTING,)).fetchone()
        return cls.model_validate_json(row[0])

    def write(self, connection: sqlite3.Connection) -> None:
        """Keep what was chosen."""
        connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (SETTING, self.model_dump_json()))


def _joined(parts: list[Decisions]) -> Decisions:
    signals, looks = [part.signals for part in parts], [part.second_look for part in parts]
    return Decisions(torch.cat(signals), torch.cat(looks))


def _quantile(values: Tensor, weights: Tensor, share: float) -> float:
    """Return the lowest value that is not among the lowest `share` of the weight."""
    order = values.argsort()
    passed = np.cumsum(weights[order].numpy()) / float(weights.sum()) <= share
    return float(values[order[min(int(passed.sum()), len(order) - 1)]])
