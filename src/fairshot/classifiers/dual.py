"""Ways to combine transferable features g with class-specific features g~ (Algorithm 1, tables 3 and 11).

`first` are similarities of g to the prototypes of h, `second` those of g~ to the prototypes of h~, both
(N, C) over all classes seen; the ids of base classes are 0 .. base_classes - 1. What is returned are scores
(N, C) whose highest is the answer.
"""

from __future__ import annotations

import torch


def separately(first: torch.Tensor, second: torch.Tensor, base_classes: int) -> torch.Tensor:
    """Algorithm 1: a novel answer of the first look stands; a base answer gets a second look.

    The second look is over all seen classes and may still answer a novel one.
    """
    sees_base = first.argmax(1) < base_classes
    return torch.where(sees_base[:, None], second, first)


def integrated_features(g: torch.Tensor, g_tilde: torch.Tensor) -> torch.Tensor:
    """Pre of tables 3 and 11: feature vectors joined, (N, V, d + d~), then classified as in eq. 2.

    As they are, not normalised first: the printed row equals g~ alone almost to the digit, so the longer
    vector of the two must have ruled.
    """
    return torch.cat([g, g_tilde], dim=-1)


def integrated_similarities(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Post of tables 3 and 11: the two similarities are added."""
    return first + second


def anomaly_detection(first: torch.Tensor, second: torch.Tensor, base_classes: int) -> torch.Tensor:
    """AD of tables 3 and 11: what g~ does not place among the base classes is classified again with g.

    Again over all seen classes: the printed base accuracy rises above that of session 0, which a
    reclassification among novel classes alone could never do.
    """
    sees_base = second.argmax(1) < base_classes
    return torch.where(sees_base[:, None], second, first)
