"""Own photographs, in one folder per class, as a stream: the split is drawn once and written to a file."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.benchmarks.images import is_image_name
from fairshot.benchmarks.pictures import Ints, Pictures
from fairshot.benchmarks.stream import Protocol, Stream, StreamSettings, number_sessions, resolve_protocol
from fairshot.documents import Document, read_model, write_json
from fairshot.errors import BadImage, BadSetting, PathUnusable, UserError
from fairshot.progress import Reporter

FILE_NAME = "split.json"
TEST_SHARE = 0.2  # of the images of each class
SHOTS, WAY, BASE_SHARE = 5, 5, 0.6  # by default
FEWEST_CLASSES = 3


class TooFewImages(UserError):
    """Some classes have too few readable images for their shots and a test image."""

    images: dict[str, int]
    shots: int

    def __str__(self) -> str:
        few = ", ".join(f"{name} ({count})" for name, count in self.images.items())
        return (
            f"these classes have too few usable images: {few}; each class needs at least {self.shots + 1}, "
            f"{self.shots} shots (benchmark.shots) and one to test: add images or remove the folder"
        )


def _inside_the_folder(name: str) -> str:
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise ValueError("expected the name of a file inside the folder of photographs")
    return name


FileName = Annotated[str, AfterValidator(_inside_the_folder)]


class ClassSplit(Document, frozen=True):
    """The images of a class, by file names relative to the folder of photographs."""

    name: str
    train: tuple[FileName, ...]
    test: tuple[FileName, ...]


class Split(Document, frozen=True):
    """The classes and images of each session, from which the same stream is made again."""

    seed: int
    base_classes: int = Field(ge=1)
    way: int = Field(ge=1)
    shots: int = Field(ge=1)
    sessions: int = Field(ge=0)
    classes: tuple[ClassSplit, ...]  # in the order of the stream
    skipped: dict[str, str]  # files that are not used, and why
    pictures: str = ""  # digest of the folder's content, to tell it from others of the same name
    photos: str | None = None  # the folder of the photographs when the split was last used

    @model_validator(mode="after")
    def _classes_fit_the_sessions(self) -> Self:
        expected = self.base_classes + self.way * self.sessions
        if len(self.classes) != expected:
            raise ValueError(f"{expected} classes expected, {len(self.classes)} given")
        return self

    def lying_in(self, photos: Path) -> Self:
        """Return this split with the folder in which its images lie."""
        return self.model_copy(update={"photos": str(photos.resolve())})

    def write(self, folder: Path) -> None:
        """Write `split.json` into the folder of a run."""
        write_json(folder / FILE_NAME, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a split from its file, or from the folder of a run."""
        path = path / FILE_NAME if path.is_dir() else path
        return read_model(path, cls, "a split")

    def check(self, settings: StreamSettings) -> None:
        """Refuse settings that ask for other sessions than those of the split."""
        for name in ("base_classes", "way", "shots", "sessions"):
            asked, drawn = getattr(settings, name), getattr(self, name)
            if asked not in (None, drawn):
                raise BadSetting(
                    f"benchmark.{name}",
                    asked,
                    f"the split that is used again has {drawn}; leave out the key, or draw a new split",
                )

    def summary(self) -> list[str]:
        """Describe the split in a few lines."""
        titles = ["base session", *(f"session {number}" for number in range(1, self.sessions + 1))]
        lines = map(_session_line, titles, self.by_session)
        return [*lines, *(f"skipped {file}: {reason}" for file, reason in self.skipped.items())]

    @property
    def by_session(self) -> list[tuple[ClassSplit, ...]]:
        """The classes of each session."""
        ends = [self.base_classes + self.way * number for number in range(self.sessions + 1)]
        return [self.classes[first:end] for first, end in itertools.pairwise([0, *ends])]


def _session_line(title: str, classes: tuple[ClassSplit, ...]) -> str:
    train, test = sum(len(each.train) for each in classes), sum(len(each.test) for each in classes)
    names = ", ".join(each.name for each in classes)
    count = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
    return f"{title}: {train} training and {test} test images of {count}: {names}"


def load_folder(
    photos: Path, settings: StreamSettings, seed: int, reporter: Reporter, resize: Resize
) -> tuple[Stream, Split]:
    """Draw a split of `photos/<class>/*` by seed, and return its stream; unreadable files are skipped."""
    by_class, skipped = _list_files(photos)
    files = [file for each in by_class.values() for file in each]
    cached = cached_pictures([photos / file for file in files], resize, reporter=reporter)
    skipped |= {files[index]: reason for index, reason in cached.unreadable.items()}
    usable = {name: [file for file in each if file not in skipped] for name, each in by_class.items()}
    split = draw_split(usable, settings, seed, skipped).lying_in(photos)
    split = split.model_copy(update={"pictures": _digest(photos, usable)})
    return _stream(photos, split, files, cached.pictures), split


def replay_folder(photos: Path, split: Split, reporter: Reporter, resize: Resize) -> Stream:
    """Return the stream of a split that was drawn earlier; its images must still be in the folder."""
    files = [file for each in split.classes for file in (*each.train, *each.test)]
    cached = cached_pictures([photos / file for file in files], resize, reporter=reporter)
    for index, reason in cached.unreadable.items():
        raise BadImage(
            str(photos / files[index]),
            f"{reason}; {len(cached.unreadable)} of the {len(files)} images of the split cannot be used: "
            "bring them back, or draw a new split",
        )
    return _stream(photos, split, files, cached.pictures)


def _list_files(photos: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the image files of each class, and the other files with the reason why they are skipped."""
    if not photos.is_dir():
        raise PathUnusable(photos, f"is not a folder; images are expected as {photos}/<class>/*.jpg")
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
        raise PathUnusable(
            photos,
            f"has {len(by_class)} class folders; at least {FEWEST_CLASSES} are needed, two base classes and "
            f"one incremental, with images as {photos}/<class>/*.jpg",
        )
    return by_class, skipped


def _digest(photos: Path, usable: dict[str, list[str]]) -> str:
    """Return a digest of the names and sizes of the images, without reading them."""
    files = [file for each in usable.values() for file in each]
    listing = "".join(f"{file}|{(photos / file).stat().st_size}\n" for file in files)
    return hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()


def draw_split(
    by_class: dict[str, list[str]], settings: StreamSettings, seed: int, skipped: dict[str, str]
) -> Split:
    """Draw the classes and images of each session from the usable files of each class."""
    names = sorted(by_class)
    protocol = resolve_protocol("the folder", len(names), _usual_protocol(len(names)), settings)
    few = {name: len(by_class[name]) for name in names if len(by_class[name]) <= protocol.shots}
    if few:
        raise TooFewImages(few, protocol.shots)
    order_seed = seed if settings.class_order_seed is None else settings.class_order_seed
    order = np.random.default_rng(order_seed).permutation(len(names))
    classes = []
    for label, index in enumerate(order[: protocol.base_classes + protocol.way * protocol.sessions]):
        name = names[index]
        files = np.random.default_rng([seed, index]).permutation(sorted(by_class[name])).tolist()
        tests = min(max(round(TEST_SHARE * len(files)), 1), len(files) - protocol.shots)
        test, train = files[:tests], files[tests:]
        if label >= protocol.base_classes:
            shot_seed = seed if settings.shot_seed is None else settings.shot_seed
            train = np.random.default_rng([shot_seed, index]).permutation(train).tolist()[: protocol.shots]
        classes.append(ClassSplit(name=name, train=tuple(train), test=tuple(test)))
    return Split(seed=seed, **asdict(protocol), classes=tuple(classes), skipped=skipped)


def _usual_protocol(classes: int) -> Protocol:
    """Return the default protocol: 60 % or more are base classes, the others are divided evenly."""
    left = max(int(classes * (1 - BASE_SHARE)), 1)
    way = min(WAY, max(left // 2, 1))
    sessions = left // way
    return Protocol(base_classes=classes - way * sessions, way=way, shots=SHOTS, sessions=sessions)


def _stream(photos: Path, split: Split, files: list[str], pictures: Pictures) -> Stream:
    """Make the stream of a split from the pictures of its files."""
    position = {file: index for index, file in enumerate(files)}

    def indices(chosen: tuple[str, ...]) -> Ints:
        return np.array([position[file] for file in chosen], dtype=np.int64)

    groups = [[(indices(each.train), indices(each.test)) for each in classes] for classes in split.by_session]
    sessions = number_sessions(groups, pictures, pictures)
    return Stream(photos.resolve().name, tuple(each.name for each in split.classes), sessions)
