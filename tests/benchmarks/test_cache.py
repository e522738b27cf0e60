"""The picture cache: decoded once, known by content, safe with two builders, rebuilt when damaged."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairshot.benchmarks import cache
from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.errors import PathUnusable

KEEP = Resize(1000, enlarge=False)  # no picture of a test is so large


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


def _images(folder: Path, count: int = 5) -> tuple[list[Path], list[np.ndarray]]:
    folder.mkdir()
    rng = np.random.default_rng(count)
    arrays = [rng.integers(0, 256, (2 + i % 3, 3 + i % 2, 3), dtype=np.uint8) for i in range(count)]
    paths = [folder / f"{i:04}.bmp" for i in range(count)]
    for path, array in zip(paths, arrays, strict=True):
        Image.fromarray(array).save(path)
    return paths, arrays


def _same(cached: cache.CachedPictures, arrays: list[np.ndarray]) -> None:
    assert len(cached.pictures) == len(arrays)
    for got, want in zip(cached.pictures, arrays, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.fixture
def decoded(monkeypatch) -> list[Path]:
    """Record which files are decoded (few files are decoded in this process)."""
    seen: list[Path] = []

    def recorded(path, channels):
        seen.append(path)
        return read_image(path, channels)

    read_image = cache.read_image
    monkeypatch.setattr(cache, "read_image", recorded)
    return seen


def test_files_are_decoded_once_and_known_by_content_wherever_they_lie(store, tmp_path, decoded):
    paths, arrays = _images(tmp_path / "a")
    _same(cached_pictures(paths, KEEP), arrays)
    assert decoded == paths
    _same(cached_pictures(paths, KEEP), arrays)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    _same(cached_pictures([tmp_path / "b" / path.name for path in paths], KEEP), arrays)
    assert len(decoded) == 5
    assert len(list(store.glob("*.pixels"))) == 1


def test_other_contents_orders_and_transforms_are_other_sets(store, tmp_path, decoded):
    paths, arrays = _images(tmp_path / "a")
    cached_pictures(paths, KEEP)
    _same(cached_pictures(paths[::-1], KEEP), arrays[::-1])
    assert cached_pictures(paths, Resize(7, square=True)).pictures[0].shape == (7, 7, 3)
    state = paths[0].stat()
    with paths[0].open("r+b") as file:  # an edit that hides behind its old size and time is still seen
        file.seek(54)
        file.write(bytes([arrays[0][-1, 0, 2] ^ 1]))
    os.utime(paths[0], ns=(state.st_atime_ns, state.st_mtime_ns))
    arrays[0][-1, 0, 2] ^= 1
    _same(cached_pictures(paths, KEEP), arrays)
    assert len(list(store.glob("*.pixels"))) == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "index", "no index", "no pixels", "empty"])
def test_a_damaged_set_is_built_again(store, tmp_path, decoded, damage):
    paths, arrays = _images(tmp_path / "a")
    cached_pictures(paths, KEEP)
    (pixels,), (index,) = store.glob("*.pixels"), store.glob("*.npz")
    content = bytearray(pixels.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        pixels.write_bytes(content)
    elif damage == "cut":
        pixels.write_bytes(content[:-1])
    elif damage == "grow":
        pixels.write_bytes(content + b"x")
    elif damage == "index":
        index.write_bytes(index.read_bytes()[:-30])
    elif damage == "no index":
        index.unlink()
    elif damage == "no pixels":
        pixels.unlink()
    else:
        pixels.write_bytes(b"")
    _same(cached_pictures(paths, KEEP), arrays)
    assert len(decoded) == 10
    _same(cached_pictures(paths, KEEP), arrays)
    assert len(decoded) == 10


def test_unreadable_files_are_named_by_reason_and_the_others_kept(store, tmp_path):
    paths, arrays = _images(tmp_path / "a")
    paths[1].write_bytes(paths[1].read_bytes()[:40])
    paths[3].unlink()
    cached = cached_pictures(paths, KEEP)
    assert sorted(cached.unreadable) == [1, 3]
    assert "cannot be read" in cached.unreadable[1]
    assert "no such" in cached.unreadable[3]
    for index in (0, 2, 4):
        np.testing.assert_array_equal(cached.pictures[index], arrays[index])
    Image.fromarray(arrays[3]).save(paths[3])
    assert sorted(cached_pictures(paths, KEEP).unreadable) == [1]


def test_many_files_are_decoded_by_several_processes_in_their_order(store, tmp_path):
    paths, arrays = _images(tmp_path / "a", count=300)
    paths[200].write_bytes(b"broken")
    arrays[200] = np.empty((0, 0, 3), np.uint8)
    cached = cached_pictures(paths, KEEP)
    _same(cached, arrays)
    assert list(cached.unreadable) == [200]


def test_resizing_keeps_the_aspect_ratio_unless_told_otherwise():
    assert Resize(256).size(300, 500) == (256, 426)
    assert Resize(256).size(500, 300) == (426, 256)
    assert Resize(256).size(100, 200) == (256, 512)
    assert Resize(256, enlarge=False).size(100, 200) == (100, 200)
    assert Resize(84, square=True).size(300, 500) == (84, 84)
    image = np.zeros((40, 20, 3), np.uint8)
    image[:20] = 200
    small = Resize(10).apply(image)
    assert small.shape == (20, 10, 3)
    assert small[:9].min() == 200
    assert small[11:].max() == 0
    assert Resize(10).apply(image[:, :, :1]).shape == (20, 10, 1)


BUILDER = """
    import sys, time
    from pathlib import Path
    from fairshot.benchmarks import cache
    from fairshot.progress import Reporter

    decode = cache._decode
    def slow(files, *rest):
        with open(sys.argv[1], "a") as log:
            log.write("x" * len(files))
        time.sleep(float(sys.argv[2]))
        return decode(files, *rest)
    cache._decode = slow

    files = sorted(Path(sys.argv[3]).iterdir())
    pictures = cache.cached_pictures(files, cache.Resize(1000, enlarge=False)).pictures
    print(sum(int(picture.sum()) for picture in pictures))
"""


def _builder(tmp_path: Path, pause: float) -> subprocess.Popen[str]:
    script = textwrap.dedent(BUILDER)
    arguments = [sys.executable, "-c", script, tmp_path / "log", str(pause), tmp_path / "a"]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_two_builders_at_once_build_once_and_agree(store, tmp_path):
    _, arrays = _images(tmp_path / "a", count=40)
    builders = [_builder(tmp_path, 0.3) for _ in range(2)]
    answers = [builder.communicate()[0] for builder in builders]
    assert answers == [f"{sum(int(array.sum()) for array in arrays)}\n"] * 2
    assert (tmp_path / "log").read_text() == "x" * 40


def test_a_killed_builder_leaves_nothing_in_the_way(store, tmp_path):
    paths, arrays = _images(tmp_path / "a", count=40)
    builder = _builder(tmp_path, 60)
    while not (tmp_path / "log").exists():
        assert builder.poll() is None
        time.sleep(0.02)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert not list(store.glob("*.npz"))
    _same(cached_pictures(paths, KEEP), arrays)
    assert not list(store.glob("*.partial"))


def test_a_cache_that_cannot_be_written_is_one_error(tmp_path, monkeypatch):
    paths, _ = _images(tmp_path / "a")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "file" / "inside"))
    with pytest.raises(PathUnusable, match="FAIRSHOT_CACHE"):
        cached_pictures(paths, KEEP)
