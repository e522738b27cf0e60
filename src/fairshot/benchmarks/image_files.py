"""What benchmarks of image files have in common: finding the files, and making a benchmark of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairshot.benchmarks import archives
from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.benchmarks.dataset import Dataset
from fairshot.benchmarks.images import is_image_name
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import UserError
from fairshot.progress import Reporter


@dataclass(frozen=True)
class ImageFile:
    """One image of a benchmark."""

    path: Path
    label: int


def find_data(root: Path, names: Iterable[str], holds_data: Callable[[Path], bool]) -> Path | None:
    """Find a dataset's folder or archive in a data folder, by its usual names however they are written.

    The data folder may also be the dataset itself. A folder is preferred to an archive, and an archive
    that was unpacked earlier is as good as a folder.
    """
    wanted = {_plain(name) for name in names}
    if not root.is_dir():
        return None
    entries = sorted(entry for entry in root.iterdir() if _plain(archives.stem(entry)) in wanted)
    folders = [entry for entry in entries if entry.is_dir()]
    packed = [entry for entry in entries if entry.is_file() and archives.stem(entry) != entry.name]
    unpacked = [folder for archive in packed if (folder := archives.unpack_folder(archive)).is_dir()]
    if holds_data(root):
        return root
    for folder in (*folders, *unpacked):
        if inner := data_inside(folder, holds_data):
            return inner
    return packed[0] if packed else None


def unpacked_data(
    dataset: Dataset, root: Path, holds_data: Callable[[Path], bool], layouts: str, reporter: Reporter
) -> Path:
    """Return the folder of a dataset, unpacking its archive first; say what is missing or accepted."""
    found = dataset.find(root)
    if found is None:
        raise dataset.missing(root)
    folder = data_inside(archives.unpack(found, reporter), holds_data) if found.is_file() else found
    if folder is None:
        raise UserError(f"{found} does not hold {dataset.title} in a layout that is accepted: {layouts}")
    return folder


def data_inside(folder: Path, holds_data: Callable[[Path], bool]) -> Path | None:
    """Return the folder that holds the data: this one or, as archives often wrap it, one or two below."""
    level = [folder]
    for _ in range(3):
        for candidate in level:
            if holds_data(candidate):
                return candidate
        level = [entry for candidate in level for entry in sorted(candidate.iterdir()) if entry.is_dir()]
        if len(level) > 8:  # no wrapper has so many folders
            break
    return None


def _plain(name: str) -> str:
    """Spell a name without its capitals and dashes."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def image_files(folder: Path) -> Iterator[Path]:
    """Go through all image files below a folder, in a fixed order."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if is_image_name(name):
                yield Path(place, name)


def load_files(
    train: Sequence[ImageFile], test: Sequence[ImageFile], resize: Resize, reporter: Reporter
) -> tuple[LabelledPictures, LabelledPictures]:
    """Read training and test images through the cache; a benchmark is refused if one cannot be read."""
    files = [*train, *test]
    cached = cached_pictures([file.path for file in files], resize, reporter=reporter)
    for index, reason in cached.unreadable.items():
        raise UserError(
            f"{files[index].path}: {reason}; {len(cached.unreadable)} of {len(files)} files cannot be read"
        )
    everything = LabelledPictures(cached.pictures, np.array([file.label for file in files], dtype=np.int64))
    return everything.take(np.arange(len(train))), everything.take(np.arange(len(train), len(files)))
