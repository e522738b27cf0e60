"""Speed of reading pictures: building the cache, reading it, and decoding the files each time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from PIL import Image

from fairshot.benchmarks.cache import CachedPictures, Resize, cached_pictures
from fairshot.errors import BadInput
from fairshot.progress import SILENT, Reporter

BATCH = 128
T = TypeVar("T")


@dataclass(frozen=True)
class DataSpeed:
    """Pictures per second."""

    files: int
    readable: int  # of the files: these are read
    build_cache: float
    open_cache: float  # and verify its checksums
    read_cache: float
    plain: float  # a DataLoader that decodes with PIL


def measure_data(files: Sequence[Path], resize: Resize, reporter: Reporter = SILENT) -> DataSpeed:
    """Measure building and reading the cache of some files beside a plain PIL DataLoader on the same files.

    The cache is built in a temporary folder. The cache and the plain loader deliver every picture once, in
    random order; files that cannot be read are left out.
    """
    with tempfile.TemporaryDirectory(prefix="fairshot-") as folder:

        def cache() -> CachedPictures:
            return cached_pictures(files, resize, reporter=reporter, folder=Path(folder))

        (built, build), (cached, opened) = _timed(cache), _timed(cache)
        readable = [index for index in range(len(files)) if index not in built.unreadable]
        if not readable:
            raise BadInput(
                "files", f"none of {len(files)} can be read as an image; give a folder of pictures"
            )
        order = np.random.default_rng(0).permutation(readable)
        copied, read = _timed(lambda: sum(cached.pictures[index].copy().size for index in order))
    decoded, plain = _timed(lambda: _read_plain([files[index] for index in order], resize, reporter))
    if copied != decoded:
        raise RuntimeError(f"the cache gave {copied} bytes of pixels and the files {decoded}")
    return DataSpeed(
        files=len(files),
        readable=len(order),
        build_cache=len(files) / build,
        open_cache=len(files) / opened,
        read_cache=len(order) / read,
        plain=len(order) / plain,
    )


def generated_photographs(folder: Path, count: int) -> list[Path]:
    """Make JPEG files of 500 x 375 pixels and about 80 KB, like photographs."""
    rng = np.random.default_rng(0)
    files = [folder / f"{number}.jpg" for number in range(count)]
    for file in files:
        scene = Image.fromarray(rng.integers(0, 256, (15, 20, 3), dtype=np.uint8))
        smooth = np.asarray(scene.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.float64)
        grain = rng.normal(0, 8, smooth.shape)
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, quality=93)
    return files


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _read_plain(files: list[Path], resize: Resize, reporter: Reporter) -> int:
    """Read files as most training code does, decoding each when it is needed; return the bytes of pixels."""
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader(
        files,  # type: ignore[arg-type]  # a list has all that a Dataset needs
        batch_size=BATCH,
        num_workers=joblib.cpu_count(),
        collate_fn=partial(_decode_plain, resize=resize),
    )
    size = 0
    with reporter.track("plain DataLoader", len(files)) as advance:
        for batch in loader:
            size += sum(image.numel() for image in batch)
            advance(len(batch))
    return size


def _decode_plain(files: list[Path], resize: Resize) -> list[Any]:
    from torch import from_numpy

    images = []
    for file in files:
        with Image.open(file) as image:
            rgb = image.convert("RGB")
        height, width = resize.size(rgb.height, rgb.width)
        images.append(from_numpy(np.array(rgb.resize((width, height), Image.Resampling.BILINEAR))))
    return images
