"""How fast pictures come: building the cache, reading it, and decoding the files anew each time."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from PIL import Image

from fairshot.benchmarks.cache import Resize, cached_pictures
from fairshot.benchmarks.pictures import Bytes
from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter

BATCH = 128


@dataclass(frozen=True)
class Speed:
    """Images passed in a time."""

    what: str
    images: int
    seconds: float

    @property
    def images_per_second(self) -> float:
        """Images a second."""
        return self.images / self.seconds


def measure_data(files: Sequence[Path], resize: Resize, reporter: Reporter = SILENT) -> list[Speed]:
    """Measure building and reading the cache of some files against a plain PIL DataLoader on the same files.

    The cache is built in a temporary folder. Each reader delivers every picture once, in random order; files
    that cannot be read are passed over after the cache has met them.
    """
    speeds = []
    with _temporary_cache():
        for what in ("build the cache", "open and verify the cache"):
            began = time.perf_counter()
            cached = cached_pictures(files, resize, reporter=reporter)
            speeds.append(Speed(what, len(files), time.perf_counter() - began))
        readable = [index for index in range(len(files)) if index not in cached.unreadable]
        if not readable:
            raise UserError(
                f"none of the {len(files)} files can be read as an image; give a folder of pictures"
            )
        order = np.random.default_rng(0).permutation(readable)
        began = time.perf_counter()
        copied = sum(cached.pictures[index].copy().size for index in order)
        speeds.append(Speed("read from the cache", len(order), time.perf_counter() - began))
    began = time.perf_counter()
    with reporter.track("plain DataLoader", len(order)) as advance:
        decoded = 0
        for batch in _plain_loader([files[index] for index in order], resize):
            decoded += sum(image.numel() for image in batch)
            advance(len(batch))
    speeds.append(Speed("PIL DataLoader", len(order), time.perf_counter() - began))
    if copied != decoded:
        raise RuntimeError(f"the cache gave {copied} bytes of pixels and the files {decoded}")
    return speeds


def generated_photographs(folder: Path, count: int) -> list[Path]:
    """Make JPEG files of 500 x 375 pixels and about 80 KB, as photographs are, for want of real ones."""
    rng = np.random.default_rng(0)
    files = [folder / f"{number}.jpg" for number in range(count)]
    for file in files:
        scene = Image.fromarray(rng.integers(0, 256, (15, 20, 3), dtype=np.uint8))
        smooth = np.asarray(scene.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.float64)
        grain = rng.normal(0, 8, smooth.shape)
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, quality=93)
    return files


@contextmanager
def _temporary_cache() -> Iterator[None]:
    """Let the cache begin empty, where nobody else's is touched."""
    before = os.environ.get("FAIRSHOT_CACHE")
    with tempfile.TemporaryDirectory(prefix="fairshot-") as folder:
        os.environ["FAIRSHOT_CACHE"] = folder
        try:
            yield
        finally:
            del os.environ["FAIRSHOT_CACHE"]
            if before is not None:
                os.environ["FAIRSHOT_CACHE"] = before


class _PlainFiles:
    """Decodes a file whenever it is asked for, as most training code does."""

    def __init__(self, files: Sequence[Path], resize: Resize) -> None:
        self.files = files
        self.resize = resize

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Bytes:
        with Image.open(self.files[index]) as image:
            rgb = image.convert("RGB")
        height, width = self.resize.size(rgb.height, rgb.width)
        return np.array(rgb.resize((width, height), Image.Resampling.BILINEAR))


def _plain_loader(files: Sequence[Path], resize: Resize) -> Iterator[list[Any]]:
    from torch import from_numpy
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader(
        _PlainFiles(files, resize),  # type: ignore[arg-type]  # it has all that a Dataset needs
        batch_size=BATCH,
        num_workers=joblib.cpu_count(),
        collate_fn=lambda images: [from_numpy(image) for image in images],
    )
    return iter(loader)
