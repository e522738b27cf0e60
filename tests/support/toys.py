"""A stream so small that every system learns it in a second or two."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures, Session, Stream
from fairshot.methods import build, method_named
from fairshot.methods.method import Method
from fairshot.models.backbones import SMALL as BACKBONES
from fairshot.models.backbones import SmallResNet
from fairshot.models.embedder import ModelSettings
from fairshot.training.hardware import choose_hardware
from fairshot.training.loop import Row, Trainer, TrainingSettings
from fairshot.training.views import ViewSettings

BACKBONES["toy"] = lambda channels: SmallResNet(channels, (16, 32, 64), blocks=1, stem_stride=2)
MODEL = ModelSettings(backbone="toy", size=14, mean=(0.5,), std=(0.25,))
VIEWS = ViewSettings(crop_area=(0.7, 1.0), horizontal_flip=0, jitter=0)
TRAINING = TrainingSettings(epochs=4, batch=15, learning_rate=0.05, momentum=0.8, warmup_epochs=1)
# Widths and steps of a size that fits the toy; what a system is, they leave alone.
SMALL: dict[str, dict[str, Any]] = {
    "sss": {"sr_width": 64},
    "sss_bgmm": {"sr_width": 64},
    "alice": {"projector_width": 64, "fusions_per_image": 1},
    "bidist": {"steps": 30, "learning_rate": 0.01},
    "c_fscil": {"width": 32, "way": 3, "shots": 2, "queries": 8, "episode_epochs": 2},
    "cec": {"way": 3, "shots": 2, "queries": 8, "episode_epochs": 2, "episode_learning_rate": 0.02},
    "nc_fscil": {"width": 48},
    "fcil": {"projection": 16, "steps": 20},
    "topic": {"nodes": 12, "rounds": 8, "steps": 15, "learning_rate": 0.005},
    "savc": {"queue": 100, "projection": 16, "small_crops": 2},
}

TRAINED: dict[str, dict[str, Any]] = {"nc_fscil": {"learning_rate": 0.15}}  # losses of another scale


@cache
def cpu() -> Fabric:
    """Return the hardware that toys are trained on; to look it up takes as long as a step."""
    return choose_hardware("cpu")


@cache
def toy_stream() -> Stream:
    """Noisy stripes: 6 base classes of 20 training images, then 2 sessions of 2 classes and 5 shots."""
    rng = np.random.default_rng(0)
    sessions = []
    for t, classes in enumerate(((0, 1, 2, 3, 4, 5), (6, 7), (8, 9))):
        sessions.append(Session(classes, stripes(classes, 5 if t else 20, rng), stripes(classes, 20, rng)))
    return Stream("toy", tuple(f"stripes {c}" for c in range(10)), tuple(sessions))


def stripes(classes: tuple[int, ...], count: int, rng: np.random.Generator) -> LabelledPictures:
    """Draw stripes whose direction and width tell their class, at random phases, in noise."""
    labels = np.repeat(np.array(classes, dtype=np.int64), count)
    angle, wave = np.pi * (labels % 5) / 5, np.where(labels < 5, 1.7, 0.9)
    y, x = np.mgrid[:16, :16]
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    light = np.sin(wave[:, None, None] * along + rng.uniform(0, 7, (len(labels), 1, 1)))
    noisy = 128 + 50 * light + rng.normal(0, 40, light.shape)
    return LabelledPictures(Pictures.from_array(noisy.clip(0, 255).astype(np.uint8)[..., None]), labels)


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    """Draw numbers in [0, 1)."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def toy_method(name: str, **options: Any) -> Method[Any]:
    """Build a system for the toy."""
    settings = method_named(name).Settings.model_validate(SMALL.get(name, {}) | options)
    return build(name, settings, MODEL, 1, toy_stream().base_classes, len(toy_stream().class_names))


def fit_toy(
    name: str,
    seed: int = 0,
    folder: Path | None = None,
    training: TrainingSettings = TRAINING,
    deadline: float = math.inf,
    images: int = 20,
    **options: Any,
) -> tuple[Method[Any], list[Row]]:
    """Train a system on some images of each base class, as an experiment would; return it and its curve."""
    training = training.model_copy(update=TRAINED.get(name, {}))
    trainer = Trainer(cpu(), training, VIEWS, MODEL.size, seed, folder, deadline=deadline)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        method = toy_method(name, **options)
        base = toy_stream().base.train
        method.fit_base(base.take([i for i in range(len(base.labels)) if i % 20 < images]), trainer)
    return method, trainer.history


@cache
def learnt_base(name: str) -> dict[str, torch.Tensor]:
    """Return what a system has learnt from the base session of the toy; trained once."""
    return fit_toy(name)[0].tensors()


def after_base(name: str, **options: Any) -> Method[Any]:
    """Return a system that knows the base classes of the toy and nothing more."""
    method = toy_method(name, **options)
    method.restore({key: value.clone() for key, value in learnt_base(name).items()})
    return method
