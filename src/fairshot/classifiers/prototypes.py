"""Prototypes: the mean feature of each class (the classifiers h of eq. 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ROWS_AT_ONCE = 4096  # features that are turned into float64 together


def prototypes(
    features: Tensor, labels: Tensor, classes: Sequence[int], weights: Tensor | None = None
) -> Tensor:
    """P of eq. 2: features (N, V, d) averaged over the images of each class, (C, V, d).

    Row i belongs to `classes[i]`; images of other classes are passed over. `weights` (N,) are those of the
    images in the mean.
    """
    sums, counts = class_sums(features, labels, classes, weights)
    empty = [c for c, count in zip(classes, counts.tolist(), strict=True) if count == 0]
    if empty:
        raise ValueError(f"no features for the classes {empty}; a prototype needs at least one")
    return (sums / counts[:, None, None]).to(features.dtype)


def class_sums(
    features: Tensor, labels: Tensor, classes: Sequence[int], weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum the features of each class, and count them: (C, V, d) and (C,), both float64.

    With `weights` (N,) both are weighted: an image of weight 2 is worth two images.

    In float64 the order of the images does not show in a mean that is rounded to float32: a class taught
    image by image, or together with others, has the same prototype. A product with the membership matrix
    instead of a scatter is the same on every run, on a GPU too.
    """
    wanted = torch.as_tensor(list(classes), device=labels.device, dtype=labels.dtype)
    shape = features.shape[1:]
    sums = torch.zeros(len(wanted), math.prod(shape), dtype=torch.float64, device=features.device)
    counts = torch.zeros(len(wanted), dtype=torch.float64, device=features.device)
    for start in range(0, len(features), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        member = (labels[rows] == wanted[:, None]).double()
        if weights is not None:
            member *= weights[rows].double()
        sums += member @ features[rows].flatten(1).double()
        counts += member.sum(1)
    return sums.reshape(-1, *shape), counts
