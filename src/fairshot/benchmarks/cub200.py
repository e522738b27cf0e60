"""CUB-200-2011: 100 base classes, 10 sessions of 10-way 5-shot, classes in the order of their numbers.

Images keep their aspect ratio; their short side becomes 256 pixels.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.dataset import (
    Dataset,
    ImageFile,
    Source,
    check_counts,
    find_data,
    load_benchmark,
    unpacked_data,
)
from fairshot.benchmarks.images import image_files
from fairshot.benchmarks.lists import cub200_counts, read_list
from fairshot.benchmarks.stream import Benchmark, Protocol
from fairshot.errors import FileRefused
from fairshot.progress import SILENT, Reporter

PROTOCOL = Protocol(base_classes=100, way=10, shots=5, sessions=10)
RESIZE = Resize(256)


def find(root: Path) -> Path | None:
    """Find the folder or the archive."""
    return find_data(root, ["CUB-200-2011", "CUB-200", "CUB"], _holds_data)


def _holds_data(folder: Path) -> bool:
    return (folder / "images.txt").is_file() or (folder / "train" / "001.Black_footed_Albatross").is_dir()


def load(root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Load all images with the dataset's own division into training and test images."""
    folder = unpacked_data(DATASET, root, _holds_data, reporter)
    train, test = _train_and_test(folder)
    _check(folder, train, test)
    names = [name for name, _, _ in cub200_counts()]
    label = {name: index for index, name in enumerate(names)}
    files = [[ImageFile(path, label[path.parent.name]) for path in sorted(split)] for split in (train, test)]
    titles = [name.split(".", 1)[1].replace("_", " ") for name in names]
    return load_benchmark("cub200", titles, PROTOCOL, files[0], files[1], RESIZE, reporter)


def _train_and_test(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the training images and the test images that are there."""
    if not (folder / "images.txt").is_file():
        return list(image_files(folder / "train")), list(image_files(folder / "test"))
    path_of, is_train = _numbered(folder / "images.txt"), _numbered(folder / "train_test_split.txt")
    there = set(image_files(folder / "images"))
    train: list[Path] = []
    test: list[Path] = []
    for number, path in path_of.items():
        if (image := folder / "images" / path) in there:
            (train if is_train.get(number) == "1" else test).append(image)
    return train, test


def _numbered(path: Path) -> dict[str, str]:
    """Read lines of an image's number and a word."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {number: word for number, word in lines if number.isdigit()}
    except (OSError, ValueError) as problem:
        raise FileRefused(path, f"it is not that of CUB-200-2011: {problem}") from problem


def _check(folder: Path, train: list[Path], test: list[Path]) -> None:
    """Refuse wrong counts, and a training split without the images that the official lists train on."""
    listed = {tuple(line.split("/")[-2:]) for line in read_list("cub200")}
    trained = [(path.parent.name, path.name) for path in train]
    for kind, names, counts in (
        ("training", [name for name, _ in trained], {name: count for name, count, _ in cub200_counts()}),
        ("test", [path.parent.name for path in test], {name: count for name, _, count in cub200_counts()}),
        ("listed training", [pair[0] for pair in trained if pair in listed], Counter(n for n, _ in listed)),
    ):
        check_counts(DATASET, folder, kind, Counter(names), counts)


DATASET = Dataset(
    name="cub200",
    title="CUB-200-2011",
    load=load,
    find=find,
    layouts=(
        "the archive or folder CUB_200_2011, with images/, images.txt and train_test_split.txt, or with "
        "train/<class>/ and test/<class>/"
    ),
    source=Source(
        url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
        md5="97eceeb196236b17998738112f37df78",
        archive="CUB_200_2011.tgz",
        size="1.1 GiB",
    ),
)
