"""Pseudo-novel classes on cached features: one training, many draws of who arrives when, with which shots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Stream, relabelled
from fairshot.evaluation.courses import Course, Gallery, Picked, embed
from fairshot.evaluation.tuning import cast_roles, pseudo_stream, way_and_shots
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter


def pseudo_courses(
    method: Method[Any],
    stream: Stream,
    novel: int,
    held_out: int,
    seed: int,
    draws: int,
    reporter: Reporter = SILENT,
) -> list[Course]:
    """Draw streams for a method that was trained on the base session of `pseudo_stream`.

    All begin with that base session and its held-out images. Which pseudo-novel class comes in which
    session, its shots and its test images are drawn anew each time from all of its training images: the
    network has seen none of them. Only images that were drawn are embedded, and once.
    """
    base = pseudo_stream(stream, novel, held_out, seed).base
    way, shots = way_and_shots(stream)
    drawn = _draw(stream, novel, shots + held_out, seed, draws)
    used, rows = np.unique(drawn, return_inverse=True)
    test = embed(method, base.test)
    pool = embed(method, relabelled(stream.base.train, [used], np.zeros(1, dtype=np.int64)))
    gallery = Gallery(embed(method, base.train, reporter), [test, pool])
    device, first = test.labels.device, len(test.labels)
    held = Picked(torch.arange(first, device=device), test.labels)
    novel_rows = torch.from_numpy(first + rows.reshape(drawn.shape)).to(device)
    return [_course(gallery, held, each, way, shots) for each in novel_rows]


def _draw(stream: Stream, novel: int, images: int, seed: int, draws: int) -> Ints:
    """Draw the classes in the order they come, and images of each: (draws, classes, images)."""
    _, cast = cast_roles(stream, novel, np.random.default_rng([seed, 3]))
    of_class = [np.flatnonzero(stream.base.train.labels == label) for label in cast]
    rng = np.random.default_rng([seed, 4])
    return np.stack(
        [[rng.permutation(of_class[c])[:images] for c in rng.permutation(novel)] for _ in range(draws)]
    )


def _course(gallery: Gallery, held: Picked, rows: Tensor, way: int, shots: int) -> Course:
    """Let classes of images (K, shots and test images) come in sessions, a way of them at a time."""
    labels = gallery.base_classes + torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)

    def sessions(images: slice) -> list[Picked]:
        parts = (torch.split(each[:, images], way) for each in (rows, labels))
        return [Picked(*(each.flatten() for each in part)) for part in zip(*parts, strict=True)]

    return Course(gallery, [held, *sessions(slice(shots, None))], sessions(slice(shots)))
