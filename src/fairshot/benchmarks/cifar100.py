"""CIFAR-100: 60 base classes, 8 sessions of 5-way 5-shot, classes in the order of their labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fairshot.benchmarks.archives import unpack, unpack_folder
from fairshot.benchmarks.dataset import Dataset, check_counts
from fairshot.benchmarks.download import download
from fairshot.benchmarks.lists import shot_lines, shots_by_class
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import Benchmark, LabelledPictures, Protocol
from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter

TITLE = "CIFAR-100"
PROTOCOL = Protocol(base_classes=60, way=5, shots=5, sessions=8)
TRAIN_IMAGES, TEST_IMAGES = 500, 100  # of each class
FOLDER, ARCHIVE = "cifar-100-python", "cifar-100-python.tar.gz"


def find(root: Path) -> Path | None:
    """Find the folder of the python version, or its archive."""
    for place in (root, root / "cifar100"):
        for candidate in (place / FOLDER, unpack_folder(place / ARCHIVE) / FOLDER, place / ARCHIVE):
            if candidate.exists():
                return candidate
    return None


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load CIFAR-100 through torchvision, which checks the md5 of every file before it is read."""
    found = find(root)
    if found is None:
        raise DATASET.missing(root)
    if found.is_file():
        found = unpack(found, reporter) / FOLDER
    train, test = _read(found, train=True), _read(found, train=False)
    names = tuple(str(name) for name in train.classes)
    pictures = {}
    for split, data, count in (("training", train, TRAIN_IMAGES), ("test", test, TEST_IMAGES)):
        labels = np.array(data.targets, dtype=np.int64)
        images = Counter(names[label] for label in labels)
        check_counts(TITLE, split, images, dict.fromkeys(names, count))
        pictures[split] = LabelledPictures(Pictures.from_array(data.data), labels)
    listed = np.array(shot_lines("cifar100", PROTOCOL), dtype=np.int64)
    return Benchmark(
        name="cifar100",
        class_names=names,
        train=pictures["training"],
        test=pictures["test"],
        protocol=PROTOCOL,
        listed_shots=shots_by_class(listed, pictures["training"].labels),
    )


def _read(folder: Path, train: bool) -> Any:
    from torchvision.datasets import CIFAR100  # slow to import, and no other benchmark needs it

    try:
        return CIFAR100(folder.parent, train=train, download=False)
    except RuntimeError as problem:
        raise UserError(
            f"{folder} is not the python version of CIFAR-100: a file is missing or its md5 differs; "
            "remove the folder and run `fairshot data get cifar100`"
        ) from problem


def get(root: Path, reporter: Reporter = SILENT) -> None:
    """Download the archive torchvision knows, and unpack it."""
    from torchvision.datasets import CIFAR100

    download(CIFAR100.url, root / ARCHIVE, CIFAR100.tgz_md5, reporter)
    unpack(root / ARCHIVE, reporter)


DATASET = Dataset(
    name="cifar100",
    title=TITLE,
    load=load,
    find=find,
    get=get,
    advice=f"`fairshot data get cifar100` downloads it (161 MiB), or put {FOLDER}/ or {ARCHIVE} there.",
)
