"""The pictures, labels and random numbers of each training step: a function of seed and step alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Floats, Ints, Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import BadSetting
from fairshot.models.pixels import DevicePictures

NOISE_RANGE = 2**24  # noise is passed as integers, because mixed precision would round floats
AHEAD = 3  # steps whose pictures are prepared in advance when they are streamed


def seed_of(*parts: int) -> int:
    """Combine several numbers into one seed, so that neighbouring steps get unrelated random numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1


# Labels, and weights if images have any -> the order of the images in an epoch
Order = Callable[[Ints, np.random.Generator, Floats | None], Ints]


def shuffled(labels: Ints, rng: np.random.Generator, weights: Floats | None = None) -> Ints:
    """Return the images in random order: each once or, if they are weighted, as often as its weight says.

    Weights count relative to their mean. A weight of 1.3 means once or twice, and 1.3 times on average over
    the epochs, so that the mean loss is the weighted one.
    """
    order = rng.permutation(len(labels))
    if weights is None:
        return order
    ends = np.cumsum(weights[order]) * (len(order) / weights.sum())
    ends[-1] = len(order)  # whatever was rounded
    times = np.diff(np.floor(ends + rng.random()), prepend=0)
    return rng.permutation(np.repeat(order, times.astype(np.int64)))


class Batches:
    """The batches of a training, for one of several processes.

    The global batch of a step is a slice of the epoch's order, by default a permutation. A process gets
    its slice of the global batch, the `neighbours` images that follow it (the first ones follow the last),
    and their noise, so nothing depends on the number of processes. All pictures are kept on the device if
    they fit there; otherwise they are streamed to it.
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
            raise BadSetting(
                "training.batch",
                self.batch,
                f"{processes} processes cannot share it evenly; give a multiple of {processes}",
            )
        self.steps_per_epoch = len(data) // self.batch
        self.order, self.given_labels, self.weights = order, data.labels, data.weights
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
        self.resident = DevicePictures.from_pictures(data.pictures, device) if resident else None
        if self.resident is None:
            self.streamed = _Streamed(data.pictures, self)
        elif device.type == "cuda":  # so that CUDA graphs do not copy the pixels
            torch._dynamo.mark_static_address(self.resident.buffer)

    def __getitem__(self, step: int) -> tuple[DevicePictures, Tensor, Tensor]:
        """Return the pictures, the labels (N,) and the noise (N, noise_columns) of a step."""
        rows = torch.from_numpy(self.rows(step)).to(self.device, non_blocking=True)
        self.generator.manual_seed(seed_of(self.seed, 1, step))
        shape = (self.batch, self.noise_columns)
        noise = torch.randint(
            NOISE_RANGE, shape, generator=self.generator, device=self.device, dtype=torch.int32
        )
        pictures = self.resident.take(rows) if self.resident else self.streamed[step]
        return pictures, self.labels[rows], noise[self._device_slots]

    def rows(self, step: int) -> Ints:
        """Return the indices of the pictures that a step uses."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, 0, epoch])
            self._order = (epoch, self.order(self.given_labels, rng, self.weights))
        return self._order[1][within * self.batch + self.slots]


class _Streamed:
    """Pictures read from memory-mapped files by a thread, some steps in advance."""

    def __init__(self, pictures: Pictures, batches: Batches) -> None:
        self.stored, self.batches, self.device = pictures, batches, batches.device
        largest = int(pictures.sizes.prod(axis=1).max()) * pictures.channels
        self.room = largest * len(batches.slots)  # the same for each step, so that it is compiled once
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pictures")
        self.ahead: dict[int, Future[DevicePictures]] = {}

    def __getitem__(self, step: int) -> DevicePictures:
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
        buffer, offsets, sizes = (
            part.to(self.device, non_blocking=True) for part in (buffer, offsets, sizes)
        )
        return DevicePictures(buffer, offsets, sizes, chosen.channels)


def _room_on(device: torch.device) -> int:
    """Return the bytes of free memory of a GPU, or of all memory of a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
