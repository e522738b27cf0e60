"""The training loop of the base session. It reads from top to bottom and knows no method."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from pydantic import Field
from torch import Tensor, nn

from fairshot.benchmarks.stream import LabelledPictures
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings
from fairshot.training.batches import Batches
from fairshot.training.checkpoints import Checkpoint, Checkpoints
from fairshot.training.interruption import watch_for_interruption
from fairshot.training.views import NOISE_COLUMNS, ViewSettings, random_view

CHECKPOINT_SHARE = 0.03  # of the time may go into checkpoints

Row = dict[str, float]  # of the training curve: step, epoch, loss, learning_rate, images_per_second


class TrainingSettings(Settings):
    """How the base session is optimised: SGD with a linear warm-up, then a cosine to zero."""

    epochs: int = Field(60, ge=1)
    batch: int = Field(128, ge=2)  # source images a step, over all processes
    learning_rate: float = Field(0.1, gt=0)
    warmup_epochs: float = Field(2.0, ge=0)
    momentum: float = Field(0.9, gt=0, lt=1)
    nesterov: bool = True
    weight_decay: float = Field(5e-4, ge=0)
    average_decay: float | None = Field(None, gt=0, lt=1)  # of an exponential average of the weights


class Objective(nn.Module):
    """What a method trains: from random views of a batch and its labels to one loss.

    A step hands over `views` views of the batch's images and of the `halo` images that follow them in the
    global batch, so that neighbours can be combined without asking another process; and `noise` further
    columns of uniform noise an image.
    """

    views: int = 1
    halo: int = 0
    noise: int = 0

    @abstractmethod
    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss, a mean over the batch without its halo."""

    def after_step(self) -> None:
        """Update what a method keeps outside the gradient."""


class TrainingStopped(Exception):
    """The training stopped early, by a signal or a time limit; its checkpoint lets it go on."""


@dataclass
class Trainer:
    """Trains objectives under one set of settings."""

    fabric: Fabric
    settings: TrainingSettings
    views: ViewSettings
    size: int  # pixels a side of a view
    seed: int
    folder: Path | None = None  # for checkpoints; None keeps none
    reporter: Reporter = SILENT
    deadline: float = math.inf  # in seconds of time.monotonic()
    history: list[Row] = field(default_factory=list)

    def train(self, objective: Objective, data: LabelledPictures, phase: str = "base") -> None:
        """Train an objective on the base session; go on from its last checkpoint if there is one."""
        batches = Batches(
            data,
            self.settings.batch,
            objective.halo,
            objective.views * NOISE_COLUMNS + objective.noise,
            self.seed,
            self.fabric.device,
            self.fabric.global_rank,
            self.fabric.world_size,
        )
        run = _Run(self, objective, batches, phase)
        total = self.settings.epochs * batches.steps_per_epoch
        with (
            watch_for_interruption() as interrupted,
            self.reporter.track("training", total, run.step) as advance,
        ):
            while run.step < total:
                run.take_step(total)
                advance(1, run.note)
                if interrupted() or time.monotonic() > self.deadline:
                    run.write_checkpoint()
                    raise TrainingStopped(f"stopped after {run.step} of {total} steps")
                if run.checkpoint_is_due(total):
                    run.write_checkpoint()
        self.history = run.history
        run.adopt_average()


class _Step(nn.Module):
    """Random views, then the objective: the part of a step that is compiled on a GPU."""

    def __init__(self, objective: Objective, views: ViewSettings, size: int) -> None:
        super().__init__()
        self.objective = objective
        self.views = views
        self.size = size

    def forward(self, pictures: DevicePictures, labels: Tensor, noise: Tensor) -> Tensor:
        views = []
        for index in range(self.objective.views):
            columns = noise[:, index * NOISE_COLUMNS : (index + 1) * NOISE_COLUMNS]
            view = random_view(pictures, columns, self.views, self.size)
            views.append(view.contiguous(memory_format=torch.channels_last))
        rest = noise[:, self.objective.views * NOISE_COLUMNS :]
        return cast(Tensor, self.objective(views, labels, rest))


class _Run:
    """One training under way: weights, optimiser, average, step, and their checkpoints."""

    def __init__(self, trainer: Trainer, objective: Objective, batches: Batches, phase: str) -> None:
        self.trainer, self.objective, self.batches = trainer, objective, batches
        fabric, settings = trainer.fabric, trainer.settings
        objective.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        step: nn.Module = _Step(objective, trainer.views, trainer.size)
        if fabric.device.type == "cuda":
            step = cast(nn.Module, torch.compile(step))
        self.sgd = torch.optim.SGD(
            [weight for weight in objective.parameters() if weight.requires_grad],
            lr=settings.learning_rate,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            weight_decay=settings.weight_decay,
        )
        self.module, self.optimiser = fabric.setup(step, self.sgd)
        self.average = _copy_of_floats(objective) if settings.average_decay else {}
        self.step = 0
        self.history: list[Row] = []
        self.note = ""
        self.losses: list[Tensor] = []
        self.epoch_began = self.checkpoint_ended = time.monotonic()
        self.checkpoint_took = 0.1
        self.checkpoints = (
            Checkpoints(trainer.folder / phase, trainer.reporter) if trainer.folder is not None else None
        )
        self._resume()

    def take_step(self, total: int) -> None:
        """Draw a batch, descend once."""
        settings = self.trainer.settings
        rate = _learning_rate(self.step, total, self.batches.steps_per_epoch, settings)
        for group in self.sgd.param_groups:
            group["lr"] = rate
        self.objective.train()
        loss = self.module(*self.batches[self.step])
        self.optimiser.zero_grad()
        self.trainer.fabric.backward(loss)
        self.optimiser.step()
        self.objective.after_step()
        if settings.average_decay:
            _move_average(self.average, self.objective, settings.average_decay)
        self.step += 1
        self.losses.append(loss.detach())
        if self.step % self.batches.steps_per_epoch == 0:
            self._close_epoch(rate)

    def checkpoint_is_due(self, total: int) -> bool:
        """Say whether so long has passed that a checkpoint costs little, or the training is over."""
        waited = time.monotonic() - self.checkpoint_ended
        return self.step == total or waited > self.checkpoint_took / CHECKPOINT_SHARE

    def write_checkpoint(self) -> None:
        """Write weights, momentum and average of this moment."""
        if self.checkpoints is None or self.trainer.fabric.global_rank != 0:
            return
        began = time.monotonic()
        note = {"history": self.history, "losses": [float(loss) for loss in self.losses]}
        self.checkpoints.write(Checkpoint(self.step, self._tensors(), note))
        self.checkpoint_ended = time.monotonic()
        self.checkpoint_took = self.checkpoint_ended - began

    def adopt_average(self) -> None:
        """Put the averaged weights in place of the last ones."""
        state = self.objective.state_dict()
        for name, value in self.average.items():
            state[name].copy_(value)

    def _close_epoch(self, rate: float) -> None:
        loss = float(torch.stack(self.losses).mean())  # the only place of an epoch that waits for the device
        now = time.monotonic()
        images = self.batches.batch * len(self.losses) / max(now - self.epoch_began, 1e-9)
        epoch = self.step // self.batches.steps_per_epoch
        self.history.append(
            {
                "step": self.step,
                "epoch": epoch,
                "loss": loss,
                "learning_rate": rate,
                "images_per_second": images,
            }
        )
        self.note = f"epoch {epoch}  loss {loss:.3f}  {images:,.0f} images/s"
        self.losses, self.epoch_began = [], now

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"weights.{name}": value for name, value in self.objective.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.items()}
        for name, weight in self.objective.named_parameters():
            if weight in self.sgd.state:
                tensors[f"momentum.{name}"] = self.sgd.state[weight]["momentum_buffer"]
        return tensors

    def _resume(self) -> None:
        checkpoint = self.checkpoints.read_last() if self.checkpoints is not None else None
        if checkpoint is None:
            return
        device = self.trainer.fabric.device
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "average": {}, "momentum": {}}
        for key, value in checkpoint.tensors.items():
            kind, name = key.split(".", 1)
            parts[kind][name] = value.to(device)
        self.objective.load_state_dict(parts["weights"])
        self.average = parts["average"]
        for name, weight in self.objective.named_parameters():
            if name in parts["momentum"]:
                self.sgd.state[weight]["momentum_buffer"] = parts["momentum"][name]
        self.step = checkpoint.step
        self.history = checkpoint.note["history"]
        self.losses = [torch.tensor(loss, device=device) for loss in checkpoint.note["losses"]]
        self.trainer.reporter.say(f"going on from step {self.step}")


def _learning_rate(step: int, total: int, steps_per_epoch: int, settings: TrainingSettings) -> float:
    warmup = min(settings.warmup_epochs * steps_per_epoch, total / 2)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    return settings.learning_rate * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def _copy_of_floats(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items() if value.is_floating_point()}


@torch.no_grad()
def _move_average(average: dict[str, Tensor], module: nn.Module, decay: float) -> None:
    state = module.state_dict()
    torch._foreach_lerp_(list(average.values()), [state[name] for name in average], 1 - decay)
