"""Pseudo-novel classes on cached features: one training, many draws of who arrives when, with which shots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Stream, relabelled
from fairshot.evaluation.tradeoff import BaseSession, Course, Embedded, EmbeddedSession, embed
from fairshot.evaluation.tuning import cast_roles, pseudo_stream, way_and_shots
from fairshot.methods.method import Method


def pseudo_courses(
    method: Method[Any], stream: Stream, novel: int, held_out: int, seed: int, draws: int
) -> list[Course]:
    """Draw streams for a method that was trained on the base session of `pseudo_stream`.

    All begin with that base session and its held-out images. Which pseudo-novel class comes in which
    session, its shots and its test images are drawn anew each time from all of its training images: the
    network has seen none of them.
    """
    first = pseudo_stream(stream, novel, held_out, seed).base
    base = EmbeddedSession(embed(method, first.train), embed(method, first.test))
    shared = BaseSession(base.train)
    _, cast = cast_roles(stream, novel, np.random.default_rng([seed, 3]))
    images = [np.flatnonzero(stream.base.train.labels == label) for label in cast]
    pool = embed(method, relabelled(stream.base.train, images, np.arange(novel)))
    way, shots = way_and_shots(stream)
    rng = np.random.default_rng([seed, 4])
    courses = []
    for _ in range(draws):
        sessions = [base]
        for group in rng.permutation(novel).reshape(-1, way):
            sessions.append(
                _session(pool, group, shots, held_out, shared.classes + way * (len(sessions) - 1), rng)
            )
        courses.append(Course(shared, sessions))
    return courses


def _session(
    pool: Embedded,
    group: Ints,
    shots: int,
    held_out: int,
    first: int,
    rng: np.random.Generator,
) -> EmbeddedSession:
    """Draw shots and test images of some classes, which become the next in line."""
    labels = pool.labels.cpu().numpy()
    train, test = [], []
    for label in group:
        images = rng.permutation(np.flatnonzero(labels == label))
        train.append(images[:shots])
        test.append(images[shots : shots + held_out])
    ids = np.arange(first, first + len(group))

    def taken(parts: list[Ints]) -> Embedded:
        rows = torch.from_numpy(np.concatenate(parts)).to(pool.labels.device)
        fresh = torch.from_numpy(np.repeat(ids, [len(part) for part in parts])).to(rows.device)
        return replace(pool.take(rows), labels=fresh)

    return EmbeddedSession(taken(train), taken(test))
