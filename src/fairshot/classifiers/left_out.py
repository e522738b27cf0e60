"""Shots as if they had not been taught: compared with their class made without them, or of others alone.

All other classes, Resistance and the bias of a gate are as they are. Where shots whiten the space of the
gate, it is that without the shot, or without all shots of its class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairshot.classifiers.combination import joined
from fairshot.classifiers.dual import DualClassifier, Features, Scores
from fairshot.classifiers.gate import Projected, TransferableClassifier, cosine
from fairshot.classifiers.shot_covariance import WhiteningShots


def left_out_scores(classifier: DualClassifier, shots: Features, labels: Tensor) -> Scores:
    """Return the scores of shots of novel classes, each compared with its class made without that shot.

    Classes must have been made of at least two shots.
    """
    used, rows = torch.unique(labels, return_inverse=True)

    def own_similarity(means: Tensor, values: Tensor) -> Tensor:
        plain = TransferableClassifier.of_base(means[used], classifier.counts[used])
        return plain.left_out(plain.project(values), rows)

    gate, gated = classifier.gate, None
    if gate is not None:
        gated = _gated_left_out(gate, gate.project(shots["g"].double()), labels)
    return _with_own(classifier, classifier.scores(shots), shots, labels, own_similarity, gated)


def left_out_distances(classifier: DualClassifier, shots: Features, labels: Tensor) -> Tensor | None:
    """Return squared distances (N, C) of shots, as in `left_out_scores`; none without a gate."""
    gate = classifier.gate
    if gate is None or gate.metrics is not None:
        return None
    xx, xp, pp = left_out_products(gate, gate.project(shots["g"].double()), labels)
    return (xx - 2 * xp + pp).sum(-1).float()


def few_shot_scores(
    classifier: DualClassifier, shots: Features, labels: Tensor, others: Sequence[Tensor]
) -> Iterator[Scores]:
    """Return the scores of shots of novel classes, each compared with its class made of other shots.

    Each of `others` (N, k) gives one table of scores: the positions of the k shots that the class of each
    shot is made of.
    """
    scores, gate = classifier.scores(shots), classifier.gate
    gated: Iterable[Tensor | None] = itertools.repeat(None)
    if gate is not None:
        gated = gated_few_shot_scores(gate, gate.project(shots["g"].double()), labels, others)

    for each, bare in zip(others, gated, strict=False):

        def own_similarity(means: Tensor, values: Tensor, chosen: Tensor = each) -> Tensor:
            plain = TransferableClassifier.of_base(means[:0], labels[:0])
            return _made_of(plain, plain.project(values), chosen)

        yield _with_own(classifier, scores, shots, labels, own_similarity, bare)


def _with_own(
    classifier: DualClassifier,
    scores: Scores,
    shots: Features,
    labels: Tensor,
    own_similarity: Callable[[Tensor, Tensor], Tensor],
    gated: Tensor | None,
) -> Scores:
    """Replace the scores of the shots' own classes.

    `own_similarity` gives them (N,) from the means of all classes and the features of the shots; the gate, if
    there is one, has its own, `gated` (N, C), without bias.
    """
    g, g_tilde = shots["g"].double(), shots["g_tilde"].double()
    h, h_tilde = classifier.h.means, classifier.h_tilde.means
    own = _own(labels)
    if gated is None:
        transferable = scores.transferable.index_put(own, own_similarity(h, g).float())
    else:
        transferable = classifier.with_bias(gated.float())
        if classifier.gate is not None and classifier.gate.scatter is None:
            transferable = scores.transferable.index_put(own, transferable[own])
    specific, pre = transferable, scores.pre
    if scores.specific is not scores.transferable:
        specific = scores.specific.index_put(own, own_similarity(h_tilde, g_tilde).float())
    if pre is not None:
        pre = pre.index_put(own, own_similarity(joined(h, h_tilde), joined(g, g_tilde)).float())
    return Scores(transferable, specific, pre)


def _own(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return where a table (N, C) has the own class of each shot."""
    return torch.arange(len(labels), device=labels.device), labels


def _gated_left_out(gate: TransferableClassifier, shots: Projected, labels: Tensor) -> Tensor:
    """Similarity (S, C) of shots to all classes, each as if it had not been taught, without bias."""
    if gate.scatter is not None:
        return cosine(*left_out_products(gate, shots, labels))
    scores = gate.similarity(shots, range(len(gate.prototypes)))
    scores[_own(labels)] = gate.left_out(shots, labels)
    return scores


def left_out_products(
    gate: TransferableClassifier, shots: Projected, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Products x x (S, 1, V), x p, p p (S, C, V) of shots and classes, as if a shot had not been taught.

    Where shots are part of the space, it is that without the shot: a scatter that is less by the product
    of a vector with itself has an inverse that is more by such a product (Sherman and Morrison).
    """
    own = _own(labels)
    x, P, k = shots.values, gate.prototypes.to(shots.values), gate.counts[labels][:, None].double()
    rest = (k[..., None] * P[labels] - x) / (k[..., None] - 1)  # the own class without the shot
    if gate.scatter is None:
        r, factors = torch.zeros_like(x), x.new_zeros(x.shape[1])
    else:
        r, factors = gate.scatter.lost_without(x, labels), gate.scatter.factors.to(x)

    def with_all(vectors: Tensor) -> Tensor:
        products = torch.einsum("nvd,cvd->ncv", vectors, P)
        products[own] = (vectors * rest).sum(-1)
        return products

    factor = (factors / (1 - factors * r.square().sum(-1)).clamp(min=1e-6))[:, None]
    xr, rp = (x * r).sum(-1)[:, None], with_all(r)
    pp = P.square().sum(-1)[None].repeat(len(x), 1, 1)
    pp[own] = rest.square().sum(-1)
    xx = x.square().sum(-1)[:, None]
    return xx + factor * xr.square(), with_all(x) + factor * xr * rp, pp + factor * rp.square()


def gated_few_shot_scores(
    gate: TransferableClassifier, shots: Projected, labels: Tensor, others: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Similarity (S, C) of shots to all classes, their own made of other shots alone, without bias."""
    if gate.scatter is None:
        scores = gate.similarity(shots, range(len(gate.prototypes)))
        made = [_made_of(gate, shots, each) for each in others]
    else:
        scores = shots.values.new_empty(len(labels), len(gate.prototypes))
        means = torch.stack([shots.values[each].mean(1) for each in others])
        found = means.new_empty(means.shape[:2])
        for label in torch.unique(labels).tolist():
            rows = labels == label
            scores[rows], found[:, rows] = _without_scatter_of(
                gate, label, gate.scatter, shots.values[rows], means[:, rows]
            )
        made = list(found)
    for each in made:
        yield scores.index_put(_own(labels), each)


def _made_of(gate: TransferableClassifier, shots: Projected, others: Tensor) -> Tensor:
    """Similarity of each shot to a novel class made of other shots alone (S,), without bias.

    `others` (S, k) are their positions among the shots.
    """
    P = shots.values[others].mean(1)
    metrics = gate.metrics
    if metrics is not None:
        shares = metrics.extended(P, gate.prototypes[: gate.base_classes]).shares[-len(P) :]
        metrics = replace(metrics, shares=shares)
    products = replace(gate, prototypes=P, metrics=metrics).products(shots, range(len(P)))
    own = torch.arange(len(P), device=P.device)
    return cosine(*(each.expand(len(P), -1, -1)[own, own] for each in products))


def _without_scatter_of(
    gate: TransferableClassifier, label: int, scatter: WhiteningShots, x: Tensor, made: Tensor
) -> tuple[Tensor, Tensor]:
    """Similarity (N, C) of shots x (N, V, d) to all classes, and (K, N) to classes `made` (K, N, V, d).

    Residuals of the class are taken out of the scatter of the space, whose inverse changes by a matrix of
    their rank (Woodbury).
    """
    P, R = gate.prototypes.to(x), scatter.residuals_of(label).to(x)
    factor = scatter.factors.to(x)[:, None, None]
    gram = torch.einsum("nvd,mvd->vnm", R, R)
    change = factor * torch.linalg.inv(torch.eye(len(R)).to(gram) - factor * gram)
    ux, up, um = (torch.einsum("...vd,nvd->...vn", each, R) for each in (x, P, made))

    def product(one: Tensor, other: Tensor, u: Tensor, w: Tensor) -> Tensor:
        return (one * other).sum(-1) + torch.einsum("...vn,vnm,...vm->...v", u, change, w)

    xx, pp, mm = product(x, x, ux, ux), product(P, P, up, up), product(made, made, um, um)
    xp = torch.einsum("nvd,cvd->ncv", x, P) + torch.einsum("nvk,vkm,cvm->ncv", ux, change, up)
    return cosine(xx[:, None], xp, pp[None]), cosine(xx[None], product(x, made, ux, um), mm)
