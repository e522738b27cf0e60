"""Ways to combine transferable features g with class-specific features g~ (Algorithm 1, tables 3 and 11).

`first` are similarities of g to the prototypes of h, `second` those of g~ to the prototypes of h~, both
(N, C) over all classes seen; the ids of base classes are 0 .. base_classes - 1. Answers are class ids (N,).
"""

from __future__ import annotations

import torch


def separately(first: torch.Tensor, second: torch.Tensor, base_classes: int) -> torch.Tensor:
    """Algorithm 1: a novel answer of the first look stands; a base answer gets a second look.

    The second look is over all seen classes and may still answer a novel one.
    """
    return separate_scores(first, second, base_classes).argmax(1)


def separate_scores(first: torch.Tensor, second: torch.Tensor, base_classes: int) -> torch.Tensor:
    """Return the scores (N, C) of the look that decides in Algorithm 1."""
    sees_base = first.argmax(1) < base_classes
    return torch.where(sees_base[:, None], second, first)


def transferable_only(first: torch.Tensor) -> torch.Tensor:
    """Row g(x) of tables 3 and 11: eq. 2 on the transferable features."""
    return first.argmax(1)


def specific_only(second: torch.Tensor) -> torch.Tensor:
    """Row g~(x) of tables 3 and 11: eq. 2 on the class-specific features."""
    return second.argmax(1)


def integrated_features(g: torch.Tensor, g_tilde: torch.Tensor) -> torch.Tensor:
    """Pre of tables 3 and 11: feature vectors joined, (N, V, d + d~), then classified as in eq. 2.

    As they are, not normalised first: the printed row equals g~ alone almost to the digit, so the longer
    vector of the two must have ruled.
    """
    return torch.cat([g, g_tilde], dim=-1)


def integrated_similarities(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Post of tables 3 and 11: the two similarities are added, then the highest wins."""
    return (first + second).argmax(1)


def anomaly_detection(first: torch.Tensor, second: torch.Tensor, base_classes: int) -> torch.Tensor:
    """AD of tables 3 and 11: what g~ does not place among the base classes is classified again with g.

    Again over all seen classes: the printed base accuracy rises above that of session 0, which a
    reclassification among novel classes alone could never do.
    """
    look = second.argmax(1)
    return torch.where(look < base_classes, look, first.argmax(1))
