"""Pseudo-novel classes: base classes play novel ones, training images play test images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Stream, number_sessions
from fairshot.errors import BadSetting, HeldOutUnfit, PseudoNovelUnfit
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.studies.cached_stream import CachedStream, FeatureBank, Subset, embed
from fairshot.training.hardware import describe_device

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MOST_NOVEL, MOST_HELD_OUT = 20, 50  # where nothing else is asked for


def pseudo_sizes(stream: Stream, novel: int | None, held_out: int | None) -> tuple[int, int]:
    """Return how many base classes play novel ones and how many images per class are held out.

    What is not given fits the stream: a third of the base classes, in whole sessions, and a fifth of the
    images of the smallest class.
    """
    way, shots = way_and_shots(stream)
    if novel is None:
        novel = max(way, min(stream.base_classes // 3, MOST_NOVEL) // way * way)
    if held_out is None:
        fewest = int(np.bincount(stream.base.train.labels, minlength=stream.base_classes).min())
        held_out = max(1, min(fewest // 5, fewest - shots, MOST_HELD_OUT))
    return novel, held_out


def pseudo_stream(stream: Stream, novel: int, held_out: int, seed: int = 0) -> Stream:
    """Make a smaller stream from the base training images alone.

    `novel` of the base classes, drawn by `seed`, arrive in sessions as large as those of the stream, with
    as few images; `held_out` training images of every class are kept back as its test images.
    """
    base = stream.base.train
    way, shots = way_and_shots(stream)
    if not 0 < novel < stream.base_classes or novel % way:
        raise PseudoNovelUnfit(novel, way, stream.base_classes)
    rng = np.random.default_rng([seed, 3])
    pseudo_base, pseudo_novel = split_pseudo_novel(stream, novel, rng)

    def divided(label: int, needed: int, at_most: int | None) -> tuple[Ints, Ints]:
        """Return the training and the test images of a class."""
        images = rng.permutation(np.flatnonzero(base.labels == label))
        if len(images) < held_out + needed:
            raise HeldOutUnfit(stream.class_names[label], len(images), held_out, needed)
        return images[held_out:][:at_most], images[:held_out]

    groups = [[divided(label, 1, None) for label in pseudo_base]]
    groups += [[divided(label, shots, shots) for label in each] for each in pseudo_novel.reshape(-1, way)]
    names = tuple(stream.class_names[label] for label in (*pseudo_base, *pseudo_novel))
    sessions = number_sessions(groups, base.pictures, base.pictures)
    return Stream(f"{stream.benchmark} (pseudo-novel)", names, sessions)


def with_as_many_steps(recipe: Recipe, stream: Stream, novel: int, held_out: int) -> Recipe:
    """Return the recipe whose base session takes as many steps on the pseudo-novel stream as on the stream.

    Fewer classes and images make shorter epochs; what is best for a short training need not be for a long
    one. Exact up to whole epochs where all classes have as many images.
    """
    training, base = recipe.training, stream.base_classes
    whole = len(stream.base.train)
    part = max(1, round((whole / base - held_out) * (base - novel)))
    steps, fewer = (images // min(training.batch, images) for images in (whole, part))
    authors = training.authors_epochs
    longer = training.model_copy(
        update={
            "epochs": round(training.epochs * steps / fewer),
            "authors_epochs": authors and round(authors * steps / fewer),
            "warmup_epochs": training.warmup_epochs * steps / fewer,
        }
    )
    return replace(recipe, training=longer)


def split_pseudo_novel(stream: Stream, novel: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw which base classes go on playing base classes, and which play novel ones."""
    order = rng.permutation(stream.base_classes)
    return order[:-novel], order[-novel:]


def way_and_shots(stream: Stream) -> tuple[int, int]:
    """How many classes a session of the stream brings, and how many images of each."""
    if len(stream.sessions) < 2:
        raise BadSetting(
            "benchmark.sessions", 0, "it leaves nothing to choose settings for; at least 1 is needed"
        )
    session = stream.sessions[1]
    return len(session.classes), len(session.train) // len(session.classes)


def describe_split(stream: Stream, novel: int, held_out: int, seed: int, fabric: Fabric) -> str:
    """Say in one line what a choice is made on."""
    return (
        f"{stream.base_classes - novel} base and {novel} pseudo-novel classes, {held_out} held-out training "
        f"images per class, seed {seed}, on {describe_device(fabric)}; no test image is read"
    )


def pseudo_streams(
    method: Method[Any],
    stream: Stream,
    novel: int,
    held_out: int,
    seed: int,
    draws: int,
    reporter: Reporter = SILENT,
) -> list[CachedStream]:
    """Draw streams over cached features for a method trained on the base session of `pseudo_stream`.

    All begin with that base session and its held-out images. Which pseudo-novel class comes in which
    session, its shots and its test images are drawn anew each time from all of its training images: the
    network has seen none of them. Only images that were drawn are embedded, and once.
    """
    base = pseudo_stream(stream, novel, held_out, seed).base
    way, shots = way_and_shots(stream)
    drawn = _draw(stream, novel, shots + held_out, seed, draws)
    used, rows = np.unique(drawn, return_inverse=True)
    test = embed(method, base.test)
    pool = embed(method, stream.base.train.take(used))
    bank = FeatureBank(embed(method, base.train, reporter), [test, pool])
    device, first = test.labels.device, len(test.labels)
    held = Subset(torch.arange(first, device=device), test.labels)
    novel_rows = torch.from_numpy(first + rows.reshape(drawn.shape)).to(device)
    return [_cached_stream(bank, held, each, way, shots) for each in novel_rows]


def _draw(stream: Stream, novel: int, images: int, seed: int, draws: int) -> Ints:
    """Draw the classes in the order they come, and images of each: (draws, classes, images)."""
    _, pseudo_novel = split_pseudo_novel(stream, novel, np.random.default_rng([seed, 3]))
    of_class = [np.flatnonzero(stream.base.train.labels == label) for label in pseudo_novel]
    rng = np.random.default_rng([seed, 4])
    return np.stack(
        [[rng.permutation(of_class[c])[:images] for c in rng.permutation(novel)] for _ in range(draws)]
    )


def _cached_stream(bank: FeatureBank, held: Subset, rows: Tensor, way: int, shots: int) -> CachedStream:
    """Let classes of images (K, shots and test images) come in sessions of `way` classes."""
    labels = bank.base_classes + torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)

    def sessions(images: slice) -> list[Subset]:
        parts = (torch.split(each[:, images], way) for each in (rows, labels))
        return [Subset(*(each.flatten() for each in part)) for part in zip(*parts, strict=True)]

    return CachedStream(bank, [held, *sessions(slice(shots, None))], sessions(slice(shots)))
