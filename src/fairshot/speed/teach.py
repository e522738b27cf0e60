"""How fast a store is: opening it, teaching it, asking it, with few classes and with very many."""

from __future__ import annotations

import os
import statistics
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder
from fairshot.models.flips import FlipViews
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.database import DATABASE, connect, to_blob, transaction
from fairshot.teaching.network import Network
from fairshot.teaching.store import Store

BASE_CLASSES = 60
PHOTO_SIZE = (1280, 960)
REPEATS = 15


@dataclass(frozen=True)
class Timing:
    """Seconds some action takes: the median and the worst of several times."""

    what: str
    seconds: float
    worst: float
    limit: float  # what it should stay within


def measure_store(
    backbone: str = "resnet18",
    sr_width: int = 2048,
    many_classes: int = 100_000,
    repeats: int = REPEATS,
    reporter: Reporter = SILENT,
) -> list[Timing]:
    """Time a store of SSS on an untrained backbone: speed does not depend on what it learnt.

    Two views of a photo, g and g~, Resistance. Photos are JPEG files.
    """
    with tempfile.TemporaryDirectory() as temporary:
        photos = _photos(Path(temporary), 5 * repeats)
        folder = Path(temporary) / "store"
        _create(folder, backbone, sr_width, photos[0])
        _fill(folder, 1000 - BASE_CLASSES, "some", reporter, photos_each=5)
        timings = [_timed("open a store of 1,000 classes", lambda: _open(folder), repeats, 1.0)]
        with Store(folder) as store:
            numbers = iter(range(repeats + 1))

            def teach() -> None:
                number = next(numbers) % repeats
                store.teach(f"new {number}", photos[5 * number : 5 * number + 5])

            teach()
            timings.append(_timed("teach a class from five photos", teach, repeats - 1, 1.0))
            timings.append(_timed("predict one photo", lambda: store.predict(photos[:1]), repeats, 0.1))
        _fill(folder, many_classes - 1000 - repeats, "many", reporter)
        with Store(folder) as store:
            what = f"predict one photo among {len(store.snapshot().names):,} classes"
            store.predict(photos[:1])
            timings.append(_timed(what, lambda: store.predict(photos[:1]), repeats, 0.2))
    return timings


def _timed(what: str, action: Callable[[], object], repeats: int, limit: float) -> Timing:
    seconds = timeit.repeat(action, number=1, repeat=repeats)
    return Timing(what, statistics.median(seconds), max(seconds), limit)


def _open(folder: Path) -> None:
    with Store(folder) as store:
        store.snapshot()


def _create(folder: Path, backbone: str, sr_width: int, photo: Path) -> None:
    """Make a store whose first base class resembles a photo, so that g~ decides on it."""
    embedder = Embedder(model_settings(backbone).without_weights(), 3, sr_width)
    network = Network(embedder, FlipViews(flip=True))
    draw = torch.Generator().manual_seed(0)
    g = torch.rand(BASE_CLASSES, *network.shape, generator=draw)
    g[0] = network.embed(network.preparation.read([photo]).pictures)["g"][0]
    g_tilde = torch.rand(BASE_CLASSES, network.views.count, sr_width, generator=draw)
    features = {"g": g, "g_tilde": g_tilde}
    base = DualClassifier.fit(PrototypeSettings(), features, torch.arange(BASE_CLASSES), BASE_CLASSES)
    names = [f"base {number}" for number in range(BASE_CLASSES)]
    Store.create(folder, StoreSpec(network, base, names)).close()


def _fill(folder: Path, classes: int, word: str, reporter: Reporter, photos_each: int = 0) -> None:
    """Add classes of random features straight to the tables: teaching them would take hours."""
    with Store(folder) as store:
        shapes = [means.shape[1:] for means in (store.base.h.means, store.base.h_tilde.means)]
    connection = connect(folder / DATABASE)
    draw = torch.Generator().manual_seed(1)

    def blobs() -> tuple[bytes, bytes]:
        g, g_tilde = (torch.rand(shape, generator=draw) for shape in shapes)
        return to_blob(g), to_blob(g_tilde)

    with transaction(connection), reporter.track("filling the store", classes) as advance:
        connection.execute("INSERT INTO events (at, kind, detail) VALUES ('', 'fill', '{}')")
        for number in range(classes):
            cursor = connection.execute("INSERT INTO classes (name) VALUES (?)", (f"{word} {number}",))
            connection.execute(
                "INSERT INTO prototypes (class, count, g, g_tilde) VALUES (?, 5, ?, ?)",
                (cursor.lastrowid, *blobs()),
            )
            for _ in range(photos_each):
                connection.execute(
                    "INSERT INTO images (sha256, class, g, g_tilde, thumbnail) VALUES (?, ?, ?, ?, x'')",
                    (os.urandom(32), cursor.lastrowid, *blobs()),
                )
            advance()
    connection.close()


def _photos(folder: Path, count: int) -> list[Path]:
    """Write photos of coloured clouds."""
    draw = np.random.default_rng(0)
    paths = []
    for number in range(count):
        clouds = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        paths.append(folder / f"{number}.jpg")
        clouds.resize(PHOTO_SIZE, Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths
