"""miniImageNet: 60 base classes, 8 sessions of 5-way 5-shot, classes in the order of their wnids.

An image is known by its file name (`n0153282900000005.jpg`), so the official lists tell its split in whatever
folder it lies. If the data has a split of its own, by folders `train/` and `test/` or by `train.csv` and
`test.csv`, it must be the official one. Images are kept at 84 x 84, as they are usually distributed; larger
ones are resized to that without keeping their aspect ratio, as the usual ones were made.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.dataset import (
    Dataset,
    ImageFile,
    check_counts,
    find_data,
    load_benchmark,
    unpacked_data,
)
from fairshot.benchmarks.images import image_files
from fairshot.benchmarks.lists import mini_imagenet_names, read_list
from fairshot.benchmarks.stream import Benchmark, Protocol
from fairshot.progress import SILENT, Reporter

PROTOCOL = Protocol(base_classes=60, way=5, shots=5, sessions=8)
COUNTS = {"train": 500, "test": 100}  # images per class
KINDS = {"train": "training", "test": "test"}  # as messages name them
RESIZE = Resize(84, square=True)
SPLITS = ("train", "test", "val")
ANOTHER_SPLIT = (
    ". If all 600 images of each class are there under their usual names, put them into one folder per "
    "class, without train/, test/ and csv files: the lists tell the split"
)


def find(root: Path) -> Path | None:
    """Find the folder or the archive."""
    return find_data(root, ["miniImageNet"], _holds_data)


def _holds_data(folder: Path) -> bool:
    first, table = "n01532829", folder / "train.csv"
    if any((folder / split / first).is_dir() for split in ("", "train", "test")):
        return True
    return table.is_file() and first in table.read_text(errors="replace")


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load the images of the official lists, in their order."""
    folder = unpacked_data(DATASET, root, _holds_data, reporter)
    paths = _checked_images(folder)
    names = mini_imagenet_names()
    label = {wnid: index for index, wnid in enumerate(names)}
    train, test = ([ImageFile(paths[n], label[n[:9]]) for n in _listed(split)] for split in COUNTS)
    return load_benchmark("mini_imagenet", list(names.values()), PROTOCOL, train, test, RESIZE, reporter)


def _listed(split: str) -> list[str]:
    """Return the file names of the images of a split."""
    return [line.rpartition("/")[2] for line in read_list(f"mini_imagenet_{split}")]


def _checked_images(folder: Path) -> dict[str, Path]:
    """Return the images by file name, after comparing counts and split with the lists."""
    official = {name: split for split in COUNTS for name in _listed(split)}
    paths: dict[str, Path] = {}
    by_csv = _splits_by_csv(folder)
    found: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    right: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for path in image_files(folder):
        split = by_csv.get(path.name) or _split_by_folder(folder, path) or official.get(path.name, "train")
        wnid = path.name[:9] if path.name in official else path.parent.name
        found[split][wnid] += 1
        right[split][wnid] += official.get(path.name) == split
        paths[path.name] = path
    for split, count in COUNTS.items():
        expected = dict.fromkeys(mini_imagenet_names(), count)
        for kind, counts in ((KINDS[split], found[split]), (f"listed {KINDS[split]}", right[split])):
            check_counts(DATASET, folder, kind, counts, expected, ANOTHER_SPLIT)
    return paths


def _splits_by_csv(folder: Path) -> Mapping[str, str]:
    """Return the split of each image by the csv files beside the images."""
    splits: dict[str, str] = {}
    for split in SPLITS:
        if (folder / f"{split}.csv").is_file():
            with (folder / f"{split}.csv").open(newline="") as file:
                splits |= {row["filename"]: split for row in csv.DictReader(file) if row.get("filename")}
    return splits


def _split_by_folder(folder: Path, path: Path) -> str | None:
    """Return the split that the folder of an image names."""
    return next((part for part in path.parts[len(folder.parts) : -1] if part in SPLITS), None)


DATASET = Dataset(
    name="mini_imagenet",
    title="miniImageNet",
    load=load,
    find=find,
    layouts=(
        "a folder or archive named MINI-ImageNet in one of these layouts: train/<wnid>/*.jpg and "
        "test/<wnid>/*.jpg, as the official lists name them; one folder of all images with train.csv and "
        "test.csv (filename,label); one folder per class: <wnid>/*.jpg; or a .tar, .tar.gz or .zip of these"
    ),
    part_of="ImageNet",
)
