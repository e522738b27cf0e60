"""Speed of training a base session, beside plain training: PIL in DataLoader workers, float32, eager."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms

from fairshot.benchmarks.pictures import Bytes, Ints, Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods import build
from fairshot.models.embedder import Embedder
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.training.hardware import synchronise
from fairshot.training.loop import Objective, Trainer
from fairshot.training.views import ViewSettings

Batch = tuple[Tensor, Tensor, Tensor]  # two views of some pictures, and their labels


@dataclass(frozen=True)
class TrainingSpeed:
    """Speed of one way to train."""

    name: str
    images_per_second: float  # through the network, forward and backward
    matrix_share: float  # of the floating-point operations per second of large matrix products
    seconds_per_epoch: float
    compile_seconds: float
    peak_gigabytes: float


def measure_training(
    recipe: Recipe, fabric: Fabric, classes: int, images: int, plain_steps: int, reporter: Reporter = SILENT
) -> list[TrainingSpeed]:
    """Time the training of a recipe and plain training on random pictures of the recipe's size."""
    rng = np.random.default_rng(0)
    size = recipe.model.size
    channels = len(recipe.model.mean)
    array = rng.integers(0, 256, (images, size, size, channels), dtype=np.uint8)
    labels = rng.integers(0, classes, images)
    rate = matrix_rate(fabric)
    rows = [
        _fairshot(recipe, fabric, classes, LabelledPictures(Pictures.from_array(array), labels), reporter),
        _plain(recipe, fabric, classes, array, labels, plain_steps, reporter),
    ]
    work = _flops_per_image(recipe, classes, channels)
    return [replace(row, matrix_share=row.images_per_second * work / rate) for row in rows]


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


def images_per_source(objective: Objective) -> int:
    """Return how many images the network sees per source image: views, fusions and flips."""
    first = next(module for module in _embedder(objective).modules() if isinstance(module, nn.Conv2d))
    seen: list[int] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    _one_step(objective, 4)
    hook.remove()
    return sum(seen) // 4


def _embedder(objective: Objective) -> Embedder:
    found = objective.embedder
    assert isinstance(found, Embedder)  # every method trains one
    return found


def _one_step(objective: Objective, batch: int) -> None:
    embedder = _embedder(objective)
    rows, size = batch + objective.neighbours, embedder.settings.size
    sizes = [objective.view_size(index, size) for index in range(objective.views)]
    views = [torch.rand(rows, embedder.channels, side, side) for side in sizes]
    objective(views, torch.arange(rows) % 2, torch.rand(rows, objective.noise)).backward()


def _flops_per_image(recipe: Recipe, classes: int, channels: int) -> float:
    """Count the floating-point operations of forward and backward for one image."""
    objective = base_objective(recipe, classes, channels)
    with FlopCounterMode(display=False) as counter:
        _one_step(objective, 4)
    return float(counter.get_total_flops()) / (4 * images_per_source(objective))


def _fairshot(
    recipe: Recipe, fabric: Fabric, classes: int, data: LabelledPictures, reporter: Reporter
) -> TrainingSpeed:
    _reset_peak(fabric)
    objective = base_objective(recipe, classes, data.pictures.channels)
    images = images_per_source(objective)
    settings = recipe.training.model_copy(update={"epochs": 3, "low_resolution": None})
    trainer = Trainer(fabric, settings, recipe.views, recipe.model.size, 0, reporter=reporter)
    trainer.train(objective, data)
    sources = trainer.history[-1]["images_per_second"]  # of the last epoch, after compilation
    seconds = len(data) / sources
    return TrainingSpeed("fairshot", sources * images, 0.0, seconds, trainer.compile_seconds, _peak(fabric))


class _PlainDataset(Dataset[Batch]):
    """Two random views of each picture, by PIL and torchvision."""

    def __init__(self, array: Bytes, labels: Ints, views: ViewSettings, size: int) -> None:
        self.array, self.labels = array, labels
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
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        picture = Image.fromarray(self.array[index].squeeze())
        return self.transform(picture), self.transform(picture), torch.tensor(self.labels[index])


def _plain(
    recipe: Recipe,
    fabric: Fabric,
    classes: int,
    array: Bytes,
    labels: Ints,
    steps: int,
    reporter: Reporter,
) -> TrainingSpeed:
    """Train as most public code does: DataLoader workers, float32, no compilation."""
    _reset_peak(fabric)
    objective = base_objective(recipe, classes, array.shape[3])
    images = images_per_source(objective)
    objective.to(fabric.device)
    workers = min(8, os.cpu_count() or 1)
    dataset = _PlainDataset(array, labels, recipe.views, recipe.model.size)
    batch = recipe.training.batch + objective.neighbours
    loader = DataLoader(
        dataset, batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )
    warm = 2 * workers + 2  # steps whose batches the workers prepare before the time starts
    seconds = _plain_steps(objective, loader, fabric, warm, steps, reporter)
    sources = recipe.training.batch * steps / seconds
    name = f"plain: PIL in {workers} workers, float32, eager"
    return TrainingSpeed(name, sources * images, 0.0, len(labels) / sources, 0.0, _peak(fabric))


def _plain_steps(
    objective: Objective, loader: DataLoader[Batch], fabric: Fabric, warm: int, steps: int, reporter: Reporter
) -> float:
    """Take some steps to warm up, then others; return the seconds of the latter."""
    optimiser = torch.optim.SGD(objective.parameters(), lr=0.01, momentum=0.9)
    began = 0.0
    with reporter.track("plain training", warm + steps) as advance:
        endless = itertools.chain.from_iterable(itertools.repeat(loader))
        for step, (first, second, target) in zip(range(warm + steps), endless, strict=False):
            if step == warm:
                synchronise(fabric)
                began = time.perf_counter()
            views = [first.to(fabric.device), second.to(fabric.device)][: objective.views]
            noise = torch.rand(len(target), objective.noise, device=fabric.device)
            loss = objective(views, target.to(fabric.device), noise)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            advance()
    synchronise(fabric)
    return time.perf_counter() - began


def _reset_peak(fabric: Fabric) -> None:
    if fabric.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(fabric.device)


def _peak(fabric: Fabric) -> float:
    if fabric.device.type != "cuda":
        return float("nan")
    return torch.cuda.max_memory_allocated(fabric.device) / 2**30
