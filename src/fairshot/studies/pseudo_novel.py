"""Pseudo-novel classes on cached features: one training, many draws of who arrives when, with which shots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Stream, relabelled
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter
from fairshot.studies.cached_stream import CachedStream, FeatureBank, Subset, embed
from fairshot.studies.tuning import pseudo_stream, split_pseudo_novel, way_and_shots


def pseudo_streams(
    method: Method[Any],
    stream: Stream,
    novel: int,
    held_out: int,
    seed: int,
    draws: int,
    reporter: Reporter = SILENT,
) -> list[CachedStream]:
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
    gallery = FeatureBank(embed(method, base.train, reporter), [test, pool])
    device, first = test.labels.device, len(test.labels)
    held = Subset(torch.arange(first, device=device), test.labels)
    novel_rows = torch.from_numpy(first + rows.reshape(drawn.shape)).to(device)
    return [_course(gallery, held, each, way, shots) for each in novel_rows]


def _draw(stream: Stream, novel: int, images: int, seed: int, draws: int) -> Ints:
    """Draw the classes in the order they come, and images of each: (draws, classes, images)."""
    _, cast = split_pseudo_novel(stream, novel, np.random.default_rng([seed, 3]))
    of_class = [np.flatnonzero(stream.base.train.labels == label) for label in cast]
    rng = np.random.default_rng([seed, 4])
    return np.stack(
        [[rng.permutation(of_class[c])[:images] for c in rng.permutation(novel)] for _ in range(draws)]
    )


def _course(gallery: FeatureBank, held: Subset, rows: Tensor, way: int, shots: int) -> CachedStream:
    """Let classes of images (K, shots and test images) come in sessions, a way of them at a time."""
    labels = gallery.base_classes + torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)

    def sessions(images: slice) -> list[Subset]:
        parts = (torch.split(each[:, images], way) for each in (rows, labels))
        return [Subset(*(each.flatten() for each in part)) for part in zip(*parts, strict=True)]

    return CachedStream(gallery, [held, *sessions(slice(shots, None))], sessions(slice(shots)))
