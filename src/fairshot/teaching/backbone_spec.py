"""A store on a frozen backbone: with its pretrained features alone, or with base classes too."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import torch

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.image_folder import load_folder
from fairshot.benchmarks.stream import Stream, StreamSettings
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.heads import SR
from fairshot.models.presets import DEFAULT_PRESET, PRESETS
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.background import background_of, no_background
from fairshot.teaching.base_classifier import PhotoSpace, photo_classifier
from fairshot.teaching.confidence import Confidence, Prior, Trials
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.errors import NoBaseFolder
from fairshot.teaching.network import Network
from fairshot.teaching.run_spec import with_images
from fairshot.teaching.sr_training import (
    FEWEST_CLASSES,
    SR_WIDTH,
    BaseFeatures,
    compare,
    dual_classifier,
    train_sr,
)

EPOCHS = 30
SEED = 0


def from_backbone(
    name: str = DEFAULT_PRESET,
    weights: Path | None = None,
    base: Path | None = None,
    epochs: int = EPOCHS,
    max_minutes: float = math.inf,
    reporter: Reporter = SILENT,
) -> StoreSpec:
    """Return a frozen backbone, a preset or a model of timm, with its weights or with those of a file.

    Photos are compared in a whitened space where the statistics of a preset come with fairshot. Without a
    folder of base images the store has no class yet. With one, these are its base classes, and SR is trained
    on their features, for at most `max_minutes`; it is kept only if held-out images say that it pays.
    """
    settings = model_settings(name, None if weights is None else str(weights))
    origin = {"backbone": name} | _origin_of_weights(settings)
    if base is not None and not base.is_dir():
        raise NoBaseFolder(base)
    network = Network(Embedder(settings, channels=3))
    space, prior = _background(settings, network)
    if base is not None:
        return _with_base(network, space, prior, base, origin, epochs, max_minutes, reporter)
    none = torch.zeros(0, *network.shape)
    classifier = photo_classifier(space, {"g": none, "g_tilde": none}, torch.zeros(0, dtype=torch.int64), 0)
    confidence = Confidence() if prior is None else prior.confidence(Trials.none(), classes=0)
    return StoreSpec(network, classifier, confidence=confidence, origin=origin)


def _background(settings: ModelSettings, network: Network) -> tuple[PhotoSpace, Prior | None]:
    """Return the space in which photos are compared, and what confidence begins with."""
    found = background_of(settings.weights) if settings.weights in PRESETS else None
    if found is None:
        return no_background(*network.shape), None
    return found.space(), found.settings.prior


def _origin_of_weights(settings: ModelSettings) -> dict[str, str]:
    """Return what the history of a store says about weights that are not timm's own."""
    if settings.weights is None or settings.weights_sha256 is None:
        return {}
    return {"weights": settings.weights, "weights_sha256": settings.weights_sha256}


def _with_base(
    network: Network,
    space: PhotoSpace,
    prior: Prior | None,
    folder: Path,
    origin: dict[str, str],
    epochs: int,
    max_minutes: float,
    reporter: Reporter,
) -> StoreSpec:
    """Return the spec of a store with base classes, by g alone or with SR."""
    stream = _stream(folder, network, reporter)
    base = BaseFeatures(
        network.embed(stream.base.train.pictures, reporter)["g"],
        torch.from_numpy(stream.base.train.labels),
        network.embed(stream.base.test.pictures, reporter)["g"],
        torch.from_numpy(stream.base.test.labels),
        stream.base_classes,
    )
    plain = {"g": base.g, "g_tilde": base.g}
    classifier = photo_classifier(space, plain, base.labels, base.classes)
    if base.classes < FEWEST_CLASSES:
        remark = f"SR is not trained: that needs {FEWEST_CLASSES} base classes"
    else:
        deadline = time.monotonic() + 60 * max_minutes  # of the training; the images are embedded by now
        sr, remark = _sr_if_it_pays(space, base, epochs, deadline, reporter)
        if sr is not None:
            network.embedder.follow_with(sr, SR_WIDTH)
            classifier = dual_classifier(space, sr, base.g, base.labels, base.classes)
    origin = origin | {"base": str(folder)}
    spec = StoreSpec(network, classifier, stream.class_names, origin=origin, remark=remark)
    spec = with_images(spec, stream, reporter)
    if prior is not None and spec.confidence.automatic and network.embedder.sr is None:
        # too few held-out images to fit to; photos taught later tell nothing about base classes
        confidence = prior.confidence(Trials.none(), base.classes).model_copy(update={"automatic": False})
        spec = replace(spec, confidence=confidence)
    return spec


def _sr_if_it_pays(
    space: PhotoSpace, base: BaseFeatures, epochs: int, deadline: float, reporter: Reporter
) -> tuple[SR | None, str]:
    """Return SR trained on all base classes, none if it does not pay or the time is up, and a remark."""
    compared, sr = compare(space, base, epochs, deadline, reporter), None
    if compared is not None and not compared.pays:
        return None, compared.sentence()
    if compared is not None:
        sr = train_sr(base.g, base.labels, base.classes, epochs, deadline, reporter)
    if compared is None or sr is None:
        return None, "SR is left out: the time was up before it was trained"
    return sr, compared.sentence()


def _stream(base: Path, network: Network, reporter: Reporter) -> Stream:
    """Return the images of a folder of classes, all of them base classes; a fifth of each is held out."""
    classes = [folder for folder in base.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    settings = StreamSettings(base_classes=max(len(classes), 1), sessions=0, shots=1)
    resize = Resize(network.preparation.short_side, enlarge=False)
    stream, _ = load_folder(base, settings, SEED, reporter, resize)
    return stream
