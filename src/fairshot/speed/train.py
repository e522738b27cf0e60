"""Speed of training a base session, beside plain training: PIL in DataLoader workers, float32, eager.

Training is timed with all pictures on the device and with pictures streamed to it, which must not be the
slower one: then reading would be what limits it. On a GPU plain training is timed with bf16 and compilation
too, so that the gain of each part is visible.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import cast

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods import build
from fairshot.models.embedder import Embedder
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.training.hardware import compiled_in, synchronise, timed_convolutions
from fairshot.training.loop import Objective, Trainer
from fairshot.training.views import ViewSettings

Batch = tuple[Tensor, Tensor, Tensor]  # two views of some pictures, and their labels
FEW_IMAGES = 4  # whose work is counted
WORKERS = min(16, os.cpu_count() or 1)  # of the plain DataLoader
PLAIN = "plain: "


@dataclass(frozen=True)
class TrainingSpeed:
    """Speed of training by fairshot, or by plain code."""

    name: str
    images_per_second: float  # through the network, forward and backward
    matrix_share: float  # of the floating-point operations per second of large matrix products
    seconds_per_epoch: float
    compile_seconds: float  # of a cold start: nothing was compiled before; NaN: not measured
    warm_seconds: float  # the same once what was compiled has been kept
    peak_gigabytes: float  # NaN on a CPU

    @property
    def plain(self) -> bool:
        """Whether it is the speed of plain code."""
        return self.name.startswith(PLAIN)


def random_pictures(recipe: Recipe, classes: int, images: int) -> LabelledPictures:
    """Return pictures of random pixels, of the size of the recipe's input."""
    rng = np.random.default_rng(0)
    shape = (images, recipe.model.size, recipe.model.size, len(recipe.model.mean))
    pictures = Pictures.from_array(rng.integers(0, 256, shape, dtype=np.uint8))
    return LabelledPictures(pictures, rng.integers(0, classes, images))


def measure_training(
    recipe: Recipe, fabric: Fabric, data: LabelledPictures, reporter: Reporter = SILENT
) -> list[TrainingSpeed]:
    """Time the training of a recipe and plain training on pictures of a base session."""
    pictures, classes, images = data.pictures, int(data.labels.max()) + 1, len(data)
    views, flops = network_work(base_objective(recipe, classes, pictures.channels))
    rate = matrix_rate(fabric)

    def row(name: str, train: Callable[[Objective], tuple[float, float, float]]) -> TrainingSpeed:
        if fabric.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(fabric.device)
        sources, cold, warm = train(base_objective(recipe, classes, pictures.channels))
        peak = torch.cuda.max_memory_allocated(fabric.device) / 2**30 if fabric.device.type == "cuda" else nan
        share = sources * views * flops / rate
        return TrainingSpeed(name, sources * views, share, images / sources, cold, warm, peak)

    rows = [
        row(name, partial(_train, recipe, fabric, data, resident, reporter))
        for name, resident in (("fairshot, pictures on the device", True), ("fairshot, streamed", False))
    ]
    for name, compiled in (("float32, eager", False), ("bf16, compiled", True)):
        if fabric.device.type == "cuda" or not compiled:
            train = partial(_train_plainly, recipe, fabric, data, compiled, reporter)
            rows.append(row(f"{PLAIN}PIL in {WORKERS} workers, {name}", train))
    return rows


def matrix_rate(fabric: Fabric) -> float:
    """Measure floating-point operations per second of a large matrix product, in training precision."""
    gpu = fabric.device.type == "cuda"
    side = 8192 if gpu else 1024
    left = torch.randn(side, side, device=fabric.device, dtype=torch.bfloat16 if gpu else torch.float32)
    right = torch.randn_like(left)
    for _ in range(3):
        left @ right
    synchronise(fabric)
    began = time.perf_counter()
    for _ in range(10):
        left @ right
    synchronise(fabric)
    return 10 * 2 * side**3 / (time.perf_counter() - began)


def base_objective(recipe: Recipe, classes: int, channels: int) -> Objective:
    """Build what a recipe trains in its base session."""
    torch.manual_seed(0)
    novel = classes // 2 + 1  # as many as in most benchmarks; only few methods ask
    method = build(recipe.method_name, recipe.method, recipe.model, channels, classes, classes + novel)
    return method.objective()


def network_work(objective: Objective) -> tuple[float, float]:
    """Return how many images the network sees per source image, and the operations per image it sees.

    It sees views, fusions and flips; the floating-point operations are those of forward and backward.
    """
    embedder = cast(Embedder, objective.embedder)  # every method trains one
    first = next(module for module in embedder.modules() if isinstance(module, nn.Conv2d))
    seen: list[int] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    rows, size = FEW_IMAGES + objective.neighbours, embedder.settings.size
    sizes = [objective.view_size(index, size) for index in range(objective.views)]
    views = [torch.rand(rows, embedder.channels, side, side) for side in sizes]
    with FlopCounterMode(display=False) as counter:
        objective(views, torch.arange(rows) % 2, torch.rand(rows, objective.noise)).backward()
    hook.remove()
    return sum(seen) // FEW_IMAGES, counter.get_total_flops() / sum(seen)


def _train(
    recipe: Recipe,
    fabric: Fabric,
    data: LabelledPictures,
    resident: bool,
    reporter: Reporter,
    objective: Objective,
) -> tuple[float, float, float]:
    """Train as a run does; return source images per second, and the seconds of a cold and of a warm start.

    The cold start compiles into an empty folder; the warm one begins anew with what was left there.
    """
    settings = recipe.training.model_copy(update={"epochs": 3, "images": None, "low_resolution": None})
    with tempfile.TemporaryDirectory(prefix="fairshot-") as folder, compiled_in(Path(folder)):
        trainers = []
        for epochs in (settings.epochs, 1) if fabric.device.type == "cuda" else (settings.epochs,):
            torch._dynamo.reset()  # as a new process, which has compiled nothing
            once = settings.model_copy(update={"epochs": epochs})
            trainer = Trainer(
                fabric, once, recipe.views, recipe.model.size, 0, reporter=reporter, resident=resident
            )
            trainer.train(copy.deepcopy(objective), data)
            trainers.append(trainer)
    # the last epoch comes after compilation
    speed = trainers[0].history[-1]["images_per_second"]
    return speed, trainers[0].compile_seconds, trainers[-1].compile_seconds


class _PlainDataset(Dataset[Batch]):
    """Two random views of each picture, by PIL and torchvision."""

    def __init__(self, data: LabelledPictures, views: ViewSettings, size: int) -> None:
        self.data = data
        strengths = (views.brightness, views.contrast, views.saturation, views.hue)
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size, views.crop_area, views.crop_ratio),
                transforms.RandomHorizontalFlip(views.horizontal_flip),
                transforms.RandomApply([transforms.ColorJitter(*strengths)], views.jitter),
                transforms.RandomGrayscale(views.greyscale),
                transforms.ToTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Batch:
        picture = Image.fromarray(self.data.pictures[index].squeeze())
        return self.transform(picture), self.transform(picture), torch.tensor(self.data.labels[index])


def _train_plainly(
    recipe: Recipe,
    fabric: Fabric,
    data: LabelledPictures,
    compiled: bool,
    reporter: Reporter,
    objective: Objective,
) -> tuple[float, float, float]:
    """Train as most public code does, with DataLoader workers: in float32, or in bf16 and compiled.

    Returns what `_train` does; what compilation takes is not measured. Two epochs, of which the second is
    timed: workers prepare batches in advance, but never those of the next epoch, so that every batch that is
    counted is prepared and used while the time runs.
    """
    objective.to(fabric.device)
    loss_of = torch.compile(objective) if compiled else objective
    rows = min(recipe.training.batch + objective.neighbours, len(data))
    loader = DataLoader(
        _PlainDataset(data, recipe.views, recipe.model.size),
        rows,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        persistent_workers=True,
    )
    optimiser = torch.optim.SGD(objective.parameters(), lr=0.01, momentum=0.9)
    fastest = timed_convolutions() if compiled else nullcontext()
    with fastest, reporter.track("plain training", 2 * len(loader)) as advance:
        for _ in range(2):  # the first one starts the workers, and compiles
            synchronise(fabric)
            began = time.perf_counter()
            for first, second, target in loader:
                views = [first.to(fabric.device), second.to(fabric.device)][: objective.views]
                noise = torch.rand(len(target), objective.noise, device=fabric.device)
                with torch.autocast(fabric.device.type, torch.bfloat16, enabled=compiled):
                    loss = loss_of(views, target.to(fabric.device), noise)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                advance()
        synchronise(fabric)
        seconds = time.perf_counter() - began
    return len(loader) * (rows - objective.neighbours) / seconds, nan, nan
