"""CIFAR-100: 60 base classes, 8 sessions of 5-way 5-shot, classes in the order of their labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fairshot.benchmarks.archives import unpack, unpack_folder
from fairshot.benchmarks.dataset import Dataset, MissingData, Source, WrongData, check_counts
from fairshot.benchmarks.lists import shot_lines, shots_by_class
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import Benchmark, LabelledPictures, Protocol
from fairshot.progress import SILENT, Reporter

PROTOCOL = Protocol(base_classes=60, way=5, shots=5, sessions=8)
TRAIN_IMAGES, TEST_IMAGES = 500, 100  # per class
FOLDER, ARCHIVE = "cifar-100-python", "cifar-100-python.tar.gz"


def find(root: Path) -> Path | None:
    """Find the folder of the python version, or its archive."""
    for folder in (root, root / "cifar100"):
        for candidate in (folder / FOLDER, unpack_folder(folder / ARCHIVE) / FOLDER, folder / ARCHIVE):
            if candidate.exists():
                return candidate
    return None


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load CIFAR-100 through torchvision, which checks the md5 of every file before it is read."""
    found = find(root)
    if found is None:
        raise MissingData(DATASET, root)
    folder = unpack(found, reporter) / FOLDER if found.is_file() else found
    train, test = _read(folder, train=True), _read(folder, train=False)
    names = tuple(str(name) for name in train.classes)
    images = {}
    for kind, data, count in (("training", train, TRAIN_IMAGES), ("test", test, TEST_IMAGES)):
        labels = np.array(data.targets, dtype=np.int64)
        counts = Counter(names[label] for label in labels)
        check_counts(DATASET, folder, kind, counts, dict.fromkeys(names, count))
        images[kind] = LabelledPictures(Pictures.from_array(data.data), labels)
    listed = np.array(shot_lines("cifar100", PROTOCOL), dtype=np.int64)
    return Benchmark(
        name="cifar100",
        class_names=names,
        train=images["training"],
        test=images["test"],
        protocol=PROTOCOL,
        listed_shots=shots_by_class(listed, images["training"].labels),
    )


def _read(folder: Path, train: bool) -> Any:
    from torchvision.datasets import CIFAR100  # slow to import, and no other benchmark needs it

    try:
        return CIFAR100(folder.parent, train=train, download=False)
    except RuntimeError as problem:
        raise WrongData(DATASET, folder, "a file is missing or its md5 differs") from problem


DATASET = Dataset(
    name="cifar100",
    title="CIFAR-100",
    load=load,
    find=find,
    layouts=f"the python version, as {FOLDER}/ or {ARCHIVE}",
    source=Source(
        url=f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        archive=ARCHIVE,
        size="161 MiB",
    ),
)
