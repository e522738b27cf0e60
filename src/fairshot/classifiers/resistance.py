"""Resistance: base classifiers step back from the novel classes that resemble them (eq. 7 and 8).

Only `delta` is carried from session to session. The prototypes stay as training made them, so that the
step is taken anew before each inference and never adds up to drift.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from fairshot.classifiers.similarity import view_similarity


def accumulate(delta: torch.Tensor, base: torch.Tensor, novel: torch.Tensor) -> torch.Tensor:
    """Eq. 8: add the directions of this session's novel classes, each weighted by its similarity.

    `delta` and `base` are (B, V, d), `novel` is (K, V, d). Novel classes at more than 90 degrees from a
    base class do not count for it.
    """
    weight = view_similarity(base, novel).clamp(min=0)
    return delta + torch.einsum("bkv,kvd->bvd", weight, normalize(novel, dim=-1))


def resist(base: torch.Tensor, delta: torch.Tensor, gamma: float) -> torch.Tensor:
    """Eq. 7: move the base prototypes (B, V, d) away from `delta` by gamma, for one inference.

    Prototypes are normalised first, which makes gamma independent of the scale of the features.
    Without novel classes (delta zero) their directions stay as they are.
    """
    return normalize(base, dim=-1) - gamma * normalize(delta, dim=-1)
