"""Own data: a folder of photographs, one folder a class, becomes a stream by a split drawn once and kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.benchmarks.images import is_image_name
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import (
    Benchmark,
    LabelledPictures,
    Protocol,
    Stream,
    StreamSettings,
    build_stream,
    resolve_protocol,
)
from fairshot.errors import UserError
from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter

FILE_NAME = "split.json"
RESIZE = Resize(256, enlarge=False)  # larger photographs are made smaller, smaller ones kept as they are
TEST_SHARE = 0.2  # of the images of each class
SHOTS, WAY, BASE_SHARE = 5, 5, 0.6  # unless settings say otherwise
FEWEST_CLASSES = 3


class ClassSplit(BaseModel):
    """The images of a class, by file names relative to the folder of photographs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]


class Split(BaseModel):
    """Which classes and images each session shows: everything needed to see the same stream again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int
    base_classes: int
    way: int
    shots: int
    sessions: int
    classes: tuple[ClassSplit, ...]  # in the order of the stream
    skipped: dict[str, str]  # files that are not used, and why
    pictures: str = ""  # a digest of what the folder held, which tells it from others of the same name
    photos: str | None = None  # the folder they lay in when the split was last used

    def lying_in(self, photos: Path) -> Self:
        """Return this split of images that lie in a folder."""
        return self.model_copy(update={"photos": str(photos.resolve())})

    def write(self, folder: Path) -> None:
        """Write `split.json` into the folder of a run."""
        write_atomically(folder / FILE_NAME, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a split from its file, or from the folder of a run."""
        path = path / FILE_NAME if path.is_dir() else path
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as problem:
            raise UserError(f"{path} is not a split this version can read: {problem}") from problem

    def check(self, settings: StreamSettings) -> None:
        """Refuse settings that ask for other sessions than the split has."""
        for name in ("base_classes", "way", "shots", "sessions"):
            asked, drawn = getattr(settings, name), getattr(self, name)
            if asked not in (None, drawn):
                raise UserError(
                    f"benchmark.{name}: {asked} was asked for, but the split that is used again has {drawn}; "
                    "leave the key out, or draw a new split"
                )

    def summary(self) -> list[str]:
        """Describe the split in a few lines."""
        lines = [_session_line("base session", self.classes[: self.base_classes])]
        for session in range(self.sessions):
            first = self.base_classes + session * self.way
            lines.append(_session_line(f"session {session + 1}", self.classes[first : first + self.way]))
        lines += [f"skipped {file}: {reason}" for file, reason in self.skipped.items()]
        return lines


def _session_line(title: str, classes: tuple[ClassSplit, ...]) -> str:
    train, test = sum(len(each.train) for each in classes), sum(len(each.test) for each in classes)
    names = ", ".join(each.name for each in classes)
    count = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
    return f"{title}: {train} training and {test} test images of {count}: {names}"


def load_folder(
    photos: Path,
    settings: StreamSettings,
    seed: int,
    reporter: Reporter = SILENT,
    resize: Resize = RESIZE,
) -> tuple[Stream, Split]:
    """Draw a split of `photos/<class>/*` by seed, and return its stream; unreadable files are skipped."""
    by_class, skipped = _survey(photos)
    files = [file for each in by_class.values() for file in each]
    cached = cached_pictures([photos / file for file in files], resize, reporter=reporter)
    skipped |= {files[index]: reason for index, reason in cached.unreadable.items()}
    usable = {name: [file for file in each if file not in skipped] for name, each in by_class.items()}
    split = draw_split(usable, settings, seed, skipped).lying_in(photos)
    split = split.model_copy(update={"pictures": _digest(photos, usable)})
    return _stream(photos, split, files, cached.pictures), split


def replay_folder(photos: Path, split: Split, reporter: Reporter = SILENT, resize: Resize = RESIZE) -> Stream:
    """Return the stream of a split that was drawn earlier; the folder must still hold its images."""
    files = [file for each in split.classes for file in (*each.train, *each.test)]
    cached = cached_pictures([photos / file for file in files], resize, reporter=reporter)
    for index, reason in cached.unreadable.items():
        raise UserError(
            f"{photos / files[index]} is part of the split but cannot be used: {reason}; this holds for "
            f"{len(cached.unreadable)} of {len(files)} images; bring them back, or draw a new split"
        )
    return _stream(photos, split, files, cached.pictures)


def _survey(photos: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """List the image files of each class, and the files that are none."""
    if not photos.is_dir():
        raise UserError(f"{photos} is not a folder; images are expected as {photos}/<class>/*.jpg")
    by_class: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    for folder in sorted(photos.iterdir()):
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        by_class[folder.name] = []
        for path in sorted(folder.iterdir()):
            if is_image_name(path.name):
                by_class[folder.name].append(f"{folder.name}/{path.name}")
            elif not path.name.startswith("."):
                skipped[f"{folder.name}/{path.name}"] = "not an image format that is read"
    if len(by_class) < FEWEST_CLASSES:
        raise UserError(
            f"{photos} has {len(by_class)} class folders; at least {FEWEST_CLASSES} are needed, two base "
            f"classes and one to add, with images as {photos}/<class>/*.jpg"
        )
    return by_class, skipped


def _digest(photos: Path, usable: dict[str, list[str]]) -> str:
    """Tell a folder by the names and lengths of its pictures, wherever it lies, without reading them."""
    files = [file for each in usable.values() for file in each]
    listing = "".join(f"{file}|{(photos / file).stat().st_size}\n" for file in files)
    return hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()


def draw_split(
    by_class: dict[str, list[str]], settings: StreamSettings, seed: int, skipped: dict[str, str]
) -> Split:
    """Draw which classes and images each session shows, from the usable files of each class."""
    names = sorted(by_class)
    protocol = resolve_protocol("the folder", len(names), _usual_protocol(len(names)), settings)
    _refuse_near_empty(by_class, protocol.shots)
    order_seed = seed if settings.class_order_seed is None else settings.class_order_seed
    order = np.random.default_rng(order_seed).permutation(len(names))
    classes = []
    for place, index in enumerate(order[: protocol.base_classes + protocol.way * protocol.sessions]):
        name = names[index]
        files = np.random.default_rng([seed, index]).permutation(sorted(by_class[name])).tolist()
        tests = min(max(round(TEST_SHARE * len(files)), 1), len(files) - protocol.shots)
        test, train = files[:tests], files[tests:]
        if place >= protocol.base_classes:
            shot_seed = seed if settings.shot_seed is None else settings.shot_seed
            train = np.random.default_rng([shot_seed, index]).permutation(train).tolist()[: protocol.shots]
        classes.append(ClassSplit(name=name, train=tuple(train), test=tuple(test)))
    return Split(
        seed=seed,
        base_classes=protocol.base_classes,
        way=protocol.way,
        shots=protocol.shots,
        sessions=protocol.sessions,
        classes=tuple(classes),
        skipped=skipped,
    )


def _usual_protocol(classes: int) -> Protocol:
    """Return a protocol for so many classes: 60 % or more are base classes, the others come evenly."""
    left = max(int(classes * (1 - BASE_SHARE)), 1)
    way = min(WAY, max(left // 2, 1))
    sessions = left // way
    return Protocol(base_classes=classes - way * sessions, way=way, shots=SHOTS, sessions=sessions)


def _refuse_near_empty(by_class: dict[str, list[str]], shots: int) -> None:
    few = [f"{name} ({len(files)})" for name, files in sorted(by_class.items()) if len(files) <= shots]
    if few:
        raise UserError(
            f"these classes have too few usable images: {', '.join(few)}; each class needs at least "
            f"{shots + 1}, {shots} shots (benchmark.shots) and one to test: add images or remove the folder; "
            "to teach classes from all images there are, without a test, use fairshot new and fairshot teach"
        )


def _stream(photos: Path, split: Split, files: list[str], pictures: Pictures) -> Stream:
    """Make the stream of a split, whose classes stand in the order they appear."""
    position = {file: index for index, file in enumerate(files)}

    def labelled(each_class: list[tuple[str, ...]]) -> LabelledPictures:
        index = [position[file] for names in each_class for file in names]
        labels = np.repeat(np.arange(len(each_class)), [len(names) for names in each_class])
        return LabelledPictures(pictures.take(index), labels)

    train = labelled([each.train for each in split.classes])
    return build_stream(
        Benchmark(
            name=photos.resolve().name,
            class_names=tuple(each.name for each in split.classes),
            train=train,
            test=labelled([each.test for each in split.classes]),
            protocol=Protocol(split.base_classes, split.way, split.shots, split.sessions),
            listed_shots={
                label: np.flatnonzero(train.labels == label)
                for label in range(split.base_classes, len(split.classes))
            },
        ),
        StreamSettings(),
    )
