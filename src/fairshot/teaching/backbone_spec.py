"""A store on a backbone of timm: with its pretrained features alone, or with SR trained on base images."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import timm
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fairshot.benchmarks.image_folder import load_folder
from fairshot.benchmarks.stream import Stream, StreamSettings
from fairshot.errors import UserError
from fairshot.methods.dual_method import Stimulation
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.models.backbones import SMALL
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.base_classifier import nearest_means
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.errors import (
    NoBaseFolder,
    PretrainedWeightsMissing,
    UnknownBackbone,
    UnusableWeights,
)
from fairshot.teaching.network import Network
from fairshot.teaching.run_spec import from_method
from fairshot.training.hardware import choose_hardware
from fairshot.training.loop import Trainer, TrainingSettings
from fairshot.training.views import ViewSettings

MOST_FUSED = 150  # base classes; beyond, the pairs of them would be too many surplus classes
SR_WIDTH = 2048  # as in the paper
SEED = 0


def from_backbone(
    name: str,
    weights: Path | None = None,
    base: Path | None = None,
    epochs: int = 10,
    reporter: Reporter = SILENT,
) -> StoreSpec:
    """Return a backbone with its pretrained weights: timm's, or those of a safetensors file.

    Without a folder of base images the store has no class yet, and g~ is g. With one, the SR module is
    trained on those images behind the frozen backbone, as SSS trains it, and they are its base classes.
    """
    settings = model_settings(name, pretrained=weights is None)
    origin = {"backbone": name} | ({"weights": str(weights)} if weights else {})
    if base is None:
        network = Network(_with_weights(_embedder(settings), weights))
        empty = nearest_means(torch.zeros(0, *network.shape), torch.zeros(0, dtype=torch.int64))
        return StoreSpec(network, empty, origin=origin)
    stream = _stream(base, reporter)
    method = SSS(
        SSSSettings(inter=stream.base_classes <= MOST_FUSED, sr_width=SR_WIDTH),
        settings.model_copy(update={"pretrained": False}),
        3,
        stream.base_classes,
    )
    method.embedder.backbone = _with_weights(_embedder(settings), weights).backbone
    _train_sr(method, stream, epochs, reporter)
    return from_method(method, stream, origin | {"base": str(base)}, reporter)


def model_settings(name: str, pretrained: bool = True) -> ModelSettings:
    """Return how a backbone wants its pictures, as timm records it."""
    if name in SMALL or not timm.is_model(name):
        raise UnknownBackbone(name, timm.list_models())
    wanted = timm.get_pretrained_cfg(name)
    size = wanted.input_size[-1]
    return ModelSettings(
        backbone=name,
        small_stem=False,
        pretrained=pretrained,
        size=size,
        resize=round(size / wanted.crop_pct),
        mean=wanted.mean,
        std=wanted.std,
    )


def _embedder(settings: ModelSettings) -> Embedder:
    try:
        return Embedder(settings, channels=3)
    except UserError as problem:
        raise PretrainedWeightsMissing(settings.backbone, problem.__cause__) from problem


def _with_weights(embedder: Embedder, weights: Path | None) -> Embedder:
    """Load weights from a file; those of a classifier behind the backbone are passed over."""
    if weights is None:
        return embedder
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as problem:
        raise UnusableWeights(weights, f"cannot be read as a safetensors file ({problem})") from None
    expected = embedder.backbone.state_dict()
    missing = [
        name for name, value in expected.items() if name not in tensors or tensors[name].shape != value.shape
    ]
    if missing:
        raise UnusableWeights(
            weights,
            f"does not fit {embedder.settings.backbone}: {len(missing)} of {len(expected)} tensors are "
            f"missing or of another shape, for example {missing[0]}",
        )
    embedder.backbone.load_state_dict({name: tensors[name] for name in expected})
    return embedder


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
