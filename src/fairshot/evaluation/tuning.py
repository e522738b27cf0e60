"""Tuning without the test set: base classes play novel ones, training images play test images."""

from __future__ import annotations

import numpy as np

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import LabelledPictures, Session, Stream
from fairshot.errors import UserError


def pseudo_stream(stream: Stream, novel: int, way: int, shots: int, held_out: int, seed: int = 0) -> Stream:
    """Make a smaller stream from the base training images alone.

    `novel` of the base classes, drawn by `seed`, arrive in sessions of `way` classes with `shots` images
    each; `held_out` training images of every class are kept back as its test images.
    """
    base = stream.base.train
    if not 0 < novel < stream.base_classes or novel % way:
        raise UserError(
            f"tune: {novel} pseudo-novel classes in sessions of {way} cannot be taken from "
            f"{stream.base_classes} base classes; give a multiple of the way below that number"
        )
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(stream.base_classes)
    kept = stream.base_classes - novel
    groups = [order[:kept], *order[kept:].reshape(-1, way)]
    sessions, first = [], 0
    for t, group in enumerate(groups):
        train, test = [], []
        for label in group:
            images = rng.permutation(np.flatnonzero(base.labels == label))
            if len(images) <= held_out + (shots if t else 0):
                raise UserError(
                    f"tune: class {stream.class_names[label]!r} has {len(images)} training images, too few "
                    f"to hold out {held_out}"
                )
            test.append(images[:held_out])
            train.append(images[held_out:] if t == 0 else images[held_out : held_out + shots])
        ids = tuple(range(first, first + len(group)))
        sessions.append(Session(ids, _relabelled(base, train, ids), _relabelled(base, test, ids)))
        first += len(group)
    names = tuple(stream.class_names[label] for label in order)
    return Stream(f"{stream.benchmark} (pseudo-novel)", names, tuple(sessions))


def _relabelled(base: LabelledPictures, by_class: list[Ints], ids: tuple[int, ...]) -> LabelledPictures:
    index = np.concatenate(by_class)
    labels = np.repeat(np.array(ids, dtype=np.int64), [len(part) for part in by_class])
    return LabelledPictures(base.pictures.take(index), labels)
