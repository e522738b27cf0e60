"""Stream: a base session with many images per class, then small sessions with few."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fairshot.benchmarks.pictures import Floats, Ints, Pictures
from fairshot.errors import BadSetting
from fairshot.settings import Settings


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures and their class ids, numbered in the order in which the stream introduces the classes."""

    pictures: Pictures
    labels: Ints
    weights: Floats | None = None  # of the pictures, all above 0; None: all count alike

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: npt.ArrayLike) -> LabelledPictures:
        """Select pictures, in the order given."""
        index = np.asarray(indices, dtype=np.int64)
        weights = None if self.weights is None else self.weights[index]
        return LabelledPictures(self.pictures.take(index), self.labels[index], weights)

    def sha256(self) -> str:
        """Return a digest of pixels, sizes, class ids and weights."""
        digest = hashlib.sha256(self.labels.tobytes() + self.pictures.sizes.tobytes())
        if self.weights is not None:
            digest.update(self.weights.tobytes())
        for picture in self.pictures:
            digest.update(picture.data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Session:
    """The training and test images of some new classes."""

    classes: tuple[int, ...]
    train: LabelledPictures
    test: LabelledPictures


@dataclass(frozen=True)
class Stream:
    """A benchmark divided into sessions; session 0 is the base session."""

    benchmark: str
    class_names: tuple[str, ...]  # by class id
    sessions: tuple[Session, ...]

    @property
    def base(self) -> Session:
        """The base session."""
        return self.sessions[0]

    @property
    def base_classes(self) -> int:
        """Number of base classes; their ids are 0 .. base_classes - 1."""
        return len(self.base.classes)

    def seen_classes(self, session: int) -> int:
        """Return the number of classes seen up to and including a session."""
        return sum(len(past.classes) for past in self.sessions[: session + 1])

    def seen_test(self, session: int) -> LabelledPictures:
        """Return the test images of all classes seen up to and including a session."""
        seen = [past.test for past in self.sessions[: session + 1]]
        return LabelledPictures(
            Pictures.concatenate([test.pictures for test in seen]),
            np.concatenate([test.labels for test in seen]),
        )


@dataclass(frozen=True)
class Protocol:
    """How a benchmark is usually divided into sessions."""

    base_classes: int
    way: int  # classes per incremental session
    shots: int  # training images per incremental class
    sessions: int  # incremental sessions, without the base session


@dataclass(frozen=True)
class Benchmark:
    """All images of a dataset, before it is divided into sessions.

    Every class has all its training and test images, so that it can be a base or an incremental class.
    Labels index `class_names`, which are in the official order.
    """

    name: str
    class_names: tuple[str, ...]
    train: LabelledPictures
    test: LabelledPictures
    protocol: Protocol
    listed_shots: Mapping[int, Ints]  # per incremental class: indices into `train` from the official lists


class StreamSettings(Settings):
    """How to cut a benchmark into sessions; what is left out is the benchmark's own."""

    base_classes: int | None = Field(None, ge=1, description="Classes of the base session.")
    way: int | None = Field(None, ge=1, description="Classes of each incremental session.")
    shots: int | None = Field(None, ge=1, description="Training images of each incremental class.")
    sessions: int | None = Field(
        None,
        ge=0,
        description="Incremental sessions; by default the benchmark's own, or fewer if classes run out.",
    )
    class_order_seed: int | None = Field(
        None, ge=0, description="Shuffles the classes; null: official order."
    )
    shot_seed: int | None = Field(None, ge=0, description="Draws the shots; null: the official lists.")


def build_stream(benchmark: Benchmark, settings: StreamSettings) -> Stream:
    """Divide a benchmark into sessions."""
    classes = len(benchmark.class_names)
    protocol = resolve_protocol(benchmark.name, classes, benchmark.protocol, settings)
    order = np.arange(classes, dtype=np.int64)
    if settings.class_order_seed is not None:
        order = np.random.default_rng(settings.class_order_seed).permutation(order)
    used = order[: protocol.base_classes + protocol.way * protocol.sessions]
    incremental = used[protocol.base_classes :].reshape(protocol.sessions, protocol.way)
    train = _by_class(benchmark.train.labels, classes)
    test = _by_class(benchmark.test.labels, classes)
    for label in incremental.flat:
        train[label] = _shots(benchmark, train[label], int(label), protocol.shots, settings.shot_seed)
    groups = [
        [(train[label], test[label]) for label in labels]
        for labels in (used[: protocol.base_classes], *incremental)
    ]
    sessions = number_sessions(groups, benchmark.train.pictures, benchmark.test.pictures)
    return Stream(benchmark.name, tuple(benchmark.class_names[label] for label in used), sessions)


def number_sessions(
    groups: Iterable[Sequence[tuple[Ints, Ints]]], train: Pictures, test: Pictures
) -> tuple[Session, ...]:
    """Make sessions of groups of classes, whose ids count in their order.

    A class is given by the indices of its training and of its test pictures.
    """
    sessions: list[Session] = []
    first = 0
    for group in groups:
        ids = range(first, first + len(group))
        parts = [
            LabelledPictures(
                pictures.take(np.concatenate(indices)), np.repeat(ids, [len(each) for each in indices])
            )
            for pictures, indices in zip((train, test), zip(*group, strict=True), strict=True)
        ]
        sessions.append(Session(tuple(ids), *parts))
        first += len(group)
    return tuple(sessions)


def resolve_protocol(name: str, classes: int, own: Protocol, settings: StreamSettings) -> Protocol:
    """Fill in the benchmark's own values; refuse more classes than it has."""
    base = own.base_classes if settings.base_classes is None else settings.base_classes
    way = own.way if settings.way is None else settings.way
    left = classes - base
    if left < 0:
        raise BadSetting("benchmark.base_classes", base, f"{name} has {classes} classes in all")
    sessions = min(own.sessions, max(left // way, 1)) if settings.sessions is None else settings.sessions
    if way * sessions > left:
        key, given = ("sessions", sessions) if way <= left else ("way", way)
        raise BadSetting(
            f"benchmark.{key}",
            given,
            f"{sessions} sessions of {way} classes need {way * sessions} classes; {name} has {classes}, of "
            f"which {base} are base classes",
        )
    return Protocol(base, way, own.shots if settings.shots is None else settings.shots, sessions)


def _by_class(labels: Ints, classes: int) -> list[Ints]:
    """Return the indices of the images of each class."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, classes)))


def _shots(benchmark: Benchmark, images: Ints, label: int, shots: int, seed: int | None) -> Ints:
    """Choose the shots of one class: from the official list if it has enough, else by seed.

    The list lacks base classes that another class order makes incremental, and has a limited number of
    shots; the shots are then drawn with seed 0 unless a seed is given. The draw depends on the seed and the
    class alone, and fewer shots are the first of more.
    """
    listed = benchmark.listed_shots.get(label)
    if seed is None and listed is not None and shots <= len(listed):
        return listed[:shots]
    if shots > len(images):
        raise BadSetting(
            "benchmark.shots",
            shots,
            f"class {benchmark.class_names[label]!r} of {benchmark.name} has {len(images)} training images",
        )
    return np.random.default_rng([seed or 0, label]).permutation(images)[:shots]
