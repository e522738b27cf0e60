"""The training loop of the base session, for every method."""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fairshot.benchmarks.pictures import Floats, Ints
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import TrainingDiverged, TrainingStopped
from fairshot.models.embedder import Embedder
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings, Share
from fairshot.training.batches import NOISE_RANGE, Batches, shuffled
from fairshot.training.checkpoints import Checkpoints
from fairshot.training.hardware import (
    keep_compiled,
    own_random_numbers,
    share_batch_norms,
    synchronise,
    timed_convolutions,
)
from fairshot.training.interruption import watch_for_interruption
from fairshot.training.state import Row, TrainingState
from fairshot.training.views import ViewSettings, noise_columns, random_view

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Budget = Literal["epochs", "images", "authors"]  # epochs of the recipe, a number of images, authors' epochs
BASE = "base"  # the phase that every training has
STEPS_BETWEEN_AGREEMENTS = 8  # after so many steps several processes agree on whether to stop


class TrainingSettings(Settings):
    """How the base session is optimised: SGD with a linear warm-up, then a cosine to zero."""

    epochs: int = Field(
        60, ge=0, description="Passes over the base training images; 0: the network stays as it begins."
    )
    images: int | None = Field(
        None,
        ge=1,
        description="Images through the network, in place of `epochs`: all views, fused and flipped ones and "
        "those of further phases count; rounded up to whole epochs. null: `epochs` holds.",
    )
    authors_epochs: int | None = Field(
        None,
        ge=1,
        description="Epochs of the method's authors, in views of ours: `images` never gives fewer.",
    )
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
    """What a method trains: it computes a loss from random views of a batch and its labels.

    A step passes `views` views of the batch's images and of the `neighbours` images that follow them in the
    global batch, so that images can be combined without communication between processes; and `noise` more
    columns of uniform noise per image.
    """

    views: int = 1
    neighbours: int = 0
    noise: int = 0

    @abstractmethod
    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss, a mean over the batch without its neighbours."""

    def after_step(self) -> None:
        """Update what is not updated by gradients."""

    def order(self, labels: Ints, rng: np.random.Generator, weights: Floats | None) -> Ints:
        """Return the order of the images in an epoch, which is divided into batches.

        If images have weights, each comes as often as its weight says.
        """
        return shuffled(labels, rng, weights)

    def view_settings(self, index: int, settings: ViewSettings) -> ViewSettings:
        """Return the settings of the view of that index; by default those of all views."""
        del index
        return settings

    def view_size(self, index: int, size: int) -> int:
        """Return the side in pixels of the view of that index."""
        del index
        return size


@dataclass(frozen=True)
class Phase:
    """One phase of a training: its settings and batches, and how far it is."""

    name: str
    settings: TrainingSettings
    batches: Batches
    total: int  # steps
    state: TrainingState
    checkpoints: Checkpoints | None

    @property
    def suffix(self) -> str:
        """The phase as messages name it; nothing for the one that every training has."""
        return "" if self.name == BASE else f" in {self.name}"

    def learning_rate(self) -> float:
        """Return the learning rate of the next step: a linear warm-up, then a cosine to zero."""
        highest, step = self.settings.learning_rate, self.state.step
        warmup = min(self.settings.warmup_epochs * self.batches.steps_per_epoch, self.total / 2)
        if step < warmup:
            return highest * min(1, (step + 1) / warmup)  # a warm-up may end within a step
        return highest * (1 + math.cos(math.pi * (step - warmup) / (self.total - warmup))) / 2

    def view_size(self, full: int) -> int:
        """Return the pixels per side of the views of the next step."""
        low = self.settings.low_resolution
        early = self.state.step < self.settings.low_resolution_share * self.total
        return low if low and early else full

    def check_finite(self) -> None:
        """Refuse to go on with a loss or weights that are not finite."""
        bad = self.state.first_bad_step()
        if bad is not None:
            name = "" if self.name == BASE else self.name
            raise TrainingDiverged(bad, self.total, self.settings.learning_rate, name)

    def write_checkpoint(self, stop: bool, alone: bool) -> None:
        """Write a checkpoint if one is due and its numbers are finite; only the last is waited for.

        If they are not, a single process stops at once; several stop together at the end of the epoch.
        """
        last = stop or self.state.step == self.total
        if self.checkpoints and (last or self.checkpoints.due()):
            if alone:
                self.check_finite()
            if alone or self.state.first_bad_step() is None:
                write = self.checkpoints.write if last else self.checkpoints.begin
                write(self.state.checkpoint())


@dataclass
class Trainer:
    """Trains objectives under one set of settings."""

    fabric: Fabric
    settings: TrainingSettings
    views: ViewSettings
    size: int  # side of the views in pixels
    seed: int
    folder: Path | None = None  # for checkpoints; None: no checkpoints are written
    reporter: Reporter = SILENT
    deadline: float = math.inf  # in seconds of time.monotonic()
    after_epoch: Callable[[list[Row]], None] | None = None  # is given the training curve so far
    compiled: bool = True  # whether steps are compiled for a GPU; without, they can be debugged
    resident: bool | None = None  # whether all pictures are kept on the device; None: if they fit there
    history: list[Row] = field(default_factory=list)
    images: int = 0  # that have gone through networks, over all phases and processes
    reserved_images: int = 0  # of phases to come, which a budget of images covers too
    budget: Budget = "epochs"  # what decided how long the base session was trained
    base_epochs: int | None = None  # of the base session, without further phases
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
        fabric = self.fabric
        batches = self._batches(objective, data, settings)
        share_batch_norms(objective, fabric)
        step = self._step(objective, batches)
        epochs = self._epochs(step, batches, settings, phase)
        sgd = _sgd(objective, settings)
        on_gpu = fabric.device.type == "cuda"
        compiled = self.compiled and on_gpu
        loss_of, optimiser = fabric.setup(_compiled(step, fabric.world_size) if compiled else step, sgd)

        checkpoints = Checkpoints(self.folder / phase, self.reporter, on_gpu) if self.folder else None
        digest = data.sha256() if checkpoints else ""
        state = TrainingState(objective, sgd, settings.average_decay, digest, batches.steps_per_epoch)
        current = Phase(phase, settings, batches, epochs * batches.steps_per_epoch, state, checkpoints)
        if checkpoints and (last := checkpoints.read_last()):
            state.load(last, checkpoints.folder)
            self.earlier_seconds += state.seconds
            self.reporter.say(f"going on from step {state.step}{current.suffix}")
        try:
            self._loop(current, objective, loss_of, optimiser)
        finally:
            if checkpoints:
                checkpoints.wait()  # nothing is written into the folder after this
        state.adopt_average()
        self.compile_seconds += state.compile_seconds
        self.images += state.images * fabric.world_size
        self.base_epochs = epochs if phase == BASE else self.base_epochs
        self.history = self._curve(state)

    def _loop(
        self, phase: Phase, objective: Objective, loss_of: Callable[..., Tensor], optimiser: Any
    ) -> None:
        """Take all steps of a phase that are left, or stop early with a checkpoint."""
        fabric, batches, state, total = self.fabric, phase.batches, phase.state, phase.total
        compiled_sizes: set[int] = set()
        fastest_step, step_ended, note = math.inf, time.monotonic(), ""
        with (
            timed_convolutions(),
            watch_for_interruption() as interrupted,
            self.reporter.track(f"training{phase.suffix}", total, state.step) as advance,
        ):
            while state.step < total:
                rate, size = phase.learning_rate(), phase.view_size(self.size)
                for group in state.sgd.param_groups:
                    group["lr"] = rate

                began = time.monotonic()
                objective.train()
                optimiser.zero_grad()
                pictures, labels, noise = batches[state.step]
                loss = loss_of(pictures.buffer, pictures.offsets, pictures.sizes, labels, noise, size)
                fabric.backward(loss)
                optimiser.step()
                objective.after_step()
                state.after_step(loss)
                fastest_step = min(fastest_step, time.monotonic() - began)

                if size not in compiled_sizes and fabric.device.type == "cuda":
                    synchronise(fabric)  # the first step at a size compiles, and is counted apart
                    state.compile_seconds += time.monotonic() - began
                compiled_sizes.add(size)
                epoch_ends = state.step % batches.steps_per_epoch == 0
                if epoch_ends:  # only now wait for the device, before the time is taken
                    loss_sum = float(cast(Tensor, fabric.all_reduce(state.loss_sum)))
                state.count_seconds(time.monotonic() - step_ended)
                step_ended = time.monotonic()
                if epoch_ends:
                    if not math.isfinite(loss_sum) or state.step == total:
                        phase.check_finite()
                    note = state.close_epoch(loss_sum, rate, batches.batch)
                    if self.after_epoch is not None:
                        self.after_epoch(self._curve(state))
                advance(1, note)

                next_ends = time.monotonic() + (fastest_step if state.step < total else 0)
                stop = self._must_stop(interrupted() or next_ends > self.deadline, state.step)
                if fabric.global_rank == 0:
                    phase.write_checkpoint(stop, alone=fabric.world_size == 1)
                if stop:
                    raise TrainingStopped(f"stopped after {state.step} of {total} steps{phase.suffix}")

    def _curve(self, state: TrainingState) -> list[Row]:
        """Return the training curve of earlier phases and of this one, which counts on from them."""
        before = self.history[-1] if self.history else {"step": 0, "epoch": 0}
        return self.history + [
            row | {key: before[key] + row[key] for key in ("step", "epoch")} for row in state.history
        ]

    def reserve(self, objective: Objective, data: LabelledPictures, settings: TrainingSettings) -> None:
        """Leave room in a budget of images for a phase that is trained after the base session."""
        if self.settings.images is not None:
            batches = self._batches(objective, data, settings)
            images = self._images_per_step(self._step(objective, batches), batches)
            self.reserved_images += images * settings.epochs * batches.steps_per_epoch

    def _step(self, objective: Objective, batches: Batches) -> Step:
        """Put an objective on the device, with the views that it is given."""
        objective.to(self.fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Step(objective, self.views, batches.channels)

    def _batches(self, objective: Objective, data: LabelledPictures, settings: TrainingSettings) -> Batches:
        return Batches(
            data,
            settings.batch,
            objective.neighbours,
            objective.views * noise_columns(self.views) + objective.noise,
            self.seed,
            self.fabric.device,
            self.fabric.global_rank,
            self.fabric.world_size,
            self.resident,
            objective.order,
        )

    def _epochs(self, step: Step, batches: Batches, settings: TrainingSettings, phase: str) -> int:
        """Return the epochs of a phase; those of the base session may follow from a number of images."""
        if phase != BASE or settings.images is None or not settings.epochs:
            return settings.epochs
        per_epoch = self._images_per_step(step, batches) * batches.steps_per_epoch
        by_images = max(1, math.ceil((settings.images - self.reserved_images) / per_epoch))
        by_authors = settings.authors_epochs or 0
        self.budget = "authors" if by_authors > by_images else "images"
        return max(by_images, by_authors)

    def _images_per_step(self, step: Step, batches: Batches) -> int:
        """Count the images that go through the network in a step, on a copy that is then forgotten."""
        copied = copy.deepcopy(step).train()
        counters = [each for each in copied.modules() if isinstance(each, Embedder)]
        before = sum(int(each.images_passed) for each in counters)
        pictures, labels, noise = batches[0]
        with torch.no_grad(), own_random_numbers(self.fabric.device), self.fabric.autocast():
            copied(pictures.buffer, pictures.offsets, pictures.sizes, labels, noise, self.size)
        return (sum(int(each.images_passed) for each in counters) - before) * self.fabric.world_size

    def _must_stop(self, asked: bool, step: int) -> bool:
        """Say whether to stop; several processes stop after the same step."""
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
        """Return the loss on views of that size; CUDA graphs take tensors, so pictures come as tensors."""
        pictures = DevicePictures(buffer, offsets, sizes, self.channels)
        noise = noise.to(self.dtype) / NOISE_RANGE
        views = []
        for index, settings in enumerate(self.views):
            own = noise_columns(settings)
            columns = noise[:, index * own : (index + 1) * own]
            view = random_view(pictures, columns, settings, self.objective.view_size(index, size))
            views.append(view.contiguous(memory_format=torch.channels_last))
        rest = noise[:, noise.shape[1] - self.objective.noise :]
        return cast(Tensor, self.objective(views, labels, rest))


def _sgd(objective: Objective, settings: TrainingSettings) -> torch.optim.SGD:
    return torch.optim.SGD(
        [weight for weight in objective.parameters() if weight.requires_grad],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=True,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _compiled(step: nn.Module, processes: int) -> nn.Module:
    """Compile for a GPU, with CUDA graphs where one process trains alone."""
    keep_compiled()
    options: dict[str, Any] = {"triton.cudagraphs": processes == 1}
    return cast(nn.Module, torch.compile(step, dynamic=False, options=options))
