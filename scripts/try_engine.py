"""Images per second of base training with one change of the engine each, alone on the device in turn.

    python scripts/try_engine.py                                  # all variants, SSS on CIFAR-100's shapes
    python scripts/try_engine.py reference padded-stem fp16       # some of them

Every variant trains random pictures in a process of its own. All compile at the same time; only then they are
timed, an epoch each, in several rounds, so that none disturbs another.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
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
ALIGNED = 8  # channels from which cuDNN's kernels for tensor cores read without another layout
GROUP = 256  # images whose maps of the first stage fit into the L2 cache of an H200


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


def padded_stem(trial: Trial) -> Trial:
    trial.backbone.conv1 = PaddedConvolution(cast(nn.Conv2d, trial.backbone.conv1))
    return trial


def groups(trial: Trial) -> Trial:
    """Let stem and first stage of a ResNet of timm, which have the largest maps, work in groups."""
    first = ("conv1", "bn1", "act1", "maxpool", "layer1")
    layers = nn.Sequential(*(getattr(trial.backbone, name) for name in first))
    for name in first:
        setattr(trial.backbone, name, nn.Identity())
    trial.backbone.conv1 = Grouped(layers, GROUP)
    return trial


def fp16(trial: Trial) -> Trial:
    return replace(trial, precision="16-mixed")


def cudnn_benchmark(trial: Trial) -> Trial:
    torch.backends.cudnn.benchmark = True
    return trial


def coordinate_descent(trial: Trial) -> Trial:
    inductor.coordinate_descent_tuning = True
    return trial


def cooperative_reductions(trial: Trial) -> Trial:
    inductor.triton.cooperative_reductions = True
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


# They change no result but by rounding.
ALL_EXACT = together(cudnn_benchmark, padded_stem, coordinate_descent)
VARIANTS: dict[str, Callable[[Trial], Trial]] = {
    "reference": together(),
    "cudnn-benchmark": cudnn_benchmark,
    "padded-stem": padded_stem,
    "coordinate-descent": coordinate_descent,
    "cooperative-reductions": cooperative_reductions,
    "all-exact": ALL_EXACT,
    "fp16": fp16,
    "all-exact-fp16": together(ALL_EXACT, fp16),
    "groups": groups,
    "all-exact-groups": together(ALL_EXACT, groups),
    "double-batch": double_batch,
}


def train(variant: str, recipe: Recipe, images: int, rounds: int) -> None:
    """Train one variant: say `ready` when it has compiled, and after each line read the speed of an epoch."""
    gpu = torch.cuda.is_available()
    objective = base_objective(recipe, CLASSES, len(recipe.model.mean))
    per_source, _ = network_work(objective)
    trial = VARIANTS[variant](Trial(recipe, objective, "bf16-mixed" if gpu else "32-true"))
    fabric = Fabric(accelerator="cuda" if gpu else "cpu", devices=1, precision=trial.precision)  # type: ignore[arg-type]
    settings = trial.recipe.training.model_copy(update={"epochs": 1 + rounds, "images": None})
    began = 0.0

    def after_epoch(curve: list[Row]) -> None:
        nonlocal began  # the device has finished the epoch: its loss has been read
        sources = images // settings.batch * settings.batch
        speed = sources * per_source / (time.perf_counter() - began)
        print("ready" if len(curve) == 1 else f"{speed:.0f}", flush=True)
        if len(curve) <= rounds:
            sys.stdin.readline()
        began = time.perf_counter()

    trainer = Trainer(fabric, settings, recipe.views, recipe.model.size, 0, after_epoch=after_epoch)
    trainer.train(trial.objective, random_pictures(recipe, CLASSES, images))


def measure(variants: list[str], given: argparse.Namespace) -> dict[str, list[float]]:
    """Compile all variants at once, then time them in turn; one that fails has no speeds."""
    call = [sys.executable, __file__, "--recipe", given.recipe, "--images", str(given.images)]
    call += ["--rounds", str(given.rounds), *(f"--set={change}" for change in given.set), "--train"]
    start = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    running = {variant: start([*call, variant]) for variant in variants}
    ready = {
        variant: process for variant, process in running.items() if process.stdout.readline() == "ready\n"
    }
    speeds: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(given.rounds):
        for variant, process in list(ready.items()):
            process.stdin.write("go\n")
            process.stdin.flush()
            if not (answer := process.stdout.readline()):  # it has failed
                del ready[variant], speeds[variant][:]
                continue
            speeds[variant].append(float(answer))
    for process in running.values():
        process.communicate()
    return speeds


def main() -> None:
    """Print the images per second of variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("variants", nargs="*", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--recipe", default="cifar100/sss")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--images", type=int, default=30_000, help="random pictures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", help=argparse.SUPPRESS)  # what a process of this script is started for
    given = parser.parse_args()
    if given.train:
        train(given.train, load_recipe(given.recipe, given.set), given.images, given.rounds)
        return
    if unknown := set(given.variants) - set(VARIANTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(VARIANTS)}")
    speeds = measure(given.variants or list(VARIANTS), given)
    for variant, rounds in speeds.items():
        shown = "  ".join(f"{speed:>9,.0f}" for speed in rounds) if rounds else "failed"
        print(f"{variant:24s} {shown}", flush=True)


if __name__ == "__main__":
    main()
