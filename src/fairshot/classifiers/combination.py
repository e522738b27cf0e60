"""How transferable features g and class-specific features g~ decide together (Algorithm 1, tables 3 and 11).

`transferable` are the scores of g by h, `specific` those of g~ by h~, both (N, C) over all classes seen; the
ids of base classes are 0 .. base_classes - 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Rule = Literal["separately", "transferable_only", "specific_only", "pre", "post", "anomaly_detection"]


class Decision(NamedTuple):
    """The scores that decide; the highest is the answer."""

    scores: Tensor  # (N, C)
    by_specific: Tensor  # (N,) whether g~ decided


def combine(
    rule: Rule, transferable: Tensor, specific: Tensor, base_classes: int, pre: Tensor | None = None
) -> Decision:
    """Decide by one of the rules; `pre` are the scores of the joined features, for the rule of that name."""
    nobody = torch.zeros_like(transferable[:, 0], dtype=torch.bool)
    match rule:
        case "separately":
            return separately(transferable, specific, base_classes)
        case "transferable_only":
            return Decision(transferable, nobody)
        case "specific_only":
            return Decision(specific, ~nobody)
        case "post":  # the two similarities are added
            return Decision(transferable + specific, nobody)
        case "anomaly_detection":
            return anomaly_detection(transferable, specific, base_classes)
        case "pre":
            assert pre is not None
            return Decision(pre, nobody)


def separately(transferable: Tensor, specific: Tensor, base_classes: int) -> Decision:
    """Algorithm 1: a novel answer of g stands; where g answers a base class, g~ decides.

    g~ decides over all seen classes and may still answer a novel one.
    """
    answers_base = transferable.argmax(1) < base_classes
    return Decision(torch.where(answers_base[:, None], specific, transferable), answers_base)


def separate_answers(best_base: Tensor, novel: Tensor, specific: Tensor, base_classes: int) -> Tensor:
    """Algorithm 1 for many scores of novel classes at once: class ids (..., N).

    `best_base` (N,) is the highest transferable score of a base class, `novel` (..., N, K) those of the novel
    classes, `specific` (N,) the class that g~ answers.
    """
    if not novel.shape[-1]:
        return specific.expand(novel.shape[:-1])
    best, answer = novel.max(-1)
    return torch.where(best > best_base, base_classes + answer, specific)


def anomaly_detection(transferable: Tensor, specific: Tensor, base_classes: int) -> Decision:
    """AD of tables 3 and 11: what g~ does not place among the base classes is classified again with g.

    Again over all seen classes: the printed base accuracy rises above that of session 0, which a
    reclassification among novel classes alone could never do.
    """
    answers_base = specific.argmax(1) < base_classes
    return Decision(torch.where(answers_base[:, None], specific, transferable), answers_base)


def joined(g: Tensor, g_tilde: Tensor) -> Tensor:
    """Pre of tables 3 and 11: feature vectors joined, (N, V, d + d~), then classified as in eq. 2.

    As they are, not normalised first: the printed row equals g~ alone almost to the digit, so the longer
    vector of the two must have decided.
    """
    return torch.cat([g, g_tilde], dim=-1)
