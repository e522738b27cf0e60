"""miniImageNet and CUB-200-2011 from generated trees with the real lists: layouts, counts, refusals."""

import io
import os
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairshot.benchmarks import cub200, dataset, lists, mini_imagenet
from fairshot.benchmarks.archives import unpack
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.dataset import ImageFile, MissingData, WrongData, load_files
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures, StreamSettings, build_stream
from fairshot.errors import BadImage, FileRefused, PathUnusable
from fairshot.progress import SILENT


def _jpeg() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (1, 1)).save(content, "JPEG")
    return content.getvalue()


def _fill(folder: Path, names: list[str]) -> None:
    """Put a file under each name: links to one, which makes 60,000 of them quickly."""
    folder.mkdir(parents=True, exist_ok=True)
    original = folder / ".original"
    original.write_bytes(_jpeg())
    for parent in {os.path.dirname(name) for name in names}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for name in names:
        os.link(original, folder / name)


# --- miniImageNet -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mini_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    _fill(root, [*lists.read_list("mini_imagenet_train"), *lists.read_list("mini_imagenet_test")])
    return root


@pytest.fixture
def not_decoded(monkeypatch) -> dict[int, str]:
    """Spare the decoding of 60,000 files; a picture is the number of its file, and here are their paths."""
    paths: dict[int, str] = {}

    def load_files(train, test, resize, reporter):
        numbers = np.arange(len(train) + len(test), dtype=np.uint32)
        paths.update(enumerate(str(file.path) for file in [*train, *test]))
        pictures = Pictures.from_array(numbers.view(np.uint8).reshape(-1, 1, 4))
        everything = LabelledPictures(pictures, np.array([file.label for file in [*train, *test]]))
        return everything.take(numbers[: len(train)]), everything.take(numbers[len(train) :])

    monkeypatch.setattr(dataset, "load_files", load_files)
    return paths


def _paths(images: LabelledPictures, paths: dict[int, str]) -> list[str]:
    return [paths[int(picture.reshape(4).view(np.uint32)[0])] for picture in images.pictures]


def test_mini_imagenet_shows_the_images_of_the_lists(mini_root, not_decoded):
    stream = build_stream(mini_imagenet.load(mini_root), StreamSettings())
    assert [len(session.classes) for session in stream.sessions] == [60] + [5] * 8
    np.testing.assert_array_equal(np.bincount(stream.base.train.labels), 500)
    np.testing.assert_array_equal(np.bincount(stream.seen_test(8).labels), 100)
    assert stream.class_names[:2] == ("house finch", "robin")
    lines = lists.shot_lines("mini_imagenet", mini_imagenet.PROTOCOL)
    wnids = list(lists.mini_imagenet_names())
    for number, session in enumerate(stream.sessions[1:]):
        listed = lines[25 * number : 25 * number + 25]
        shown = _paths(session.train, not_decoded)
        assert sorted(shown) == sorted(str(mini_root / line) for line in listed)
        assert [wnids[label] for label in session.train.labels] == [Path(path).parent.name for path in shown]


def _names(split: str) -> list[str]:
    """Return listed images of miniImageNet, as few per class as the fixture `few` leaves."""
    return mini_imagenet.read_list(f"mini_imagenet_{split}")


@pytest.fixture
def few(monkeypatch) -> None:
    """Make a smaller miniImageNet official: 20 training images per class (with the shots), 4 to test."""
    counts = {"train": 20, "test": 4}
    shots = set(lists.shot_lines("mini_imagenet", mini_imagenet.PROTOCOL))
    kept = {}
    for split, count in counts.items():
        by_class: dict[str, list[str]] = {}
        for line in sorted(lists.read_list(f"mini_imagenet_{split}"), key=lambda line: line not in shots):
            by_class.setdefault(line.split("/")[2], []).append(line)
        kept[f"mini_imagenet_{split}"] = [line for lines in by_class.values() for line in lines[:count]]
    monkeypatch.setattr(mini_imagenet, "COUNTS", counts)
    monkeypatch.setattr(mini_imagenet, "read_list", kept.__getitem__)


@pytest.mark.parametrize("layout", ["flat with csv", "folder per class"])
def test_mini_imagenet_is_found_in_each_layout(few, not_decoded, tmp_path, layout):
    train, test = _names("train"), _names("test")
    folder = tmp_path / "mini-imagenet"
    if layout == "flat with csv":
        _fill(folder, ["images/" + line.rpartition("/")[2] for line in train + test])
        for split, lines in (("train", train), ("test", test)):
            rows = [f"{line.split('/')[3]},{line.split('/')[2]}\n" for line in lines]
            (folder / f"{split}.csv").write_text("filename,label\n" + "".join(rows))
    else:
        _fill(folder, ["/".join(line.split("/")[2:]) for line in train + test])
    benchmark = mini_imagenet.load(tmp_path)
    assert len(benchmark.train) == 2_000
    assert len(benchmark.test) == 400
    names = [Path(path).name for path in _paths(benchmark.train, not_decoded)]
    assert names == [line.rpartition("/")[2] for line in train]


@pytest.mark.parametrize("wrong", ["missing", "re-split", "more", "csv"])
def test_wrong_mini_imagenets_are_refused_with_class_and_count(few, tmp_path, wrong):
    _fill(tmp_path, [*_names("train"), *_names("test")])
    root = tmp_path / "MINI-ImageNet"
    train, test = root / "train/n01558993", root / "test/n01558993"
    if wrong == "missing":
        for path in sorted(train.iterdir())[:3]:
            path.unlink()
        message = "n01558993 has 17 training images instead of 20"
    elif wrong == "re-split":
        some, others = sorted(train.iterdir())[:4], sorted(test.iterdir())[:4]
        for a, b in zip(some, others, strict=True):
            a.rename(test / a.name)
            b.rename(train / b.name)
        message = "n01558993 has 16 listed training images instead of 20"
    elif wrong == "more":
        (test / "new.jpg").write_bytes(_jpeg())
        message = "n01558993 has 5 test images instead of 4"
    else:
        (root / "train.csv").write_text(f"filename,label\n{min(test.iterdir()).name},n01558993\n")
        message = "n01558993 has 21 training images instead of 20"
    with pytest.raises(WrongData, match=message) as problem:
        mini_imagenet.load(tmp_path)
    assert problem.value.folder == root


def test_mini_imagenet_that_is_missing_names_the_layouts(tmp_path):
    with pytest.raises(
        MissingData, match=r"train\.csv and test\.csv.*one folder per class.*\.zip"
    ) as problem:
        mini_imagenet.load(tmp_path)
    assert (problem.value.dataset, problem.value.root) == (mini_imagenet.DATASET, tmp_path)
    with tarfile.open(tmp_path / "mini_imagenet.tar", "w"):
        pass
    with pytest.raises(PathUnusable):
        mini_imagenet.load(tmp_path)


def test_an_archive_of_mini_imagenet_is_unpacked_and_its_counts_compared(tmp_path):
    first = lists.read_list("mini_imagenet_train")[0]
    with tarfile.open(tmp_path / "miniImageNet.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo(first)
        info.size = len(_jpeg())
        tar.addfile(info, io.BytesIO(_jpeg()))
    with pytest.raises(WrongData, match="n01532829 has 1 training images instead of 500"):
        mini_imagenet.load(tmp_path)
    assert mini_imagenet.find(tmp_path) == tmp_path / "miniImageNet.unpacked" / "MINI-ImageNet"


# --- CUB-200-2011 -------------------------------------------------------------------------------------------


@cache
def _cub_images() -> dict[str, bool]:
    """Return the images of a CUB-shaped tree, listed and made-up ones, and which are for training."""
    images = {line.split("/", 2)[2]: True for line in lists.read_list("cub200")}
    listed = Counter(image.partition("/")[0] for image in images)
    for name, train, test in lists.cub200_counts():
        images |= {f"{name}/more_train_{i}.jpg": True for i in range(train - listed[name])}
        images |= {f"{name}/test_{i}.jpg": False for i in range(test)}
    return images


@pytest.fixture(scope="module")
def cub_root(tmp_path_factory) -> Path:
    """Make an archive in the original layout; the pixel of each image is its number."""
    root = tmp_path_factory.mktemp("cub")
    images = _cub_images()
    bitmap = io.BytesIO()
    Image.new("RGB", (1, 1)).save(bitmap, "BMP")
    header = bitmap.getvalue()[:-4]  # then blue, green, red, and a byte of padding
    contents = {
        f"images/{image}": header + bytes([0, number // 256, number % 256, 0])
        for number, image in enumerate(images)
    }
    numbered = list(enumerate(images.items(), start=1))
    contents["images.txt"] = "".join(f"{i} {image}\n" for i, (image, _) in numbered).encode()
    contents["train_test_split.txt"] = "".join(f"{i} {int(train)}\n" for i, (_, train) in numbered).encode()
    with tarfile.open(root / "CUB_200_2011.tgz", "w:gz", compresslevel=1) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"CUB_200_2011/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return root


@pytest.fixture(scope="module")
def cub_folder(cub_root) -> Path:
    return unpack(cub_root / "CUB_200_2011.tgz") / "CUB_200_2011"


def test_cub_shows_the_images_of_the_lists_and_the_counts_of_the_protocol(cub_root, monkeypatch):
    monkeypatch.setattr(cub200, "RESIZE", Resize(1))
    stream = build_stream(cub200.load(cub_root), StreamSettings())
    images = list(_cub_images())
    assert [len(session.classes) for session in stream.sessions] == [100] + [10] * 10
    np.testing.assert_array_equal(np.bincount(stream.base.train.labels), 30)
    tests = [len(session.test) for session in stream.sessions]
    assert tests == [2864, 279, 287, 298, 300, 298, 288, 297, 295, 288, 300]
    assert stream.class_names[0] == "Black footed Albatross"
    lines = lists.shot_lines("cub200", cub200.PROTOCOL)
    for number, session in enumerate(stream.sessions[1:]):
        pixels = [picture.reshape(3).astype(int) for picture in session.train.pictures]
        shown = [images[red + 256 * green] for red, green, _ in pixels]
        assert sorted(shown) == sorted(
            line.split("/", 2)[2] for line in lines[50 * number : 50 * number + 50]
        )
        assert [int(image[:3]) - 1 for image in shown] == session.train.labels.tolist()


def test_wrong_cubs_are_refused_with_class_and_count(cub_root, cub_folder):
    folder = cub_folder
    gone = folder / "images/007.Parakeet_Auklet/test_0.jpg"
    gone.rename(gone.with_suffix(".moved"))
    with pytest.raises(WrongData, match=r"007\.Parakeet_Auklet has 22 test images instead of 23"):
        cub200.load(cub_root)
    gone.with_suffix(".moved").rename(gone)
    split = folder / "train_test_split.txt"
    official = split.read_text()
    names = dict(line.split() for line in (folder / "images.txt").read_text().splitlines())
    listed = next(n for n, image in names.items() if image.startswith("101.") and "more" not in image)
    other = next(n for n, image in names.items() if image.startswith("101.") and "test" in image)
    split.write_text(
        official.replace(f"\n{listed} 1\n", f"\n{listed} 0\n").replace(f"\n{other} 0\n", f"\n{other} 1\n")
    )
    with pytest.raises(WrongData, match=r"101\.White_Pelican has 4 listed training images instead of 5"):
        cub200.load(cub_root)
    split.write_text("1 2 3\n")
    with pytest.raises(FileRefused) as refused:
        cub200.load(cub_root)
    assert refused.value.path == split
    split.write_text(official)


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "whole.jpg").write_bytes(_jpeg())
    (tmp_path / "half.jpg").write_bytes(_jpeg()[:99])
    files = [ImageFile(tmp_path / name, 0) for name in ("whole.jpg", "half.jpg")]
    with pytest.raises(BadImage, match="1 of 2 files") as refused:
        load_files(files[:1], files[1:], Resize(1), SILENT)
    assert refused.value.name == str(tmp_path / "half.jpg")


def test_split_folders_are_another_layout_of_cub(tmp_path, cub_folder, monkeypatch):
    monkeypatch.setattr(cub200, "RESIZE", Resize(1))
    for image, train in _cub_images().items():
        target = tmp_path / "cub-200/wrapper" / ("train" if train else "test") / image
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(cub_folder / "images" / image, target)
    benchmark = cub200.load(tmp_path)
    assert (len(benchmark.train), len(benchmark.test)) == (5994, 5794)
