"""The store as one ONNX model: an image in; a score per class, confidence and p_known out."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fairshot.benchmarks.images import decode_image
from fairshot.errors import ExtraMissing, PathUnusable
from fairshot.models.pixels import DevicePictures
from fairshot.teaching.errors import NoClasses
from fairshot.teaching.folders import temporary_beside
from fairshot.teaching.network import Network
from fairshot.teaching.snapshot import Snapshot
from fairshot.teaching.store import Store

TOLERANCE = 1e-5  # of a score
CHECKED_IMAGES = 16


@dataclass(frozen=True)
class Checked:
    """What the comparison with torch found."""

    classes: int
    images: int
    difference: float  # largest, of any score


class StoreModule(nn.Module):
    """The embedder and the classifier of a snapshot as one network."""

    def __init__(self, network: Network, snapshot: Snapshot) -> None:
        super().__init__()
        self.embedder, self.views = network.embedder, network.views
        self.classifier, self.confidence = snapshot.classifier, snapshot.confidence

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores (N, C), confidence and p_known (N,) of images (N, C, size, size) in 0 .. 1."""
        passes = [self.embedder(transform(images)) for transform in self.views.transforms]
        g, g_tilde = (self.views.combine(torch.stack(kind, dim=1)) for kind in zip(*passes, strict=True))
        return self.confidence.judge(self.classifier, {"g": g, "g_tilde": g_tilde})


def export_onnx(store: Store, path: str | Path) -> Checked:
    """Write the model, after onnxruntime has given the same scores as torch."""
    path = Path(path)
    try:
        import onnx  # noqa: F401 - all three are needed below; torch needs the last to export
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ExtraMissing("ONNX", "export") from None
    snapshot = store.snapshot()
    if not snapshot.rows:
        raise NoClasses
    model = StoreModule(store.network, snapshot).eval()
    images = _images(store)
    with torch.no_grad():
        expected = model(images)  # before the export: what the classifier computes once is then constant
    with temporary_beside(path) as temporary:
        partial = temporary / "model.onnx"
        _write(model, images[:2], _properties(store, snapshot), partial)
        difference, *of_probabilities = _differences(expected, images, partial)
        if not (difference <= TOLERANCE and max(of_probabilities) <= 1000 * TOLERANCE):
            raise PathUnusable(
                path,
                f"was not written: onnxruntime and torch differ by {difference:.1e} in a score "
                f"and by {max(of_probabilities):.1e} in a probability",
            )
        os.replace(partial, path)
    return Checked(len(snapshot.rows), len(images), difference)


def _write(model: StoreModule, images: Tensor, properties: dict[str, str], path: Path) -> None:
    """Write the model as torch exports it for such images, any number of them, with its properties."""
    import onnx

    with _quietly():
        torch.onnx.export(
            model,
            (images,),
            path,
            input_names=["image"],
            output_names=["scores", "confidence", "p_known"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}},
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    written = onnx.load(path)
    onnx.helper.set_model_props(written, properties)
    onnx.save(written, path)


def _differences(expected: tuple[Tensor, ...], images: Tensor, path: Path) -> list[float]:
    """Return, for each output, how far onnxruntime is from torch at most."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {"image": images.numpy()})
    return [float(np.abs(a - b.numpy()).max()) for a, b in zip(found, expected, strict=True)]


def _properties(store: Store, snapshot: Snapshot) -> dict[str, str]:
    """Describe what a program needs to know to use the model."""
    preparation = store.network.preparation
    return {
        "class_names": json.dumps(snapshot.names, ensure_ascii=False),
        "base_classes": str(snapshot.classifier.base_classes),
        "unknown_below": repr(snapshot.confidence.threshold),
        "short_side": str(preparation.short_side),
        "size": str(store.network.embedder.settings.size),
        "drawing_side": json.dumps(preparation.drawing_side),
    }


def _images(store: Store) -> Tensor:
    """Return input images to compare on: thumbnails of stored images, and noise."""
    embedder, channels = store.network.embedder, store.network.preparation.channels
    noise = np.random.default_rng(0).integers(0, 256, (4, 64, 64, channels), dtype=np.uint8)
    pictures = list(noise)
    classes = store.classes()
    for info in classes[:: max(1, len(classes) // CHECKED_IMAGES)]:
        for content in store.thumbnails(info.name, 1):
            pictures.append(decode_image(content, f"the stored image of {info.name}", channels))
    return embedder.test_view(DevicePictures.from_pictures(store.read(pictures).pictures))


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the remarks of the exporter off the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
