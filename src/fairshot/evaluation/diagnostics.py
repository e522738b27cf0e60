"""Diagnostics: feature mapping occupancy, and which novel classes base classes are confused with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Ints


def feature_mapping_occupancy(features: torch.Tensor) -> torch.Tensor:
    """FMO of definition 3 for each image: the sum of its normalised features g', averaged over views, (N,).

    The larger, the more feature mappings an image occupies. Features (N, V, d) are of g, behind a ReLU.
    """
    return normalize(features, dim=-1).sum(-1).mean(-1)


def base_occupancy(features: torch.Tensor, labels: torch.Tensor, base_classes: int) -> float:
    """Average FMO of the test images of base classes, as figure 8 shows it."""
    return float(feature_mapping_occupancy(features[labels < base_classes]).mean())


@dataclass(frozen=True)
class Loss:
    """A base class, what it lost since the base session, and the novel class it is most confused with."""

    base_class: int
    points: float  # of accuracy lost, in %; negative: gained
    confused_with: int
    share: float  # of its images that are answered with that class, in %


def losses(first: Ints, last: Ints) -> list[Loss]:
    """Compare the confusion matrices of the base session and of a later one: the greatest loss first."""
    base = len(first)
    if len(last) <= base:
        raise ValueError(f"the later matrix has {len(last)} classes; more than the {base} base ones expected")
    before = 100 * np.diagonal(first) / first.sum(1).clip(min=1)
    rows = last[:base]
    share = 100 * rows / rows.sum(1, keepdims=True).clip(min=1)
    points = before - np.diagonal(share)
    novel = share[:, base:].argmax(1) + base
    return [
        Loss(int(c), float(points[c]), int(novel[c]), float(share[c, novel[c]]))
        for c in np.argsort(-points, kind="stable")
    ]
