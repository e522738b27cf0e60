"""Make src/fairshot/teaching/data/: the statistics with which stores on a preset begin.

    python scripts/make_background.py [--root DATA]

The whitened space is learnt from photos of the 60 base classes of miniImageNet. The prior of confidence is
fitted to draws of stores, of 1 to 50 classes with 1 to 10 photos each: of species 1 to 100 of CUB-200-2011,
and of 20 of the base classes in a space learnt from the other 40. No class that `fairshot bench photos`
reports on is among them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from fairshot.classifiers.whitening import WithinClassCovariance
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.speed.photo_stores import (
    BIRDS,
    CHOOSING,
    EVERYDAY,
    PhotoFeatures,
    as_features,
    photo_features,
    positions_of,
    taught_classifier,
)
from fairshot.teaching.background import Background, within_variance
from fairshot.teaching.base_classifier import PhotoSpace
from fairshot.teaching.confidence import Prior, Trials
from fairshot.teaching.held_out import trials_of
from fairshot.tensor_files import write_tensors

POWER, SHRINKAGE, RANK = 0.5, 3.0, 64
EACH = {BIRDS: 30, EVERYDAY: 45}
SIZES, SHOTS, DRAWS = (1, 2, 3, 5, 12, 30, 50), (1, 2, 3, 5, 10), 4
ASKED = 60  # photos per draw, known and unknown
FOLDER = Path(__file__).parent.parent / "src/fairshot/teaching/data"
SOURCE = "photos of 100 bird species and 20 everyday things"


def covariance(photos: PhotoFeatures, classes: range) -> WithinClassCovariance:
    """Learn the covariance within classes."""
    rows = np.isin(photos.labels, list(classes))
    labels = positions_of(photos.labels[rows], classes)
    return WithinClassCovariance.fit(photos.g[rows][:, None], labels, len(classes), POWER)


def trials_of_draws(
    photos: PhotoFeatures, pool: range, space: PhotoSpace, sizes: tuple[int, ...]
) -> list[Trials]:
    """Ask stores of random classes about photos of theirs and of the others."""
    found = []
    for size in sizes:
        for shots in SHOTS:
            for seed in range(DRAWS):
                if size <= len(pool) - 5:
                    found.append(one_draw(photos, pool, space, size, shots, seed))
    return found


def one_draw(
    photos: PhotoFeatures, pool: range, space: PhotoSpace, size: int, shots: int, seed: int
) -> Trials:
    """Teach one store, and ask it."""
    rng = np.random.default_rng([size, shots, seed])
    chosen = rng.permutation(pool)[:size]
    rows = [rng.permutation(np.flatnonzero(photos.labels == label)) for label in chosen]
    taught = np.concatenate([each[:shots] for each in rows])
    asked = np.concatenate([each[shots:] for each in rows])
    labels = positions_of(photos.labels[taught], chosen)
    classifier = taught_classifier(space, photos.g[taught], labels)
    foreign = np.flatnonzero(np.isin(photos.labels, list(pool)) & ~np.isin(photos.labels, chosen))
    asked, foreign = rng.permutation(asked)[:ASKED], rng.permutation(foreign)[:ASKED]
    truth = torch.cat([positions_of(photos.labels[asked], chosen), torch.full((len(foreign),), -1)])
    return trials_of(classifier, as_features(photos.g[np.concatenate([asked, foreign])]), truth)


def main() -> None:
    """Write the statistics of the default preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    root = parser.parse_args().root
    birds, everyday = (photo_features(name, CHOOSING[name], EACH[name], root) for name in (BIRDS, EVERYDAY))
    learnt = covariance(everyday, range(40))
    part = PhotoSpace(learnt.whitening(SHRINKAGE), within_variance(learnt, SHRINKAGE))
    drawn = ((birds, CHOOSING[BIRDS]), (everyday, range(40, 60)))
    trials, alone = (
        Trials.concatenate([Trials.concatenate(trials_of_draws(*each, part, sizes)) for each in drawn])
        for sizes in (SIZES, (1,))
    )
    prior = Prior.fit(trials, alone, SOURCE)
    made = Background.of(covariance(everyday, CHOOSING[EVERYDAY]), RANK, SHRINKAGE, prior)
    write_tensors(FOLDER / f"{DEFAULT_PRESET}.safetensors", made.tensors(), {})
    (FOLDER / f"{DEFAULT_PRESET}.json").write_text(made.settings.model_dump_json(indent=1) + "\n")
    print(prior.model_dump_json(indent=1))


if __name__ == "__main__":
    main()
