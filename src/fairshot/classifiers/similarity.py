"""Similarity of features to prototypes (eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

COLUMNS = 64  # a multiple of the block of columns of every CPU's and GPU's product


def similarity(features: Tensor, prototypes: Tensor) -> Tensor:
    """S(., .) of eq. 2: cosine of corresponding views, averaged over the views.

    Features (N, V, d) and prototypes (C, V, d) give (N, C). A zero vector is similar to nothing: 0.
    """
    return similarity_to(features, prototype_directions(prototypes), len(prototypes))


def directions(vectors: Tensor) -> Tensor:
    """Normalise each view of vectors (N, V, d) and put the views side by side, (N, V * d)."""
    return normalize(vectors, dim=-1).flatten(1)


def prototype_directions(prototypes: Tensor) -> Tensor:
    """`directions` of prototypes (C, V, d), to be kept for `similarity_to`."""
    return padded(directions(prototypes))


def similarity_to(features: Tensor, kept: Tensor, classes: int) -> Tensor:
    """`similarity` to as many classes whose `prototype_directions` are kept: one matrix product."""
    return (directions(features) @ kept.T)[:, :classes] / features.shape[1]


def padded(rows: Tensor) -> Tensor:
    """Append rows of zeros up to a multiple of `COLUMNS`.

    A matrix product computes the last columns otherwise than the rest, if they do not fill a block: without
    these rows, the last bit of a score would depend on where its class stands among the others.
    """
    return torch.cat([rows, rows.new_zeros(-len(rows) % COLUMNS, *rows.shape[1:])])


def view_similarity(features: Tensor, prototypes: Tensor) -> Tensor:
    """Cosine of each view on its own: (N, V, d) and (C, V, d) give (N, C, V)."""
    return torch.einsum("nvd,cvd->ncv", normalize(features, dim=-1), normalize(prototypes, dim=-1))
