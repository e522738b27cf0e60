"""The official session lists, which are part of the package (see data/lists/LISTS.md)."""

from __future__ import annotations

import csv
import hashlib
import lzma
from importlib import resources

import numpy as np

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import Protocol

MD5 = {
    "cifar100": "1e87a1de6ab2b1a17775484ef9a63005",
    "cub200": "197612e5dd91d32745eea244f0c5672d",
    "mini_imagenet": "072d94511ff4ba0ea946653112313300",
    "mini_imagenet_train": "d611f065df203725710accea2f494a93",
    "mini_imagenet_test": "e41dab9c4c62efbebd17a77d97fb6311",
}
_FOLDER = resources.files("fairshot.benchmarks") / "data" / "lists"


def read_list(name: str) -> list[str]:
    """Return the lines of a list after checking its md5."""
    content = lzma.decompress((_FOLDER / f"{name}.txt.xz").read_bytes())
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != MD5[name]:
        raise RuntimeError(f"the list {name} of this installation is damaged: install fairshot again")
    return content.decode().split()


def shot_lines(name: str, protocol: Protocol) -> list[str]:
    """Return the lines of the incremental sessions, in their order."""
    return read_list(name)[-protocol.sessions * protocol.way * protocol.shots :]


def shots_by_class(indices: Ints, labels: Ints) -> dict[int, Ints]:
    """Group the indices of listed training images by class, in the order of the list."""
    listed = labels[indices]
    return {int(label): indices[listed == label] for label in np.unique(listed)}


def cub200_counts() -> list[tuple[str, int, int]]:
    """Return each class of CUB-200-2011 with its numbers of training and test images."""
    rows = csv.DictReader((_FOLDER / "cub200_counts.csv").read_text().splitlines())
    return [(row["class"], int(row["train"]), int(row["test"])) for row in rows]


def mini_imagenet_names() -> dict[str, str]:
    """Return the wnids of miniImageNet in order, and what each means."""
    rows = csv.DictReader((_FOLDER / "mini_imagenet_names.csv").read_text().splitlines())
    return {row["wnid"]: row["name"] for row in rows}
