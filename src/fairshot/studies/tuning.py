"""Tuning without the test set: base classes play novel ones, training images play test images."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from torch import Tensor

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Session, Stream, relabelled
from fairshot.errors import UserError
from fairshot.evaluation.base_session import build_method
from fairshot.evaluation.metrics import Metrics, metrics_from_confusions
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods.method import Method
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.training.loop import Trainer

MOST_NOVEL, MOST_HELD_OUT = 20, 50  # where nothing else is asked for


def pseudo_sizes(stream: Stream, novel: int | None, held_out: int | None) -> tuple[int, int]:
    """Return how many base classes play novel ones and how many images a class are held out.

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
        raise UserError(
            f"--novel: {novel} pseudo-novel classes in sessions of {way} cannot be taken from "
            f"{stream.base_classes} base classes; give fewer than these, and a multiple of {way}: as many "
            "classes as a session brings"
        )
    rng = np.random.default_rng([seed, 3])
    base_cast, novel_cast = split_pseudo_novel(stream, novel, rng)
    groups = [base_cast, *novel_cast.reshape(-1, way)]
    sessions, first = [], 0
    for t, group in enumerate(groups):
        train, test = [], []
        for label in group:
            images = rng.permutation(np.flatnonzero(base.labels == label))
            if len(images) < held_out + (shots if t else 1):
                raise UserError(
                    f"--held-out: class {stream.class_names[label]!r} has {len(images)} training images, "
                    f"too few to hold out {held_out} and learn from {shots if t else 1}"
                )
            test.append(images[:held_out])
            train.append(images[held_out:] if t == 0 else images[held_out : held_out + shots])
        ids = np.arange(first, first + len(group))
        sessions.append(
            Session(tuple(ids.tolist()), relabelled(base, train, ids), relabelled(base, test, ids))
        )
        first += len(group)
    names = tuple(stream.class_names[label] for label in (*base_cast, *novel_cast))
    return Stream(f"{stream.benchmark} (pseudo-novel)", names, tuple(sessions))


def split_pseudo_novel(stream: Stream, novel: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw which base classes go on playing base classes, and which play novel ones."""
    order = rng.permutation(stream.base_classes)
    return order[:-novel], order[-novel:]


def way_and_shots(stream: Stream) -> tuple[int, int]:
    """How many classes a session of the stream brings, and how many images of each."""
    if len(stream.sessions) < 2:
        raise UserError("benchmark.sessions: 0 leaves nothing to choose settings for; at least 1 is needed")
    session = stream.sessions[1]
    return len(session.classes), len(session.train) // len(session.classes)


@dataclass(frozen=True)
class Trial:
    """One point of a grid: what was changed in the recipe, and what that gave on pseudo-novel classes."""

    changes: Mapping[str, Any]
    recipe: Recipe
    metrics: Metrics
    novel_only: float  # average over the sessions
    seconds: float  # of the base session, shared by the trials that differ only in how they decide


def tune(
    points: Sequence[tuple[Mapping[str, Any], Recipe]],
    stream: Stream,
    fabric: Fabric,
    folder: Path,
    reporter: Reporter = SILENT,
) -> Iterator[Trial]:
    """Try the points of a grid on a pseudo-novel stream, one after the other.

    Points whose recipes differ only in settings of the decision share one training. Trainings keep
    checkpoints under `folder`, so that an interrupted search goes on; on other images each begins anew.
    """
    images = stream.base.train.sha256()
    learnt: dict[str, tuple[dict[str, Tensor], float]] = {}
    for changes, recipe in points:
        key = _training_key(recipe, images)
        if key not in learnt:
            trained, took = train_on(recipe, stream, fabric, folder / key, reporter)
            learnt[key] = {name: value.clone() for name, value in trained.tensors().items()}, took
        tensors, seconds = learnt[key]
        method = build_method(recipe, stream)
        method.embedder.to(fabric.device)
        method.restore_modules(tensors)  # the rest may depend on settings of the decision
        method.init_base_classifiers(stream.base.train)
        outcome = run_sessions(method, stream)
        metrics = metrics_from_confusions(outcome.confusions, [len(one.classes) for one in stream.sessions])
        novel_only = [value for value in outcome.novel_only if value is not None]
        trial = Trial(changes, recipe, metrics, sum(novel_only) / len(novel_only), seconds)
        reporter.say(describe(trial))
        yield trial


def describe(trial: Trial) -> str:
    """One line a trial."""
    found = trial.metrics
    changes = "  ".join(f"{key}={value}" for key, value in trial.changes.items())
    return (
        f"{changes}: overall {found.overall_avg:.2f}  last {found.last:.2f}  base {found.base_avg:.2f}  "
        f"inc {found.inc_avg:.2f}  harmonic mean {found.harmonic_mean_avg:.2f}  "
        f"novel-only {trial.novel_only:.2f}  ({trial.seconds:.0f} s of base session)"
    )


def train_on(
    recipe: Recipe, stream: Stream, fabric: Fabric, folder: Path, reporter: Reporter = SILENT
) -> tuple[Method[Any], float]:
    """Train a recipe on the base session of a stream; return the method, and the seconds it took."""
    began = time.monotonic()
    method = build_method(recipe, stream)
    trainer = Trainer(fabric, recipe.training, recipe.views, recipe.model.size, recipe.seed, folder, reporter)
    method.fit_base(stream.base.train, trainer)
    seconds = time.monotonic() - began + trainer.earlier_seconds - trainer.compile_seconds
    return method, seconds


def _training_key(recipe: Recipe, images: str) -> str:
    """Name the training of a recipe on images: equal for recipes that differ only in how they decide."""
    decisive = json.dumps([recipe.training_part(), images], sort_keys=True)
    return hashlib.sha256(decisive.encode()).hexdigest()[:12]
