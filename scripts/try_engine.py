"""Images per second of base training with one change of the engine each, alone on the device in turn.

    python scripts/try_engine.py                                  # all variants, SSS on CIFAR-100's shapes
    python scripts/try_engine.py reference padded-stem fp16       # some of them

Every variant trains random pictures in a process of its own. All compile at the same time and wait; then one
after the other trains alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
import torch._inductor.config as inductor
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from fairshot.models.embedder import Embedder
from fairshot.recipes import Recipe, load_recipe
from fairshot.speed.train import base_objective, network_work, random_pictures
from fairshot.training.loop import Objective, Trainer
from fairshot.training.state import Row

CLASSES = 60
READY = "ready"  # what a process prints that has compiled
ALIGNED = 8  # channels from which cuDNN's kernels for tensor cores read without another layout


@dataclass(frozen=True)
class Trial:
    """What is trained: a variant may change any of it."""

    recipe: Recipe
    objective: Objective
    precision: str

    @property
    def backbone(self) -> nn.Module:
        return cast(Embedder, self.objective.embedder).backbone


class PaddedConvolution(nn.Module):
    """A convolution whose images and weights have further channels of zeros: the same result."""

    def __init__(self, plain: nn.Conv2d) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, images: Tensor) -> Tensor:
        missing = (0, 0, 0, 0, 0, ALIGNED - images.shape[1])
        images = pad(images, missing).contiguous(memory_format=torch.channels_last)
        return conv2d(images, pad(self.plain.weight, missing), None, self.plain.stride, self.plain.padding)


class Grouped(nn.Module):
    """Layers that see one group of images after the other; batch norms have the statistics of a group."""

    def __init__(self, layers: nn.Sequential, size: int) -> None:
        super().__init__()
        self.layers, self.size = layers, size

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.layers(group) for group in images.split(self.size)])


class SumBatchNorm(nn.BatchNorm2d):
    """Batch norm by sums of values and squares, where the usual one updates mean and variance."""

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return super().forward(images)
        values, axes = images.float(), (0, 2, 3)
        count = values.numel() / values.shape[1]
        mean = values.sum(axes) / count
        variance = values.square().sum(axes) / count - mean.square()
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.momentum is not None
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return (values * scale[:, None, None] + shift[:, None, None]).to(images.dtype)


def batch_norm_sums(trial: Trial) -> Trial:
    for module in trial.backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = SumBatchNorm
    return trial


def padded_stem(trial: Trial) -> Trial:
    trial.backbone.conv1 = PaddedConvolution(cast(nn.Conv2d, trial.backbone.conv1))
    return trial


def groups(size: int, stages: int, trial: Trial) -> Trial:
    """Let stem and first stages of a ResNet of timm, which have the largest maps, work in groups.

    256 images of 32 pixels make maps of 34 MB, which fit into the L2 cache of an H200.
    """
    first = ["conv1", "bn1", "act1", "maxpool", *(f"layer{stage + 1}" for stage in range(stages))]
    layers = nn.Sequential(*(getattr(trial.backbone, name) for name in first))
    for name in first:
        setattr(trial.backbone, name, nn.Identity())
    trial.backbone.conv1 = Grouped(layers, size)
    return trial


def fp16(trial: Trial) -> Trial:
    return replace(trial, precision="16-mixed")


def coordinate_descent(trial: Trial) -> Trial:
    inductor.coordinate_descent_tuning = True
    return trial


def double_batch(trial: Trial) -> Trial:
    training = trial.recipe.training
    longer = training.model_copy(update={"batch": 2 * training.batch})
    return replace(trial, recipe=replace(trial.recipe, training=longer))


def together(*changes: Callable[[Trial], Trial]) -> Callable[[Trial], Trial]:
    def changed(trial: Trial) -> Trial:
        for change in changes:
            trial = change(trial)
        return trial

    return changed


VARIANTS: dict[str, Callable[[Trial], Trial]] = {
    "reference": together(),
    "padded-stem": padded_stem,
    "batch-norm-sums": batch_norm_sums,
    "coordinate-descent": coordinate_descent,
    "fp16": fp16,
    "groups-256": partial(groups, 256, 1),
    "groups-128": partial(groups, 128, 1),
    "groups-128-two-stages": partial(groups, 128, 2),
    "padded-stem-groups-128": together(padded_stem, partial(groups, 128, 1)),
    "padded-stem-sums": together(padded_stem, batch_norm_sums),
    "coordinate-descent-sums": together(coordinate_descent, batch_norm_sums),
    "double-batch": double_batch,
}


def train(variant: str, recipe: Recipe, images: int, rounds: int) -> None:
    """Train one variant: an epoch that compiles, one that waits to be told to go on, then those timed."""
    gpu = torch.cuda.is_available()
    objective = base_objective(recipe, CLASSES, len(recipe.model.mean))
    per_source, _ = network_work(objective)
    trial = VARIANTS[variant](Trial(recipe, objective, "bf16-mixed" if gpu else "32-true"))
    fabric = Fabric(accelerator="cuda" if gpu else "cpu", devices=1, precision=trial.precision)  # type: ignore[arg-type]
    settings = trial.recipe.training.model_copy(update={"epochs": 2 + rounds, "images": None})

    def wait_after_first(history: list[Row]) -> None:
        if len(history) == 1:
            print(READY, flush=True)
            sys.stdin.readline()

    trainer = Trainer(fabric, settings, recipe.views, recipe.model.size, 0, after_epoch=wait_after_first)
    trainer.train(trial.objective, random_pictures(recipe, CLASSES, images))
    for epoch in trainer.history[2:]:  # the second one waited
        print(f"{epoch['images_per_second'] * per_source:.0f}")


def measure(variants: list[str], given: argparse.Namespace) -> Iterator[tuple[str, list[float]]]:
    """Let all variants compile at once, then time one after the other; one that fails has no speeds."""
    call = [sys.executable, __file__, "--recipe", given.recipe, "--images", str(given.images)]
    call += [*(f"--set={change}" for change in given.set), "--rounds", str(given.rounds), "--train"]
    processes = {
        variant: subprocess.Popen(  # noqa: S603 - this script, its own variants
            [*call, variant], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for variant in variants
    }
    ready = {variant: _is_ready(process) for variant, process in processes.items()}
    for variant, process in processes.items():
        printed, _ = process.communicate("\n" if ready[variant] else None)
        yield variant, [float(speed) for speed in printed.split()] if process.returncode == 0 else []


def _is_ready(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return any(line.strip() == READY for line in iter(process.stdout.readline, ""))


def main() -> None:
    """Print the images per second of variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("variants", nargs="*", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--recipe", default="cifar100/sss")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--images", type=int, default=15_360, help="random pictures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", help=argparse.SUPPRESS)  # what a process of this script is started for
    given = parser.parse_args()
    if given.train:
        train(given.train, load_recipe(given.recipe, given.set), given.images, given.rounds)
        return
    if unknown := set(given.variants) - set(VARIANTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(VARIANTS)}")
    for variant, rounds in measure(given.variants or list(VARIANTS), given):
        shown = "  ".join(f"{speed:>9,.0f}" for speed in rounds) if rounds else "failed"
        print(f"{variant:24s} {shown}", flush=True)


if __name__ == "__main__":
    main()
