"""Resistance: base classifiers move away from the novel classes that resemble them (eq. 7 and 8).

Only `delta` is carried from session to session. The prototypes stay as training made them, so that the
step is taken anew before each inference and never adds up to drift.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairshot.classifiers.similarity import view_similarity

UNITS = 2.0**40  # per 1.0: delta counts in these, so a million terms, each at most 1, stay far below 2^63


def no_delta(base: Tensor) -> Tensor:
    """Delta of base prototypes (B, V, d) before the first novel class."""
    return torch.zeros(base.shape, dtype=torch.int64, device=base.device)


def accumulate(delta: Tensor, base: Tensor, novel: Tensor) -> Tensor:
    """Eq. 8: add the directions of novel classes (K, V, d), each weighted by its similarity.

    `delta` and `base` are (B, V, d). Whole numbers make the sum exact: it does not depend on the order of
    the classes, and a class that is forgotten leaves no trace.
    """
    for prototype in novel:
        delta = delta + delta_of(base, prototype)
    return delta


def delta_of(base: Tensor, novel: Tensor) -> Tensor:
    """What one novel class (V, d) adds to delta of each base class (B, V, d), in `UNITS`.

    A novel class at more than 90 degrees from a base class does not count for it.
    """
    direction = normalize(novel[None].double(), dim=-1)
    weight = view_similarity(base.double(), direction).clamp(min=0)
    return (weight.mT * direction * UNITS).round().to(torch.int64)


def resist(base: Tensor, delta: Tensor, gamma: float) -> Tensor:
    """Eq. 7: move the base prototypes (B, V, d) away from `delta` by gamma, for one inference.

    Prototypes are normalised first, which makes gamma independent of the scale of the features.
    Without novel classes (delta zero) their directions stay as they are.
    """
    return normalize(base, dim=-1) - gamma * normalize(as_float(delta).to(base), dim=-1)


def as_float(delta: Tensor) -> Tensor:
    """Delta as float64."""
    return delta.double() / UNITS
