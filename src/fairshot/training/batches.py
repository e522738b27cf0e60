"""Which pictures, labels and random numbers each step sees: a function of seed and step alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Ints, Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import UserError
from fairshot.models.pixels import DevicePictures

NOISE_RANGE = 2**24  # noise travels as whole numbers, which mixed precision leaves as they are
AHEAD = 3  # steps that are prepared before their turn when pictures are streamed


def seed_of(*parts: int) -> int:
    """Mix several numbers into one seed, so that neighbouring steps get unrelated random numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1


Order = Callable[[Ints, np.random.Generator], Ints]  # from labels to the order of an epoch


def shuffled(labels: Ints, rng: np.random.Generator) -> Ints:
    """Return the images in random order, each once."""
    return rng.permutation(len(labels))


class Batches:
    """The steps of a training, as one process of several sees them.

    The global batch of a step is a slice of the epoch's order, by default a permutation. A process gets
    its share of it and the `neighbours` images that follow, wrapping around, with the noise that belongs to
    them: nothing depends on the number of processes. Pictures that fit stay on the device; others are
    streamed to it.
    """

    def __init__(
        self,
        data: LabelledPictures,
        batch: int,
        neighbours: int,
        noise_columns: int,
        seed: int,
        device: torch.device,
        rank: int = 0,
        processes: int = 1,
        resident: bool | None = None,
        order: Order = shuffled,
    ) -> None:
        self.batch = min(batch, len(data))
        if self.batch % processes:
            raise UserError(
                f"training.batch: {self.batch} images cannot be shared by {processes} processes; "
                f"give a multiple of {processes}"
            )
        self.steps_per_epoch = len(data) // self.batch
        self.order, self.given_labels = order, data.labels
        self.labels = torch.from_numpy(data.labels).to(device)
        self.channels = data.pictures.channels
        self.noise_columns = noise_columns
        self.seed = seed
        self.device = device
        self.generator = torch.Generator(device)
        share = self.batch // processes
        self.slots = (rank * share + np.arange(share + neighbours)) % self.batch
        self._device_slots = torch.from_numpy(self.slots).to(device)
        self._order: tuple[int, Ints] | None = None
        if resident is None:
            resident = data.pictures.nbytes <= _room_on(device) / 2
        self.source: _Source = (
            _Resident(data.pictures, device) if resident else _Streamed(data.pictures, self, device)
        )

    def __getitem__(self, step: int) -> tuple[DevicePictures, Tensor, Tensor]:
        """Return pictures, labels (one each) and noise (a row each) of a step."""
        rows = torch.from_numpy(self.rows(step)).to(self.device, non_blocking=True)
        self.generator.manual_seed(seed_of(self.seed, 1, step))
        shape = (self.batch, self.noise_columns)
        noise = torch.randint(
            NOISE_RANGE, shape, generator=self.generator, device=self.device, dtype=torch.int32
        )
        return self.source.pictures(step, rows), self.labels[rows], noise[self._device_slots]

    def rows(self, step: int) -> Ints:
        """Return which pictures of the data a step uses."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, 0, epoch])
            self._order = (epoch, self.order(self.given_labels, rng))
        return self._order[1][within * self.batch + self.slots]


class _Source(Protocol):
    def pictures(self, step: int, rows: Tensor) -> DevicePictures: ...


class _Resident:
    """All pictures on the device."""

    def __init__(self, pictures: Pictures, device: torch.device) -> None:
        self.all = DevicePictures.from_pictures(pictures, device)
        if device.type == "cuda":  # CUDA graphs then read the pixels where they lie
            torch._dynamo.mark_static_address(self.all.buffer)

    def pictures(self, step: int, rows: Tensor) -> DevicePictures:
        del step
        return self.all.take(rows)


class _Streamed:
    """Pictures read from memory-mapped files by a thread that works some steps ahead."""

    def __init__(self, pictures: Pictures, batches: Batches, device: torch.device) -> None:
        self.stored, self.batches, self.device = pictures, batches, device
        largest = int(pictures.sizes.prod(axis=1).max()) * pictures.channels
        self.room = largest * len(batches.slots)  # every step: the compiled one sees one shape
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pictures")
        self.ahead: dict[int, Future[DevicePictures]] = {}

    def pictures(self, step: int, rows: Tensor) -> DevicePictures:
        del rows
        for coming in range(step, step + AHEAD):
            if coming not in self.ahead:
                self.ahead[coming] = self.thread.submit(self._gather, self.batches.rows(coming))
        self.ahead = {key: value for key, value in self.ahead.items() if key >= step}
        return self.ahead.pop(step).result()

    def _gather(self, rows: Ints) -> DevicePictures:
        chosen = self.stored.take(rows).compact()
        pinned = self.device.type == "cuda"
        buffer = torch.zeros(self.room, dtype=torch.uint8, pin_memory=pinned)
        buffer[: len(chosen.buffer)] = torch.from_numpy(chosen.buffer)
        offsets, sizes = torch.from_numpy(chosen.offsets), torch.from_numpy(chosen.sizes)
        return DevicePictures(
            buffer.to(self.device, non_blocking=True),
            offsets.to(self.device),
            sizes.to(self.device),
            chosen.channels,
        )


def _room_on(device: torch.device) -> int:
    """Bytes of memory that are free on a GPU, or that a CPU has in all."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
