"""A store on a backbone of timm: with its pretrained features alone, or with SR trained on base images."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import torch

from fairshot.benchmarks.image_folder import load_folder
from fairshot.benchmarks.stream import Stream, StreamSettings
from fairshot.methods.dual_method import Stimulation
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.base_classifier import nearest_means
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.errors import NoBaseFolder
from fairshot.teaching.network import Network
from fairshot.teaching.run_spec import from_method
from fairshot.training.hardware import choose_hardware
from fairshot.training.loop import Trainer, TrainingSettings
from fairshot.training.views import ViewSettings

MOST_FUSED = 150  # base classes; beyond, the pairs of them would be too many surplus classes
SR_WIDTH = 2048  # as in the paper
SEED = 0


def from_backbone(
    name: str = DEFAULT_PRESET,
    weights: Path | None = None,
    base: Path | None = None,
    epochs: int = 10,
    reporter: Reporter = SILENT,
) -> StoreSpec:
    """Return a frozen backbone, a preset or a model of timm, with its weights or with those of a file.

    Without a folder of base images the store has no class yet, and g~ is g. With one, the SR module is
    trained on those images behind the frozen backbone, as SSS trains it, and they are its base classes.
    """
    settings = model_settings(name, None if weights is None else str(weights))
    origin = {"backbone": name} | _origin_of_weights(settings)
    stream = None if base is None else _stream(base, reporter)
    embedder = Embedder(settings, channels=3)
    if stream is None:
        network = Network(embedder)
        empty = nearest_means(torch.zeros(0, *network.shape), torch.zeros(0, dtype=torch.int64))
        return StoreSpec(network, empty, origin=origin)
    method = SSS(
        SSSSettings(inter=stream.base_classes <= MOST_FUSED, sr_width=SR_WIDTH),
        settings.without_weights(),
        3,
        stream.base_classes,
    )
    method.embedder.backbone = embedder.backbone
    _train_sr(method, stream, epochs, reporter)
    return from_method(method, stream, origin | {"base": str(base)}, reporter)


def _origin_of_weights(settings: ModelSettings) -> dict[str, str]:
    """Return what the history of a store says about weights that are not timm's own."""
    if settings.weights is None or settings.weights_sha256 is None:
        return {}
    return {"weights": settings.weights, "weights_sha256": settings.weights_sha256}


class _BehindFrozenBackbone(Stimulation):
    """Stimulation that trains SR alone; the statistics of the backbone stay as they are too."""

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.embedder.backbone.eval()
        return self


def _train_sr(method: SSS, stream: Stream, epochs: int, reporter: Reporter) -> None:
    method.embedder.backbone.requires_grad_(False)
    torch.manual_seed(SEED)
    trainer = Trainer(
        fabric=choose_hardware("auto"),
        settings=TrainingSettings(epochs=epochs, batch=max(2, min(64, len(stream.base.train) // 2))),
        views=ViewSettings(),
        size=method.embedder.settings.size,
        seed=SEED,
        reporter=reporter,
    )
    trainer.train(
        _BehindFrozenBackbone(method.embedder, stream.base_classes, method.settings), stream.base.train
    )
    method.embedder.cpu()
    labels = torch.from_numpy(stream.base.train.labels)
    method.init_classifiers(method.embed(stream.base.train.pictures, reporter), labels)


def _stream(base: Path, reporter: Reporter) -> Stream:
    """Return the images of a folder of classes, all of them base classes; a fifth of each is held out."""
    if not base.is_dir():
        raise NoBaseFolder(base)
    classes = [folder for folder in base.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    settings = StreamSettings(base_classes=max(len(classes), 1), sessions=0, shots=1)
    stream, _ = load_folder(base, settings, SEED, reporter)
    return stream
