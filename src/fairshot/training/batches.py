"""Which pictures, labels and random numbers each step sees: a function of seed and step alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import UserError
from fairshot.models.pixels import DevicePictures


def seed_of(*parts: int) -> int:
    """Mix several numbers into one seed, so that neighbouring steps get unrelated random numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1


class Batches:
    """The steps of a training, as one process of several sees them.

    The global batch of a step is a slice of the epoch's permutation. A process gets its share of it and
    the `halo` images that follow, wrapping around, with the noise that belongs to them: nothing depends
    on the number of processes.
    """

    def __init__(
        self,
        data: LabelledPictures,
        batch: int,
        halo: int,
        noise_columns: int,
        seed: int,
        device: torch.device,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.batch = min(batch, len(data))
        if self.batch % processes:
            raise UserError(f"training.batch: {self.batch} images cannot be shared by {processes} processes")
        self.steps_per_epoch = len(data) // self.batch
        self.pictures = DevicePictures.from_pictures(data.pictures, device)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.noise_columns = noise_columns
        self.seed = seed
        self.device = device
        self.generator = torch.Generator(device)
        share = self.batch // processes
        self.slots = (rank * share + torch.arange(share + halo, device=device)) % self.batch
        self._order: tuple[int, Tensor] | None = None

    def __getitem__(self, step: int) -> tuple[DevicePictures, Tensor, Tensor]:
        """Return pictures, labels (one each) and noise (a row each) of a step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        rows = self._permutation(epoch)[within * self.batch + self.slots]
        self.generator.manual_seed(seed_of(self.seed, 1, step))
        noise = torch.rand(self.batch, self.noise_columns, generator=self.generator, device=self.device)
        return self.pictures.take(rows), self.labels[rows], noise[self.slots]

    def _permutation(self, epoch: int) -> Tensor:
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng([self.seed, 0, epoch]).permutation(len(self.labels))
            self._order = (epoch, torch.from_numpy(order).to(self.device))
        return self._order[1]
