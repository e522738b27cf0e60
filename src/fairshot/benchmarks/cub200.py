"""CUB-200-2011: 100 base classes, 10 sessions of 10-way 5-shot, classes in the order of their numbers.

Images keep their aspect ratio; their short side becomes 256 pixels.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from fairshot.benchmarks.archives import unpack
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.dataset import Dataset, check_counts
from fairshot.benchmarks.download import download
from fairshot.benchmarks.image_files import ImageFile, find_data, image_files, load_files, unpacked_data
from fairshot.benchmarks.lists import cub200_counts, read_list, shot_lines, shots_by_class
from fairshot.benchmarks.stream import Benchmark, Protocol
from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter

TITLE = "CUB-200-2011"
PROTOCOL = Protocol(base_classes=100, way=10, shots=5, sessions=10)
RESIZE = Resize(256)
ARCHIVE = "CUB_200_2011.tgz"
URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1"
MD5 = "97eceeb196236b17998738112f37df78"
LAYOUTS = (
    "that of its archive (images/, images.txt, train_test_split.txt), or train/<class>/ and test/<class>/"
)


def find(root: Path) -> Path | None:
    """Find the folder or the archive."""
    return find_data(root, [TITLE, "CUB-200", "CUB"], _holds_data)


def _holds_data(folder: Path) -> bool:
    return (folder / "images.txt").is_file() or (folder / "train" / "001.Black_footed_Albatross").is_dir()


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load all images with the dataset's own division into training and test images."""
    folder = unpacked_data(DATASET, root, _holds_data, LAYOUTS, reporter)
    split = _split(folder)
    _check(folder, split)
    names = [name for name, _, _ in cub200_counts()]
    label = {name: index for index, name in enumerate(names)}
    files = {
        key: [ImageFile(path, label[path.parent.name]) for path in sorted(paths)]
        for key, paths in split.items()
    }
    train, test = load_files(files["train"], files["test"], RESIZE, reporter)
    position = {file.path.name: index for index, file in enumerate(files["train"])}
    shots = [position[Path(line).name] for line in shot_lines("cub200", PROTOCOL)]
    return Benchmark(
        name="cub200",
        class_names=tuple(name.split(".", 1)[1].replace("_", " ") for name in names),
        train=train,
        test=test,
        protocol=PROTOCOL,
        listed_shots=shots_by_class(np.array(shots), train.labels),
    )


def _split(folder: Path) -> dict[str, list[Path]]:
    """Return the training and the test images that are there."""
    if not (folder / "images.txt").is_file():
        return {split: list(image_files(folder / split)) for split in ("train", "test")}
    path_of, is_train = _numbered(folder / "images.txt"), _numbered(folder / "train_test_split.txt")
    there = set(image_files(folder / "images"))
    split: dict[str, list[Path]] = {"train": [], "test": []}
    for number, path in path_of.items():
        if (image := folder / "images" / path) in there:
            split["train" if is_train.get(number) == "1" else "test"].append(image)
    return split


def _numbered(path: Path) -> dict[str, str]:
    """Read lines of an image's number and a word."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {number: word for number, word in lines if number.isdigit()}
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} is not the file of CUB-200-2011: {problem}") from problem


def _check(folder: Path, split: dict[str, list[Path]]) -> None:
    """Refuse wrong counts, and a training split without the images that the official lists train on."""
    counts = cub200_counts()
    listed = {(Path(line).parent.name, Path(line).name) for line in read_list("cub200")}
    train = [(path.parent.name, path.name) for path in split["train"]]
    try:
        check_counts(
            TITLE, "training", Counter(name for name, _ in train), {name: n for name, n, _ in counts}
        )
        check_counts(
            TITLE,
            "test",
            Counter(path.parent.name for path in split["test"]),
            {name: n for name, _, n in counts},
        )
        there = Counter(name for name, file in train if (name, file) in listed)
        check_counts(TITLE, "listed training", there, Counter(name for name, _ in listed))
    except UserError as problem:
        raise UserError(f"{folder}: {problem}") from None


def get(root: Path, reporter: Reporter = SILENT) -> None:
    """Download the archive and unpack it."""
    download(URL, root / ARCHIVE, MD5, reporter)
    unpack(root / ARCHIVE, reporter)


DATASET = Dataset(
    name="cub200",
    title=TITLE,
    load=load,
    find=find,
    get=get,
    advice=(
        "`fairshot data get cub200` downloads it (1.1 GiB), or put its archive or folder CUB_200_2011 there; "
        f"layouts: {LAYOUTS}."
    ),
)
