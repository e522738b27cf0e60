"""Small stores for tests: an untrained embedder, made-up base classes, drawings that differ."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairshot.benchmarks.pictures import Bytes
from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.teaching.base_classifier import nearest_means
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.network import Network
from fairshot.teaching.store import Store

SIDE = 16
SAMPLES = 4  # per base class


def network(sr_width: int | None = 24, channels: int = 1, drawings: bool = False) -> Network:
    """Build an untrained embedder, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        settings = ModelSettings(backbone="tiny", small_stem=False, size=SIDE)
        embedder = Embedder(settings, channels, sr_width)
    return Network(embedder, FlipViews(flip=sr_width is not None), SIDE if drawings else None)


def store_spec(net: Network, names: Sequence[str] = (), **settings: Any) -> StoreSpec:
    """Return the spec of a store whose base classes are drawings, which are kept as samples.

    `settings` are those of its classifier, for example gamma or a gate.
    """
    if not names:
        empty = nearest_means(torch.zeros(0, *net.shape), torch.zeros(0, dtype=torch.int64))
        return StoreSpec(net, empty)
    samples = {
        position: net.photos(net.preparation.read(drawings(f"sample of {name}", SAMPLES)).pictures)
        for position, name in enumerate(names)
    }
    photos = [photo for each in samples.values() for photo in each]
    features = {kind: torch.stack([getattr(photo, kind) for photo in photos]) for kind in ("g", "g_tilde")}
    labels = torch.arange(len(names)).repeat_interleave(SAMPLES)
    chosen = PrototypeSettings(**{"gamma": 0.3, "bounded": True} | settings)
    return StoreSpec(net, DualClassifier.fit(chosen, features, labels, len(names)), names, samples)


def make_store(
    folder: Path, base: tuple[str, ...] = ("ant", "bee", "cow"), sr_width: int | None = 24, **settings: Any
) -> Store:
    """Make a store with some base classes, or with none."""
    shutil.copytree(_pattern(base, sr_width, tuple(settings.items())), folder)
    return Store(folder)


@cache
def _pattern(base: tuple[str, ...], sr_width: int | None, settings: tuple[tuple[str, Any], ...]) -> Path:
    """Make a store once, to be copied."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Store.create(folder / "store", store_spec(network(sr_width), base, **dict(settings))).close()
    return folder / "store"


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
