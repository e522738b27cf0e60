"""Where the time of a training step goes: by part of the step, forward and backward apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile

from fairshot.benchmarks.stream import LabelledPictures
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.speed.train import base_objective
from fairshot.training.loop import Trainer
from fairshot.training.state import Row

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OTHER = "other"
# A kernel, or an operation on a CPU, belongs to the first part whose pattern its name has. A compiled kernel
# has the names of all operations that were fused into it.
PARTS = {
    "convolutions, gradient of weights": r"wgrad",
    "convolutions, gradient of images": r"dgrad",
    "batch norm and ReLU, backward": r"batch_norm\w*_backward|threshold_backward",
    "convolutions, backward": r"conv\w*_backward",
    "optimiser and averaged weights": r"sgd|multi_tensor|foreach|lerp_$",
    "views": r"index|floor|lerp",
    "convolutions, forward": r"fprop|conv|implicit_gemm",
    "batch norm and ReLU, forward": r"batch_norm|relu|clamp_min",
    "loss": r"softmax|nll_loss|cross_entropy",
    "matrix products of SR and head": r"gemm|nvjet|mm\b",
    "copies": r"copy|memcpy|memset|::cat\b|nhwctonchw|nchwtonhwc|addpadding",
}


@dataclass(frozen=True)
class PartTime:
    """The time of one part of a training step."""

    part: str
    milliseconds: float  # per step
    share: float  # of all parts


def measure_parts(
    recipe: Recipe, fabric: Fabric, data: LabelledPictures, reporter: Reporter = SILENT
) -> list[PartTime]:
    """Train for two epochs and record the second, in which nothing is compiled; the longest part first."""
    gpu = fabric.device.type == "cuda"
    recorder = profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU])

    def after_epoch(curve: list[Row]) -> None:
        recorder.start() if len(curve) == 1 else recorder.stop()

    objective = base_objective(recipe, int(data.labels.max()) + 1, data.pictures.channels)
    settings = recipe.training.model_copy(update={"epochs": 2, "images": None, "low_resolution": None})
    trainer = Trainer(
        fabric, settings, recipe.views, recipe.model.size, 0, reporter=reporter, after_epoch=after_epoch
    )
    trainer.train(objective, data)
    steps = trainer.history[-1]["step"] / settings.epochs
    events = [each for each in recorder.key_averages() if (each.device_type.name == "CUDA") == gpu]
    micros = {each.key: each.self_device_time_total if gpu else each.self_cpu_time_total for each in events}
    return summed((name, time / 1000 / steps) for name, time in micros.items())


def summed(times: Iterable[tuple[str, float]]) -> list[PartTime]:
    """Sum the milliseconds of kernels or operations, given with their names, to those of parts."""
    found: dict[str, float] = {}
    for name, milliseconds in times:
        part = part_of(name)
        found[part] = found.get(part, 0.0) + milliseconds
    whole = sum(found.values())
    rows = [PartTime(part, each, each / whole) for part, each in found.items()]
    return sorted(rows, key=lambda row: row.milliseconds, reverse=True)


def part_of(name: str) -> str:
    """Return the part of a step that a kernel or an operation belongs to."""
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name.lower())), OTHER)
