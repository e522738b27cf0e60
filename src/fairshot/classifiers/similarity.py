"""Similarity of features to prototypes (eq. 2)."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize


def similarity(features: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """S(., .) of eq. 2: cosine of corresponding views, averaged over the views.

    Features (N, V, d) and prototypes (C, V, d) give (N, C). A zero vector is similar to nothing: 0.
    """
    return similarity_to(features, directions(prototypes))


def directions(vectors: torch.Tensor) -> torch.Tensor:
    """Normalise each view of vectors (N, V, d) and put the views side by side, (N, V * d)."""
    return normalize(vectors, dim=-1).flatten(1)


def similarity_to(features: torch.Tensor, prototype_directions: torch.Tensor) -> torch.Tensor:
    """`similarity` to prototypes whose `directions` (C, V * d) are kept: one matrix product."""
    return directions(features) @ prototype_directions.T / features.shape[1]


def view_similarity(features: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """Cosine of each view on its own: (N, V, d) and (C, V, d) give (N, C, V)."""
    return torch.einsum("nvd,cvd->ncv", normalize(features, dim=-1), normalize(prototypes, dim=-1))
