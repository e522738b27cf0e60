"""Modules after the backbone: the SR module and the cosine head of the training loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SR(nn.Sequential):
    """Selection and reorganisation (eq. 6): two fully connected layers around a ReLU, g~ = SR(g)."""

    def __init__(self, inputs: int, width: int, batch_norm: bool = False) -> None:
        norm: list[nn.Module] = [nn.BatchNorm1d(width)] if batch_norm else []
        super().__init__(nn.Linear(inputs, width), *norm, nn.ReLU(), nn.Linear(width, width))


class CosineHead(nn.Module):
    """Trainable vectors eta, one per row, and their cosines with features."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.eta = nn.Parameter(torch.randn(rows, width) / width**0.5)

    def forward(self, features: Tensor) -> Tensor:
        """Return the cosines (N, rows)."""
        return functional.linear(functional.normalize(features, dim=1), functional.normalize(self.eta, dim=1))


def cosine_cross_entropy(cosines: Tensor, rows: Tensor, scale: float, margin: float = 0.0) -> Tensor:
    """Scaled-cosine cross-entropy per sample (N,); a margin delta is subtracted from the true class's cosine.

    With scale 1 and raw logits this is eq. 3; the paper shows with the margin that it hurts novel classes.
    """
    if margin:
        cosines = cosines - margin * functional.one_hot(rows, cosines.shape[1]).to(cosines)
    return functional.cross_entropy(scale * cosines, rows, reduction="none")
