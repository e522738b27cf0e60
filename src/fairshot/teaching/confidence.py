"""How sure an answer is, and when it is no answer at all.

The confidence of an answer is the probability that it is right, given that the image shows a known class. It
is estimated from the similarity of the answer and its lead over the runner-up, for each of the two looks of
Algorithm 1 apart. Below a threshold the answer is "unknown". All of it is chosen on held-out images: those
that the classifiers which answered them were not made of.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from sklearn.linear_model import LogisticRegression
from torch import Tensor

SETTING = "confidence"
KEEP = 0.9  # of the held-out images get an answer
ENOUGH = 20  # held-out images, below which nothing is chosen


@dataclass(frozen=True)
class Trials:
    """Answers to held-out images of known classes."""

    signals: Tensor  # (N, 2) of `decision_signals`
    second_look: Tensor  # (N,) whether the second look decided
    right: Tensor  # (N,) whether the answer was right
    weights: Tensor  # (N,) how much each counts

    @classmethod
    def concatenate(cls, parts: list[Trials]) -> Self:
        """Put trials together, each part weighing the same."""
        shares = [part.weights / part.weights.sum().clamp(min=1) for part in parts]
        return cls(
            torch.cat([part.signals for part in parts]),
            torch.cat([part.second_look for part in parts]),
            torch.cat([part.right for part in parts]),
            torch.cat(shares),
        )

    def of_look(self, second: bool) -> Trials:
        """Select the trials that one look decided."""
        chosen = self.second_look == second
        return Trials(
            self.signals[chosen], self.second_look[chosen], self.right[chosen], self.weights[chosen]
        )


class Look(BaseModel):
    """A logistic model of being right."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offset: float = 0.0
    similarity: float = 0.0
    lead: float = 16.0  # without held-out images: as a softmax of scale 16 between the best two

    @classmethod
    def fit(cls, trials: Trials) -> Self:
        """Fit the model, or leave it as it is where there is nothing to tell right from wrong."""
        right = trials.right.numpy()
        if len(right) < ENOUGH or right.all() or not right.any():
            return cls()
        weights = trials.weights.numpy() / trials.weights.mean().item()
        model = LogisticRegression(C=100.0, max_iter=1000).fit(trials.signals.numpy(), right, weights)
        similarity, lead = model.coef_[0].tolist()
        return cls(offset=float(model.intercept_[0]), similarity=similarity, lead=lead)

    def of(self, signals: Tensor) -> Tensor:
        """Return the probability (N,) of being right."""
        return torch.sigmoid(self.offset + signals @ torch.tensor([self.similarity, self.lead]))


class Confidence(BaseModel):
    """What makes answers sure, and the threshold below which they are unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: Look = Look()
    second: Look = Look()
    threshold: float = 0.0
    source: str = "no held-out images yet: unknown is never answered"
    automatic: bool = True  # chosen anew, on the taught photos, with every lesson

    @classmethod
    def fit(cls, trials: Trials, source: str, automatic: bool = False, keep: float = KEEP) -> Self:
        """Choose the models, and the threshold that lets `keep` of the held-out images through."""
        if len(trials.right) < ENOUGH:
            return cls()
        looks = [Look.fit(trials.of_look(second)) for second in (False, True)]
        chosen = cls(first=looks[0], second=looks[1], source=source, automatic=automatic)
        sure = chosen.of_signals(trials.signals, trials.second_look).numpy()
        order = np.argsort(sure)
        passed_over = np.cumsum(trials.weights.numpy()[order]) / float(trials.weights.sum()) <= 1 - keep
        first_kept = min(int(passed_over.sum()), len(order) - 1)
        return chosen.model_copy(update={"threshold": float(sure[order[first_kept]])})

    def of(self, scores: Tensor, second_look: Tensor) -> Tensor:
        """Return the confidence (N,) of the best answers to scores (N, C)."""
        return self.of_signals(decision_signals(scores), second_look)

    def of_signals(self, signals: Tensor, second_look: Tensor) -> Tensor:
        """Return the confidence (N,) of answers by their signals (N, 2) and the look that decided."""
        return torch.where(second_look, self.second.of(signals), self.first.of(signals))

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Self:
        """Read what was chosen last."""
        row = connection.execute("SELECT value FROM settings WHERE key = ?", (SETTING,)).fetchone()
        return cls.model_validate_json(row[0])


def write_confidence(connection: sqlite3.Connection, confidence: Confidence) -> None:
    """Keep what was chosen."""
    connection.execute(
        "INSERT OR REPLACE INTO settings VALUES (?, ?)", (SETTING, confidence.model_dump_json())
    )


def decision_signals(scores: Tensor) -> Tensor:
    """Similarity of the best class and its lead over the next: (N, 2)."""
    best = scores.topk(min(2, scores.shape[1]), dim=1).values
    lead = best[:, 0] - best[:, 1] if best.shape[1] > 1 else best[:, 0]
    return torch.stack([best[:, 0], lead], dim=1)
