"""Try further signals by which photos of classes that were not taught could be found unknown.

    python scripts/try_unknown_signals.py [--root DATA]

Stores of 12 bird species with five photos each, of species 1 to 100 of CUB-200-2011 alone, on which settings
may be chosen: p_known is fitted to stores of one half of them, and judged on stores of the other half.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import normalize

from fairshot.classifiers.dual import DualClassifier
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.speed.photo_stores import (
    BIRDS,
    CHOOSING,
    SHOTS,
    PhotoFeatures,
    as_features,
    photo_features,
    positions_of,
    taught_classifier,
)
from fairshot.teaching.background import background_of
from fairshot.teaching.base_classifier import PhotoSpace
from fairshot.teaching.confidence import Decisions

CLASSES, DRAWS, ASKED, EACH = 12, 20, 120, 30
HALVES = (range(50), range(50, 100))
SHARPNESS = 16.0  # of logsumexp
TRIED = {
    "the signals of a store": (),
    "and logsumexp of the similarities": ("logsumexp",),
    "and similarity of the nearest photo": ("nearest photo",),
    "and similarity of the best class to its own photos": ("own photos",),
    "and similarity of the best class to the class next to it": ("next class",),
    "and cosine and distance before whitening by photos": ("plain cosine", "plain distance"),
    "and distance from the mean of all classes": ("mean of all",),
    "and share in the span of the class means": ("span of means",),
    "and share in the span of all photos": ("span of photos",),
}
Table = dict[str, Tensor]  # a column (N, signals) per name
Known = npt.NDArray[np.bool_]


def share_in_span(asked: Tensor, rows: Tensor) -> Tensor:
    """Return the length (N,) of the projection of rows of unit length on the span of others."""
    return (normalize(asked, dim=1) @ torch.linalg.qr(rows.T).Q).norm(dim=1)


def further_signals(space: PhotoSpace, classifier: DualClassifier, shots: Tensor, asked: Tensor) -> Table:
    """Return all signals that are tried of photos asked (N, d), in the space of everyday things."""
    x, q = (space.whitening.transform(g.double()[:, None])[:, 0] for g in (shots, asked))
    labels = torch.arange(len(shots)) // SHOTS
    means = x.view(-1, SHOTS, x.shape[1]).mean(1)
    scores = classifier.decide(as_features(asked)).scores
    best = scores.argmax(1)
    cosines = normalize(means, dim=1) @ normalize(means, dim=1).T
    others = normalize(SHOTS * means[labels] - x, dim=1)  # of the class, without the photo
    own = (normalize(x, dim=1) * others).sum(1).view(-1, SHOTS).mean(1)
    plain = normalize(q, dim=1) @ normalize(means, dim=1).T
    distance = torch.cdist(q, means).square()
    found = {
        "logsumexp": (SHARPNESS * scores).logsumexp(1),
        "nearest photo": (normalize(q, dim=1) @ normalize(x, dim=1).T).amax(1),
        "own photos": own[best],
        "next class": cosines.fill_diagonal_(-1).amax(1)[best],
        "plain cosine": plain.amax(1),
        "plain distance": distance.amin(1).log(),
        "mean of all": (distance.amin(1) / (q - means.mean(0)).square().sum(1)).log(),
        "span of means": share_in_span(q, means),
        "span of photos": share_in_span(q, x),
    }
    return {name: values[:, None] for name, values in found.items()}


def one_draw(
    photos: PhotoFeatures, space: PhotoSpace, pool: Sequence[int], foreign: Sequence[int], seed: int
) -> tuple[Table, Known]:
    """Teach a store of classes of the pool; return signals of own and foreign photos, and which are own."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(pool)[:CLASSES].tolist()
    shots, own = photos.draw(chosen, rng)
    strange = np.flatnonzero(np.isin(photos.labels, foreign) & ~np.isin(photos.labels, chosen))
    rows = np.concatenate([rng.permutation(own)[:ASKED], rng.permutation(strange)[:ASKED]])
    classifier = taught_classifier(space, photos.g[shots], positions_of(photos.labels[shots], chosen))
    asked = as_features(photos.g[rows])
    table = {"store": Decisions.of(classifier, classifier.decide(asked), asked["g"]).signals}
    table |= further_signals(space, classifier, photos.g[shots], photos.g[rows])
    return table, np.arange(len(rows)) < min(len(own), ASKED)


def columns(table: Table, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the signals of a store and those that are named."""
    return torch.cat([table[name].double() for name in ("store", *names)], dim=1).numpy()


def main() -> None:
    """Print AUROC with each signal: foreign species of the half that is judged, and of both halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    root = parser.parse_args().root
    background = background_of(DEFAULT_PRESET)
    assert background is not None
    space, photos = background.space(), photo_features(BIRDS, CHOOSING[BIRDS], EACH, root)
    fitted_to, judged = [], []
    for fitting, judging in (HALVES, HALVES[::-1]):
        fitted_to.append([one_draw(photos, space, fitting, fitting, seed) for seed in range(DRAWS)])
        judged.append(
            [
                [one_draw(photos, space, judging, foreign, DRAWS + seed) for seed in range(DRAWS)]
                for foreign in (judging, range(100))
            ]
        )
    print("| p_known by | foreign: same half | foreign: all |\n|---|---|---|")
    for title, names in TRIED.items():
        found: list[list[float]] = [[], []]
        for draws, kinds in zip(fitted_to, judged, strict=True):
            model = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=2000))
            model.fit(
                np.concatenate([columns(table, names) for table, _ in draws]),
                np.concatenate([known for _, known in draws]),
            )
            for kind, several in zip(found, kinds, strict=True):
                kind += [
                    roc_auc_score(known, model.decision_function(columns(table, names)))
                    for table, known in several
                ]
        print(f"| {title} | {np.mean(found[0]):.3f} | {np.mean(found[1]):.3f} |")


if __name__ == "__main__":
    main()
