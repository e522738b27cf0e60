"""The training loop of the base session. It reads from top to bottom and knows no method."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fairshot.benchmarks.pictures import Ints
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import TrainingStopped, UserError
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings, Share
from fairshot.training.batches import NOISE_RANGE, Batches, shuffled
from fairshot.training.checkpoints import Checkpoint, Checkpoints
from fairshot.training.hardware import share_batch_norms, synchronise
from fairshot.training.interruption import watch_for_interruption
from fairshot.training.views import NOISE_COLUMNS, ViewSettings, random_view

if TYPE_CHECKING:
    from lightning_fabric import Fabric

BASE = "base"  # the phase that every training has
CHECKPOINT_SHARE = 0.03  # of the time may go into checkpoints
STEPS_BETWEEN_AGREEMENTS = 8  # how often several processes ask each other whether to stop

Row = dict[str, float]  # of the training curve: step, epoch, loss, learning_rate, images_per_second


class TrainingSettings(Settings):
    """How the base session is optimised: SGD with a linear warm-up, then a cosine to zero."""

    epochs: int = Field(60, ge=1, description="Passes over the base training images.")
    batch: int = Field(128, ge=2, description="Source images per step, over all processes.")
    learning_rate: float = Field(
        0.1, gt=0, description="Highest learning rate, reached at the end of the warm-up."
    )
    warmup_epochs: float = Field(2.0, ge=0, description="Epochs in which the learning rate rises linearly.")
    momentum: float = Field(0.9, gt=0, lt=1, description="Nesterov's momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, description="Weight decay of SGD.")
    average_decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Decay per step of an exponential average of the weights; null: no average.",
    )
    low_resolution: int | None = Field(
        None,
        ge=8,
        description="Pixels per side of the views in the first epochs; null: full size throughout.",
    )
    low_resolution_share: Share = Field(
        0.5, description="Share of the epochs whose views have `low_resolution`."
    )


class Objective(nn.Module):
    """What a method trains: from random views of a batch and its labels to one loss.

    A step hands over `views` views of the batch's images and of the `neighbours` images that follow them in
    the global batch, so that images can be combined without asking another process; and `noise` further
    columns of uniform noise per image.
    """

    views: int = 1
    neighbours: int = 0
    noise: int = 0

    @abstractmethod
    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss, a mean over the batch without its neighbours."""

    def after_step(self) -> None:
        """Update what a method keeps outside the gradient."""

    def order(self, labels: Ints, rng: np.random.Generator) -> Ints:
        """Return in which order an epoch visits the images; a step takes the next ones of it."""
        return shuffled(labels, rng)

    def view_settings(self, index: int, settings: ViewSettings) -> ViewSettings:
        """Return how the view of that index is drawn; by default all are drawn alike."""
        del index
        return settings

    def view_size(self, index: int, size: int) -> int:
        """Return the pixels a side of the view of that index."""
        del index
        return size


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
    compile_seconds: float = 0.0
    earlier_seconds: float = 0.0  # spent on this training by processes that were interrupted

    def train(
        self,
        objective: Objective,
        data: LabelledPictures,
        phase: str = BASE,
        settings: TrainingSettings | None = None,
    ) -> None:
        """Train an objective on the base session; go on from its last checkpoint if there is one.

        A method that trains in several phases names each; a phase may have settings of its own.
        """
        settings = settings or self.settings
        batches = Batches(
            data,
            settings.batch,
            objective.neighbours,
            objective.views * NOISE_COLUMNS + objective.noise,
            self.seed,
            self.fabric.device,
            self.fabric.global_rank,
            self.fabric.world_size,
            order=objective.order,
        )
        run = _Run(self, settings, objective, batches, phase, data.sha256() if self.folder else "")
        total = settings.epochs * batches.steps_per_epoch
        with (
            watch_for_interruption() as interrupted,
            self.reporter.track(f"training{run.in_phase}", total, run.step) as advance,
        ):
            while run.step < total:
                run.take_step(total)
                advance(1, run.note)
                next_ends = time.monotonic() + (run.quickest_step if run.step < total else 0)
                if self._must_stop(interrupted() or next_ends > self.deadline, run.step):
                    run.write_checkpoint()
                    raise TrainingStopped(f"stopped after {run.step} of {total} steps{run.in_phase}")
                if run.checkpoint_is_due(total):
                    run.write_checkpoint()
        self._append(run.history)
        run.adopt_average()

    def _append(self, rows: list[Row]) -> None:
        """Continue the training curve by those of one more phase."""
        before = self.history[-1] if self.history else {"step": 0, "epoch": 0}
        self.history = self.history + [
            row | {key: before[key] + row[key] for key in ("step", "epoch")} for row in rows
        ]

    def _must_stop(self, asked: bool, step: int) -> bool:
        """Several processes stop after the same step or not at all."""
        if self.fabric.world_size == 1:
            return asked
        if step % STEPS_BETWEEN_AGREEMENTS:
            return False
        flag = torch.tensor(float(asked), device=self.fabric.device)
        return bool(cast(Tensor, self.fabric.all_reduce(flag, reduce_op="sum")) > 0)


class Step(nn.Module):
    """Random views, then the objective: the part of a step that is compiled on a GPU."""

    def __init__(self, objective: Objective, views: ViewSettings, channels: int) -> None:
        super().__init__()
        self.objective = objective
        self.views = [objective.view_settings(index, views) for index in range(objective.views)]
        self.channels = channels
        self.dtype = torch.get_default_dtype()

    def forward(
        self, buffer: Tensor, offsets: Tensor, sizes: Tensor, labels: Tensor, noise: Tensor, size: int
    ) -> Tensor:
        """Return the loss on views of that size; pictures come in parts, as graphs take tensors alone."""
        pictures = DevicePictures(buffer, offsets, sizes, self.channels)
        noise = noise.to(self.dtype) / NOISE_RANGE
        views = []
        for index, settings in enumerate(self.views):
            columns = noise[:, index * NOISE_COLUMNS : (index + 1) * NOISE_COLUMNS]
            view = random_view(pictures, columns, settings, self.objective.view_size(index, size))
            views.append(view.contiguous(memory_format=torch.channels_last))
        rest = noise[:, self.objective.views * NOISE_COLUMNS :]
        return cast(Tensor, self.objective(views, labels, rest))


class _Run:
    """One training under way: weights, optimiser, average, step, and their checkpoints."""

    def __init__(
        self,
        trainer: Trainer,
        settings: TrainingSettings,
        objective: Objective,
        batches: Batches,
        phase: str,
        images: str,  # the digest of what is trained on
    ) -> None:
        self.trainer, self.settings, self.objective, self.batches = trainer, settings, objective, batches
        self.images = images
        self.in_phase = "" if phase == BASE else f" in {phase}"  # as messages say it
        fabric = trainer.fabric
        share_batch_norms(objective, fabric)
        objective.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.sgd = torch.optim.SGD(
            [weight for weight in objective.parameters() if weight.requires_grad],
            lr=settings.learning_rate,
            momentum=settings.momentum,
            nesterov=True,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        step = Step(objective, trainer.views, batches.channels)
        self.module, self.optimiser = fabric.setup(_compiled(step, fabric), self.sgd)
        self.floats = {k: v for k, v in objective.state_dict().items() if v.is_floating_point()}
        self.average = {k: v.clone() for k, v in self.floats.items()} if settings.average_decay else {}
        self.step = 0
        self.history: list[Row] = []
        self.note = ""
        self.loss_sum = torch.zeros((), device=fabric.device)
        self.steps_summed = 0
        self.sizes_compiled: set[int] = set()
        self.quickest_step = math.inf
        self.earlier_seconds = self.compile_seconds = 0.0
        self.began = self.epoch_began = self.checkpoint_ended = time.monotonic()
        self.checkpoint_took = 0.0  # unknown until the first, which therefore comes after the first step
        self.checkpoints = (
            Checkpoints(trainer.folder / phase, trainer.reporter) if trainer.folder is not None else None
        )
        self._resume()

    def take_step(self, total: int) -> None:
        """Draw a batch, descend once."""
        settings = self.settings
        rate = _learning_rate(self.step, total, self.batches.steps_per_epoch, settings)
        for group in self.sgd.param_groups:
            group["lr"] = rate
        size = self.trainer.size
        if settings.low_resolution and self.step < settings.low_resolution_share * total:
            size = settings.low_resolution
        began = time.monotonic()
        self.objective.train()
        self.optimiser.zero_grad()
        pictures, labels, noise = self.batches[self.step]
        loss = self.module(pictures.buffer, pictures.offsets, pictures.sizes, labels, noise, size)
        self.trainer.fabric.backward(loss)
        self.optimiser.step()
        self.objective.after_step()
        if settings.average_decay:
            self._move_average(settings.average_decay)
        self.loss_sum += loss.detach()
        self.steps_summed += 1
        self.step += 1
        self.quickest_step = min(self.quickest_step, time.monotonic() - began)
        if size not in self.sizes_compiled:
            self._note_compilation(size, began)
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
        note = {
            "images": self.images,
            "history": self.history,
            "loss_sum": float(self.loss_sum),
            "steps_summed": self.steps_summed,
            "seconds": began - self.began + self.earlier_seconds,
            "epoch_seconds": began - self.epoch_began,
            "compile_seconds": self.compile_seconds,
        }
        self.checkpoints.write(Checkpoint(self.step, self._tensors(), note))
        self.checkpoint_ended = time.monotonic()
        self.checkpoint_took = self.checkpoint_ended - began

    @torch.no_grad()
    def adopt_average(self) -> None:
        """Put the averaged weights in place of the last ones."""
        for name, value in self.average.items():
            self.floats[name].copy_(value)

    @torch.no_grad()
    def _move_average(self, decay: float) -> None:
        # A young average forgets faster, else the random start would stay in it.
        decay = min(decay, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(list(self.average.values()), list(self.floats.values()), 1 - decay)

    def _note_compilation(self, size: int, began: float) -> None:
        """The first step at a size compiles the network; its time is counted apart."""
        self.sizes_compiled.add(size)
        if self.trainer.fabric.device.type == "cuda":
            synchronise(self.trainer.fabric)
            self._count_compilation(time.monotonic() - began)

    def _count_compilation(self, seconds: float) -> None:
        self.compile_seconds += seconds
        self.trainer.compile_seconds += seconds

    def _close_epoch(self, rate: float) -> None:
        mean = cast(Tensor, self.trainer.fabric.all_reduce(self.loss_sum))  # over the processes
        loss = float(mean) / self.steps_summed  # the only place of an epoch that waits for the device
        now = time.monotonic()
        images = self.batches.batch * self.steps_summed / max(now - self.epoch_began, 1e-9)
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
        self.loss_sum.zero_()
        self.steps_summed, self.epoch_began = 0, now

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
        self._refuse_another(checkpoint.note, parts["weights"])
        self.objective.load_state_dict(parts["weights"])
        for name, value in self.average.items():
            value.copy_(parts["average"][name])
        for name, weight in self.objective.named_parameters():
            if name in parts["momentum"]:
                # laid out as its weight: the fused optimiser pairs them as they lie
                laid_out = torch.empty_like(weight, requires_grad=False).copy_(parts["momentum"][name])
                self.sgd.state[weight]["momentum_buffer"] = laid_out
        self.step = checkpoint.step
        self.history = checkpoint.note["history"]
        self.loss_sum += checkpoint.note["loss_sum"]
        self.steps_summed = checkpoint.note["steps_summed"]
        self.epoch_began -= checkpoint.note["epoch_seconds"]
        self.earlier_seconds = checkpoint.note["seconds"]
        self.trainer.earlier_seconds += self.earlier_seconds
        self._count_compilation(checkpoint.note["compile_seconds"])
        self.trainer.reporter.say(f"going on from step {self.step}{self.in_phase}")

    def _refuse_another(self, note: dict[str, Any], weights: dict[str, Tensor]) -> None:
        """Refuse another training's checkpoint: its network may have seen what is held out from this one."""
        shapes = {name: value.shape for name, value in self.objective.state_dict().items()}
        same_network = {name: value.shape for name, value in weights.items()} == shapes
        first_epoch = note["history"][0]["step"] if note["history"] else self.batches.steps_per_epoch
        same_length = first_epoch == self.batches.steps_per_epoch
        same_images = note.get("images", self.images) == self.images  # earlier versions did not note them
        if not (same_network and same_length and same_images):
            assert self.checkpoints is not None
            raise UserError(
                f"{self.checkpoints.folder} holds the training of another network or on other images, with "
                "which this one cannot go on; remove it, or give another folder"
            )


def _compiled(step: nn.Module, fabric: Fabric) -> nn.Module:
    """Compile for a GPU, with CUDA graphs where one process has the device to itself."""
    if fabric.device.type != "cuda":
        return step
    options: dict[str, Any] = {"triton.cudagraphs": fabric.world_size == 1}
    return cast(nn.Module, torch.compile(step, dynamic=False, options=options))


def _learning_rate(step: int, total: int, steps_per_epoch: int, settings: TrainingSettings) -> float:
    warmup = min(settings.warmup_epochs * steps_per_epoch, total / 2)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    return settings.learning_rate * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2
