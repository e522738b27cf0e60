"""miniImageNet: 60 base classes, 8 sessions of 5-way 5-shot, classes in the order of their wnids.

The images are known by their names (`n0153282900000005.jpg`), so the official lists tell the split whatever
the folders are. Where the data claims a split of its own, by folders `train/` and `test/` or by `train.csv`
and `test.csv`, it must be the official one. Images are kept at 84 x 84, as they are usually passed on;
larger ones are resized to that, without keeping their aspect ratio, as the usual ones were made.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.dataset import Dataset, check_counts
from fairshot.benchmarks.image_files import ImageFile, find_data, image_files, load_files, unpacked_data
from fairshot.benchmarks.lists import mini_imagenet_names, read_list, shot_lines, shots_by_class
from fairshot.benchmarks.stream import Benchmark, Protocol
from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter

TITLE = "miniImageNet"
PROTOCOL = Protocol(base_classes=60, way=5, shots=5, sessions=8)
COUNTS = {"train": 500, "test": 100}  # images of each class
WORDS = {"train": "training", "test": "test"}
RESIZE = Resize(84, square=True)
LAYOUTS = (
    "MINI-ImageNet/train/<wnid>/*.jpg with MINI-ImageNet/test/<wnid>/*.jpg, as the official lists name them; "
    "one folder of all images with train.csv and test.csv (filename,label); "
    "one folder a class: <wnid>/*.jpg; or a .tar, .tar.gz or .zip of one of these"
)
SPLITS = ("train", "test", "val")


def find(root: Path) -> Path | None:
    """Find the folder or the archive."""
    return find_data(root, [TITLE], _holds_data)


def _holds_data(folder: Path) -> bool:
    first, table = "n01532829", folder / "train.csv"
    if any((folder / place / first).is_dir() for place in ("", "train", "test")):
        return True
    return table.is_file() and first in table.read_text(errors="replace")


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load the images of the official lists, in their order."""
    folder = unpacked_data(DATASET, root, _holds_data, LAYOUTS, reporter)
    paths = _checked_images(folder)
    names = mini_imagenet_names()
    label = {wnid: index for index, wnid in enumerate(names)}
    files = {split: [ImageFile(paths[n], label[n[:9]]) for n in _listed(split)] for split in COUNTS}
    train, test = load_files(files["train"], files["test"], RESIZE, reporter)
    position = {file.path.name: index for index, file in enumerate(files["train"])}
    shots = [position[line.rpartition("/")[2]] for line in shot_lines("mini_imagenet", PROTOCOL)]
    return Benchmark(
        name="mini_imagenet",
        class_names=tuple(names.values()),
        train=train,
        test=test,
        protocol=PROTOCOL,
        listed_shots=shots_by_class(np.array(shots), train.labels),
    )


def _listed(split: str) -> list[str]:
    """Return the names of the images of a split."""
    return [line.rpartition("/")[2] for line in read_list(f"mini_imagenet_{split}")]


def _checked_images(folder: Path) -> dict[str, Path]:
    """Return the images by name, after comparing counts and split with the lists."""
    official = {name: split for split in COUNTS for name in _listed(split)}
    paths: dict[str, Path] = {}
    claims = _claims_of_csv(folder)
    found: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    right: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for path in image_files(folder):
        claim = claims.get(path.name) or _claim_of_folder(folder, path) or official.get(path.name, "train")
        wnid = path.name[:9] if path.name in official else path.parent.name
        found[claim][wnid] += 1
        right[claim][wnid] += official.get(path.name) == claim
        paths[path.name] = path
    try:
        for split, count in COUNTS.items():
            expected = dict.fromkeys(mini_imagenet_names(), count)
            check_counts(TITLE, WORDS[split], found[split], expected)
            check_counts(TITLE, f"listed {WORDS[split]}", right[split], expected)
    except UserError as problem:
        raise UserError(
            f"{folder}: {problem}. If all 600 images of each class are there under their usual names, put "
            "them into one folder a class, without train/, test/ and csv files: the lists tell the split"
        ) from None
    return paths


def _claims_of_csv(folder: Path) -> Mapping[str, str]:
    """Return the split that csv files beside the images claim for each of them."""
    claims: dict[str, str] = {}
    for split in SPLITS:
        if (folder / f"{split}.csv").is_file():
            with (folder / f"{split}.csv").open(newline="") as file:
                claims |= {row["filename"]: split for row in csv.DictReader(file) if row.get("filename")}
    return claims


def _claim_of_folder(folder: Path, path: Path) -> str | None:
    """Return the split that the folder of an image claims for it."""
    return next((part for part in path.parts[len(folder.parts) : -1] if part in SPLITS), None)


DATASET = Dataset(
    name="mini_imagenet",
    title=TITLE,
    load=load,
    find=find,
    get=None,
    advice=(
        "It has no public source to download from. If you have it, put it there as a folder or archive named "
        f"MINI-ImageNet, in one of these layouts: {LAYOUTS}."
    ),
)
