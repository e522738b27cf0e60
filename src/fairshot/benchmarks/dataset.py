"""Datasets: where their files are looked for, how they are downloaded, and how they become benchmarks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

from fairshot.benchmarks.archives import stem, unpack, unpack_folder
from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.benchmarks.download import download
from fairshot.benchmarks.lists import shot_lines, shots_by_class
from fairshot.benchmarks.stream import Benchmark, LabelledPictures, Protocol
from fairshot.errors import BadImage, PathUnusable, UserError
from fairshot.progress import SILENT, Reporter

DATA_VARIABLE = "FAIRSHOT_DATA"  # of the environment: the folder in which data is looked for


@dataclass(frozen=True)
class Source:
    """An archive that is downloaded into the data folder."""

    url: str
    md5: str
    archive: str  # the name of its file
    size: str


@dataclass(frozen=True)
class Dataset:
    """A benchmark's name, and how its files are found, read and downloaded."""

    name: str
    title: str
    load: Callable[[Path, Reporter], Benchmark]  # from a data folder; refuses wrong data
    find: Callable[[Path], Path | None]  # where a data folder seems to hold it, unchecked
    layouts: str  # what is accepted in a data folder
    source: Source | None = None
    part_of: str = ""  # a larger dataset, which has all its classes: a network trained on that one knows them

    def get(self, root: Path, reporter: Reporter = SILENT) -> None:
        """Download the archive into a data folder and unpack it."""
        if self.source is None:
            raise MissingData(self, root)
        archive = root / self.source.archive
        download(self.source.url, archive, self.source.md5, reporter)
        unpack(archive, reporter)


class MissingData(UserError):
    """The files of a dataset are not in the data folder."""

    dataset: Dataset
    root: Path

    def __str__(self) -> str:
        dataset = self.dataset
        source = "" if dataset.source else " It has no public source to download from."
        return f"{dataset.title} was not found in {self.root}.{source} Expected there: {dataset.layouts}"


class WrongData(UserError):
    """The files of a dataset are not those of the official one."""

    dataset: Dataset
    folder: Path
    reason: str
    message = "{folder} is not the official {dataset.title}: {reason}"


def data_folder(root: Path | None = None) -> Path:
    """Return where data is looked for: the folder given, `FAIRSHOT_DATA`, or the platform's cache folder."""
    if root is not None:
        return root.expanduser()
    if os.environ.get(DATA_VARIABLE):
        return Path(os.environ[DATA_VARIABLE]).expanduser()
    return platformdirs.user_cache_path("fairshot") / "data"


def find_data(root: Path, names: Iterable[str], holds_data: Callable[[Path], bool]) -> Path | None:
    """Find a dataset's folder or archive in a data folder by its usual names, in any spelling.

    The data folder may also be the dataset itself. A folder is preferred to an archive, and an archive
    that was unpacked earlier counts as a folder.
    """
    wanted = {_letters(name) for name in names}
    if not root.is_dir():
        return None
    if holds_data(root):
        return root
    entries = sorted(entry for entry in root.iterdir() if _letters(stem(entry)) in wanted)
    folders = [entry for entry in entries if entry.is_dir()]
    packed = [entry for entry in entries if entry.is_file() and stem(entry) != entry.name]
    unpacked = [folder for archive in packed if (folder := unpack_folder(archive)).is_dir()]
    for folder in (*folders, *unpacked):
        if inner := _data_inside(folder, holds_data):
            return inner
    return packed[0] if packed else None


def unpacked_data(
    dataset: Dataset, root: Path, holds_data: Callable[[Path], bool], reporter: Reporter
) -> Path:
    """Return the folder of a dataset, unpacking its archive first."""
    found = dataset.find(root)
    if found is None:
        raise MissingData(dataset, root)
    folder = _data_inside(unpack(found, reporter), holds_data) if found.is_file() else found
    if folder is None:
        raise PathUnusable(found, f"does not hold {dataset.title} in an accepted layout: {dataset.layouts}")
    return folder


def _data_inside(folder: Path, holds_data: Callable[[Path], bool]) -> Path | None:
    """Return the folder that holds the data: this one or, as archives often wrap it, one or two below."""
    level = [folder]
    for _ in range(3):
        for candidate in level:
            if holds_data(candidate):
                return candidate
        level = [entry for candidate in level for entry in sorted(candidate.iterdir()) if entry.is_dir()]
        if len(level) > 8:  # more folders than any wrapper has
            break
    return None


def _letters(name: str) -> str:
    """Return a name in small letters and digits, without dashes."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def check_counts(
    dataset: Dataset,
    folder: Path,
    kind: str,
    found: Mapping[str, int],
    expected: Mapping[str, int],
    advice: str = "",
) -> None:
    """Refuse data with other numbers of images of a kind (training, test) per class than expected."""
    wrong = [
        f"class {name} has {found.get(name, 0)} {kind} images instead of {expected.get(name, 0)}"
        for name in sorted(found.keys() | expected.keys())
        if found.get(name, 0) != expected.get(name, 0)
    ]
    if wrong:
        more = f", and {len(wrong) - 3} classes more" if len(wrong) > 3 else ""
        raise WrongData(dataset, folder, f"{'; '.join(wrong[:3])}{more}{advice}")


@dataclass(frozen=True)
class ImageFile:
    """An image of a benchmark: its file and the index of its class."""

    path: Path
    label: int


def load_benchmark(
    name: str,
    class_names: Sequence[str],
    protocol: Protocol,
    train: Sequence[ImageFile],
    test: Sequence[ImageFile],
    resize: Resize,
    reporter: Reporter,
) -> Benchmark:
    """Read a benchmark from its image files; its official list names the shots by file name."""
    train_images, test_images = load_files(train, test, resize, reporter)
    position = {file.path.name: index for index, file in enumerate(train)}
    shots = [position[line.rpartition("/")[2]] for line in shot_lines(name, protocol)]
    return Benchmark(
        name=name,
        class_names=tuple(class_names),
        train=train_images,
        test=test_images,
        protocol=protocol,
        listed_shots=shots_by_class(np.array(shots), train_images.labels),
    )


def load_files(
    train: Sequence[ImageFile], test: Sequence[ImageFile], resize: Resize, reporter: Reporter
) -> tuple[LabelledPictures, LabelledPictures]:
    """Read training and test images through the cache; all of them must be readable."""
    files = [*train, *test]
    cached = cached_pictures([file.path for file in files], resize, reporter=reporter)
    for index, reason in cached.unreadable.items():
        raise BadImage(
            str(files[index].path), f"{reason}; {len(cached.unreadable)} of {len(files)} files cannot be read"
        )
    images = LabelledPictures(cached.pictures, np.array([file.label for file in files], dtype=np.int64))
    return images.take(np.arange(len(train))), images.take(np.arange(len(train), len(files)))
