"""Small stores for tests: an untrained embedder, made-up base classes, drawings that differ."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fairshot.benchmarks.pictures import Bytes
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.teaching.creation import BaseClasses, StoreSpec, create_store
from fairshot.teaching.network import Network
from fairshot.teaching.store import Store

SIDE = 16


def network(sr_width: int | None = 24, channels: int = 1, drawings: bool = False) -> Network:
    """Build an untrained embedder, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        settings = ModelSettings(backbone="tiny", small_stem=False, size=SIDE)
        embedder = Embedder(settings, channels, sr_width)
    return Network(embedder, (False, True) if sr_width else (False,), SIDE if drawings else None)


def base_classes(names: list[str], net: Network) -> BaseClasses:
    """Make base classes of the features of some drawings, which are kept as samples."""
    samples = {
        position: net.embed_photos(net.preparation.pictures(drawings(f"sample of {name}", 4)))
        for position, name in enumerate(names)
    }
    return BaseClasses(
        names=names,
        g=torch.stack([torch.stack([photo.g for photo in each]).mean(0) for each in samples.values()]),
        g_tilde=torch.stack(
            [torch.stack([photo.g_tilde for photo in each]).mean(0) for each in samples.values()]
        ),
        counts=[4] * len(names),
        samples=samples,
    )


def make_store(
    folder: Path, base: tuple[str, ...] = ("ant", "bee", "cow"), sr_width: int | None = 24
) -> Store:
    """Make a store with some base classes, or with none."""
    shutil.copytree(_pattern(base, sr_width), folder)
    return Store(folder)


@cache
def _pattern(base: tuple[str, ...], sr_width: int | None) -> Path:
    """Make a store once, to be copied."""
    place = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    net = network(sr_width)
    founded = base_classes(list(base), net) if base else None
    create_store(place / "store", StoreSpec(net, founded, gamma=0.3 if base else 0.0)).close()
    return place / "store"


def drawings(word: str, count: int, channels: int = 1) -> list[Bytes]:
    """Draw blobs that depend on a word: those of one word resemble each other."""
    kind = np.random.default_rng(list(word.encode()))
    pattern = kind.integers(0, 2, (4, 4, channels)).repeat(SIDE // 4, 0).repeat(SIDE // 4, 1) * 200
    return [
        (pattern + np.random.default_rng([*word.encode(), index]).integers(0, 56, pattern.shape)).astype(
            np.uint8
        )
        for index in range(count)
    ]
