"""Similarity of features to prototypes (eq. 2)."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize


def similarity(features: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """S(., .) of eq. 2: cosine of corresponding views, averaged over the views.

    Features (N, V, d) and prototypes (C, V, d) give (N, C). A zero vector is similar to nothing: 0.
    """
    views = features.shape[1]
    return normalize(features, dim=-1).flatten(1) @ normalize(prototypes, dim=-1).flatten(1).T / views


def view_similarity(features: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """Cosine of each view on its own: (N, V, d) and (C, V, d) give (N, C, V)."""
    return torch.einsum("nvd,cvd->ncv", normalize(features, dim=-1), normalize(prototypes, dim=-1))
