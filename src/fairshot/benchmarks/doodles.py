"""Doodles: drawings of Quick, Draw! that come with the package (see data/DOODLES.md)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from fairshot.benchmarks.dataset import Dataset
from fairshot.benchmarks.pictures import Bytes, Ints, Pictures
from fairshot.benchmarks.stream import Benchmark, LabelledPictures, Protocol
from fairshot.progress import SILENT, Reporter

TRAIN_DRAWINGS = 75  # of the 100 per class; the others are for testing
SIDE = 28
EMBEDDED = Path(str(resources.files("fairshot.benchmarks") / "data"))
PROTOCOL = Protocol(base_classes=30, way=5, shots=5, sessions=8)


def load(root: Path = EMBEDDED, reporter: Reporter = SILENT) -> Benchmark:
    """Load the embedded drawings, whatever the data folder."""
    del root, reporter
    with np.load(EMBEDDED / "doodles.npz", allow_pickle=False) as stored:
        pixels = unpack_levels(stored["pixels"])
        names = tuple(str(name) for name in stored["classes"])
    return Benchmark(
        name="doodles",
        class_names=names,
        train=_labelled(pixels[:, :TRAIN_DRAWINGS]),
        test=_labelled(pixels[:, TRAIN_DRAWINGS:]),
        protocol=PROTOCOL,
        listed_shots={label: _first_drawings(label) for label in range(PROTOCOL.base_classes, len(names))},
    )


def unpack_levels(packed: Bytes) -> Bytes:
    """Unpack two pixels of 16 grey levels per byte to (classes, drawings, 28, 28) in 0 .. 255."""
    levels = np.stack([packed >> 4, packed & 15], axis=-1)
    return (levels * np.uint8(17)).reshape(*packed.shape[:2], SIDE, SIDE)


def _labelled(drawings: Bytes) -> LabelledPictures:
    classes, each = drawings.shape[:2]
    return LabelledPictures(
        Pictures.from_array(drawings.reshape(-1, SIDE, SIDE)),
        np.repeat(np.arange(classes, dtype=np.int64), each),
    )


def _first_drawings(label: int) -> Ints:
    return label * TRAIN_DRAWINGS + np.arange(PROTOCOL.shots, dtype=np.int64)


DATASET = Dataset(
    name="doodles",
    title="Doodles (Quick, Draw!)",
    load=load,
    find=lambda _: EMBEDDED,
    layouts="part of the package",
)
