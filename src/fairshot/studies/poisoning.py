"""Poisoning: what hostile images among the unlabelled ones cost in overall accuracy, bounded or not.

After the last session a classifier is adapted to unlabelled images: the first half of every class's test
images, the natural stream, and an attack. It is judged by the second half. Attacks are aimed at each class of
the last session in turn, with the base training images most similar to it, or with noise; they come before
the natural stream, after it, or alone. The worst of all is reported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairshot import markdown
from fairshot.benchmarks.pictures import Ints, Pictures
from fairshot.benchmarks.stream import Stream
from fairshot.classifiers.similarity import similarity
from fairshot.documents import Document, read_model, write_json
from fairshot.errors import PathUnusable
from fairshot.evaluation.base_session import restore_method
from fairshot.evaluation.experiment import load_pictures, split_of
from fairshot.evaluation.run_folder import POISONING, POISONING_PAGE, recipe_of
from fairshot.files import write_atomically
from fairshot.methods.sss import SSS
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter
from fairshot.studies.execute import StudyOptions
from fairshot.training.hardware import choose_hardware

COUNTS = (10, 50, 200)
KINDS = ("wrong class", "noise", "a copied image")
HEAD = ("attack", "images", "bounded", "as in eq. 9")
LOST = (
    "Points lost to an attack, at worst over its target and over whether it comes before the natural stream, "
    "after it, or alone"
)


class Damage(Document):
    """The worst that so many images of a kind did."""

    kind: str
    images: int
    bounded: bool
    cost: float  # points of overall accuracy, beside the same stream without the attack
    target: int  # the class at which the worst attack was aimed
    order: str  # when the attack came


class Poisoning(Document):
    """Overall accuracy in % with labelled images alone and with the natural stream, and the damages."""

    command: str = ""
    benchmark: str
    labelled: float
    natural: dict[str, float]  # by kind of Calibration
    damages: list[Damage]

    @property
    def summary(self) -> str:
        """The accuracies without attacks, in words."""
        natural = ", ".join(f"{value:.2f} {name}" for name, value in self.natural.items())
        return (
            "Overall accuracy after the last session, on the second half of the test images of each class "
            f"(the first half is the natural stream of unlabelled images): {self.labelled:.2f} with labelled "
            f"images alone; with the natural stream {natural}."
        )

    @property
    def rows(self) -> list[list[str]]:
        """What each attack costs, as a table under `HEAD`."""
        costs = {(one.kind, one.images, one.bounded): one.cost for one in self.damages}
        return [
            [kind, str(images), *(f"{costs[kind, images, bounded]:.2f}" for bounded in (True, False))]
            for kind, images in dict.fromkeys((one.kind, one.images) for one in self.damages)
        ]

    def write(self, run: Path) -> None:
        """Write it and its page into the folder of a run."""
        write_json(run / POISONING, json.dumps(self.model_dump(), indent=1) + "\n")
        page = f"`{self.command}`\n\n{self.summary} {LOST}:\n\n{markdown.table(HEAD, self.rows)}\n"
        write_atomically(run / POISONING_PAGE, page.encode())

    @classmethod
    def read(cls, run: Path) -> Poisoning:
        """Read what was written into the folder of a run."""
        return read_model(run / POISONING, cls, "a study of poisoning")


def poison(run: Path, options: StudyOptions = StudyOptions()) -> Poisoning:
    """Attack Calibration of a finished run of SSS; write what that costs at worst into the run."""
    recipe, fabric = recipe_of(run), choose_hardware(options.device)
    stream, _ = load_pictures(recipe, options, split_of(run))
    method = restore_method(run, recipe, stream, fabric)
    if not isinstance(method, SSS):
        raise PathUnusable(run, f"is a run of {recipe.method_name}; Calibration is a part of {SSS.name}")
    found = measure_poisoning(method, stream, seed=recipe.seed, reporter=options.reporter)
    found = found.model_copy(update={"command": options.command})
    found.write(run)
    return found


def measure_poisoning(
    method: SSS, stream: Stream, counts: Sequence[int] = COUNTS, seed: int = 0, reporter: Reporter = SILENT
) -> Poisoning:
    """Attack a method that knows the base session of a stream and now learns the others."""
    for session in stream.sessions[1:]:
        method.learn(session.train)
    trial = _Trial(method, stream, max(counts), seed)
    natural, damages = {}, []
    with reporter.track("attacks", 2 * len(KINDS) * len(counts)) as advance:
        for bounded in (True, False):
            kind_of_calibration = "bounded" if bounded else "as in eq. 9"
            natural[kind_of_calibration] = trial.accuracy([trial.natural], bounded)
            for kind in KINDS:
                for count in counts:
                    damages.append(trial.worst(kind, count, bounded))
                    advance()
    labelled = trial.accuracy([], True)
    return Poisoning(benchmark=stream.benchmark, labelled=labelled, natural=natural, damages=damages)


class _Trial:
    """A classifier that has learnt all sessions, images to calibrate it and images to judge it."""

    def __init__(self, method: SSS, stream: Stream, most: int, seed: int) -> None:
        last = len(stream.sessions) - 1
        test = stream.seen_test(last)
        features, first_half = method.embed(test.pictures), torch.from_numpy(_first_halves(test.labels))
        self.classifier, self.targets = method.classifier, stream.sessions[last].classes
        self.natural = _take(features, first_half)
        self.judged, self.truth = _take(features, ~first_half), torch.from_numpy(test.labels)[~first_half]
        self.base = method.embed(stream.base.train.pictures)
        self.noise = method.embed(_noise(test.pictures, most, seed))

    def accuracy(self, batches: Sequence[Features], bounded: bool) -> float:
        """Overall accuracy in % once the classifier is adapted to the batches, one after the other."""
        settings = self.classifier.settings.model_copy(update={"bounded": bounded})
        classifier = replace(self.classifier, settings=settings)
        for batch in batches:
            classifier = classifier.adapt(batch)
        answers = classifier.decide(self.judged).scores.argmax(1).cpu()
        return 100 * float((answers == self.truth).double().mean())

    def worst(self, kind: str, images: int, bounded: bool) -> Damage:
        """Find the target and the order in which an attack costs most."""
        natural, labelled = self.accuracy([self.natural], bounded), self.accuracy([], bounded)
        found = []
        for target in self.targets:
            attack = self._attack(kind, images, target)
            orders = {
                "before": ([attack, self.natural], natural),
                "after": ([self.natural, attack], natural),
                "alone": ([attack], labelled),
            }
            for order, (batches, without) in orders.items():
                found.append((without - self.accuracy(batches, bounded), target, order))
        cost, target, order = max(found, key=lambda each: each[0])
        return Damage(kind=kind, images=images, bounded=bounded, cost=cost, target=target, order=order)

    def _attack(self, kind: str, images: int, target: int) -> Features:
        """Choose images against a class: base ones most similar to it, one of them many times, or noise."""
        if kind == "noise":
            return _take(self.noise, torch.arange(images))
        prototype = self.classifier.prototypes[target : target + 1]
        order = similarity(self.base["g"], prototype)[:, 0].argsort(descending=True)
        return _take(self.base, order[:images] if kind == "wrong class" else order[:1].repeat(images))


def _first_halves(labels: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the first half of the images of every class."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        chosen[mine[: len(mine) // 2]] = True
    return chosen


def _take(features: Features, rows: Tensor) -> Features:
    return {name: value[rows.to(value.device)] for name, value in features.items()}


def _noise(pictures: Pictures, count: int, seed: int) -> Pictures:
    """Draw pictures of random pixels, as large as the first one."""
    shape = (count, *pictures[0].shape)
    return Pictures.from_array(np.random.default_rng([seed, 5]).integers(0, 256, shape, dtype=np.uint8))
