"""Prototypes: the mean feature of each class (the classifiers h of eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def prototypes(features: torch.Tensor, labels: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """P of eq. 2: features (N, V, d) averaged over the images of each class, (C, V, d).

    Row i belongs to `classes[i]`; images of other classes are passed over.
    """
    sums, counts = class_sums(features, labels, classes)
    empty = [c for c, count in zip(classes, counts.tolist(), strict=True) if count == 0]
    if empty:
        raise ValueError(f"no features for the classes {empty}; a prototype needs at least one")
    return sums / counts[:, None, None]


def class_sums(
    features: torch.Tensor, labels: torch.Tensor, classes: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum the features of each class, and count them: (C, V, d) and (C,).

    A product with the membership matrix instead of a scatter: the same on every run, on a GPU too.
    """
    wanted = torch.as_tensor(list(classes), device=labels.device, dtype=labels.dtype)
    member = (labels == wanted[:, None]).to(features.dtype)
    sums = (member @ features.flatten(1)).reshape(-1, *features.shape[1:])
    return sums, member.sum(1)
