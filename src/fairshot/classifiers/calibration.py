"""Calibration: prototypes move towards samples that arrive after training (eq. 9 and 10)."""

from __future__ import annotations

import torch
from torch import Tensor

from fairshot.classifiers.prototypes import class_sums

NO_CLASS = -1  # no class absorbed this sample


def alphas(classes: int, base_classes: int, base: float, novel: float) -> Tensor:
    """Alpha of eq. 9, or alpha' of eq. 24, of each class (C,): one for base classes, one for novel ones."""
    return torch.where(torch.arange(classes) < base_classes, base, novel)


def moved(prototypes: Tensor, features: Tensor, absorbed_by: Tensor, alpha: Tensor) -> Tensor:
    """Eq. 9: the weighted mean of each prototype (C, V, d) and the unlabelled samples (N, V, d) it absorbed.

    `alpha` (C,) is the weight of the samples. A class that absorbed nothing stays as it is.
    """
    sums, counts = class_sums(features, absorbed_by, range(len(prototypes)))
    weight = (alpha.to(sums) * (counts > 0))[:, None, None]
    mean = sums / counts.clamp(min=1)[:, None, None]
    return ((1 - weight) * prototypes + weight * mean).to(prototypes.dtype)


def recognise(scores: Tensor, threshold: float, at_most: int) -> Tensor:
    """Eq. 10: the class of each sample (N,) that may absorb it, or NO_CLASS.

    A class absorbs the samples for which it scores highest of all, and above the threshold: at most
    `at_most`, the most similar first; among equals the first to arrive.
    """
    best, winner = scores.max(1)
    return absorbing(winner, best, threshold, at_most)


def absorbing(winner: Tensor, certainty: Tensor, threshold: float, at_most: int) -> Tensor:
    """Return the class of each sample (N,) that absorbs it, or NO_CLASS, where the classes are known.

    A class absorbs at most `at_most` of its samples whose certainty is above the threshold, the most certain
    first.
    """
    winner = torch.where(certainty > threshold, winner, NO_CLASS)
    return torch.where(rank_in_class(certainty, winner) < at_most, winner, NO_CLASS)


def rank_in_class(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the rank of each sample (N,) among those of its class: 0 for the highest score, or the first."""
    order = scores.argsort(descending=True, stable=True)
    order = order[labels[order].argsort(stable=True)]
    grouped = labels[order]
    places = torch.arange(len(order), device=order.device) - torch.searchsorted(grouped, grouped)
    return torch.empty_like(order).scatter(0, order, places)


def calibrate_labelled(
    prototypes: Tensor, counts: Tensor, features: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Eq. 9 with labels: alpha is the share of the new samples among all samples of their class.

    `counts` (C,) says how many samples each prototype was made from; the new counts are returned with the
    new prototypes, which are therefore the means of all labelled samples so far. With `weights` (N,) the
    means are weighted, and counts are sums of weights.
    """
    sums, fresh = class_sums(features, labels, range(len(prototypes)), weights)
    total = counts + (fresh.to(counts.dtype) if weights is None else fresh)
    weighted = counts.to(sums)[:, None, None] * prototypes + sums
    parts = torch.where(total > 0, total.to(sums), 1.0)
    means = (weighted / parts[:, None, None]).to(prototypes.dtype)
    return torch.where((fresh > 0)[:, None, None], means, prototypes), total
