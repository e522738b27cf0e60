"""What changes during a training: weights, momentum, averaged weights, and how far it is."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fairshot.errors import UserError
from fairshot.models.embedder import Embedder
from fairshot.training.checkpoints import Checkpoint

Row = dict[str, float]  # of the training curve: step, epoch, loss, learning_rate, images_per_second
SAME = ("digest", "steps_per_epoch")  # in a checkpoint of the same training
# in a checkpoint beside its tensors
NOTED = (*SAME, "history", "seconds", "epoch_seconds", "compile_seconds")


class AnotherTraining(UserError):
    """A folder holds checkpoints of another network or of a training on other images."""

    folder: Path
    message = (
        "{folder} holds the training of another network or on other images, with which this one cannot go "
        "on; remove it, or give another folder"
    )


class TrainingState:
    """The state of a training after some steps, which a checkpoint holds completely."""

    def __init__(
        self,
        objective: nn.Module,
        sgd: torch.optim.SGD,
        average_decay: float | None,
        digest: str,  # of the images that are trained on
        steps_per_epoch: int,
    ) -> None:
        self.objective, self.sgd, self.average_decay = objective, sgd, average_decay
        self.digest, self.steps_per_epoch = digest, steps_per_epoch
        self.floats = {k: v for k, v in objective.state_dict().items() if v.is_floating_point()}
        self.average = {k: v.clone() for k, v in self.floats.items()} if average_decay else {}
        self.step = 0
        self.loss_sum = torch.zeros((), device=next(iter(self.floats.values())).device)  # of this epoch
        self.finite_steps = torch.zeros_like(self.loss_sum)  # of this epoch, before one that was not
        self.counters = [each.images_passed for each in objective.modules() if isinstance(each, Embedder)]
        for counter in self.counters:  # of this training alone
            counter.zero_()
        self.history: list[Row] = []
        self.seconds = self.epoch_seconds = self.compile_seconds = 0.0

    @torch.no_grad()
    def after_step(self, loss: Tensor) -> None:
        """Count a step, and move the averaged weights towards the new ones."""
        self.loss_sum += loss.detach()
        self.finite_steps += self.loss_sum.isfinite()  # counted on the device, which nobody waits for
        if self.average_decay:
            # A young average forgets faster, else the random start would stay in it.
            decay = min(self.average_decay, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(list(self.average.values()), list(self.floats.values()), 1 - decay)
        self.step += 1

    def count_seconds(self, seconds: float) -> None:
        """Count time that was spent, in all and in this epoch."""
        self.seconds += seconds
        self.epoch_seconds += seconds

    @property
    def images(self) -> int:
        """How many images have gone through networks of this process; it waits for the device."""
        return sum(int(counter) for counter in self.counters)

    def close_epoch(self, loss_sum: float, rate: float, batch: int) -> str:
        """Add the epoch that ends to the training curve; return it as a short text."""
        epoch, loss = self.step // self.steps_per_epoch, loss_sum / self.steps_per_epoch
        speed = batch * self.steps_per_epoch / max(self.epoch_seconds, 1e-9)
        self.history.append(
            {
                "step": self.step,
                "epoch": epoch,
                "loss": loss,
                "learning_rate": rate,
                "images_per_second": speed,
            }
        )
        self.loss_sum.zero_()
        self.finite_steps.zero_()
        self.epoch_seconds = 0.0
        return f"epoch {epoch}  loss {loss:.3f}  {speed:,.0f} images/s"

    def first_bad_step(self) -> int | None:
        """Return the first step of this epoch whose loss, or after which the weights, were not finite.

        It waits for the device.
        """
        if not self.loss_sum.isfinite():
            begun = (self.step - 1) // self.steps_per_epoch * self.steps_per_epoch
            return min(begun + int(self.finite_steps) + 1, self.step)  # the loss of another process may be it
        finite = torch.stack([weight.isfinite().all() for weight in self.objective.parameters()])
        return None if finite.all() else self.step

    @torch.no_grad()
    def adopt_average(self) -> None:
        """Put the averaged weights in place of the last ones."""
        for name, value in self.average.items():
            self.floats[name].copy_(value)

    def checkpoint(self) -> Checkpoint:
        """Return everything that is needed to go on."""
        tensors = self._tensors()
        for name, weight in self.objective.named_parameters():
            if weight in self.sgd.state:
                tensors[f"momentum.{name}"] = self.sgd.state[weight]["momentum_buffer"]
        return Checkpoint(self.step, tensors, {name: getattr(self, name) for name in NOTED})

    def _tensors(self) -> dict[str, Tensor]:
        """Return what every checkpoint holds; momentum comes with the first step."""
        tensors = {"loss_sum": self.loss_sum}
        tensors |= {f"images.{index}": counter for index, counter in enumerate(self.counters)}
        tensors |= {f"weights.{name}": value for name, value in self.objective.state_dict().items()}
        return tensors | {f"average.{name}": value for name, value in self.average.items()}

    def load(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Go on from a checkpoint; one of another training is refused with the folder it lies in."""
        tensors = {name: value.to(self.loss_sum.device) for name, value in checkpoint.tensors.items()}
        self._refuse_another(checkpoint, folder)
        self.loss_sum.copy_(tensors["loss_sum"])
        for index, counter in enumerate(self.counters):
            counter.copy_(tensors[f"images.{index}"])
        self.objective.load_state_dict(
            {name: tensors[f"weights.{name}"] for name in self.objective.state_dict()}
        )
        for name, value in self.average.items():
            value.copy_(tensors[f"average.{name}"])
        for name, weight in self.objective.named_parameters():
            if (momentum := tensors.get(f"momentum.{name}")) is not None:
                # laid out as its weight: the fused optimiser pairs them as they lie
                laid_out = torch.empty_like(weight, requires_grad=False).copy_(momentum)
                self.sgd.state[weight]["momentum_buffer"] = laid_out
        self.step = checkpoint.step
        self.finite_steps.fill_(self.step % self.steps_per_epoch)
        for name in NOTED:
            setattr(self, name, checkpoint.note[name])

    def _refuse_another(self, checkpoint: Checkpoint, folder: Path) -> None:
        """The network of another training may have seen what is held out from this one."""
        ours = {name: value.shape for name, value in self._tensors().items()}
        theirs = {
            name: value.shape
            for name, value in checkpoint.tensors.items()
            if not name.startswith("momentum.")
        }
        noted = checkpoint.note
        same = all(noted.get(name) == getattr(self, name) for name in SAME) and noted.keys() >= set(NOTED)
        if ours != theirs or not same:
            raise AnotherTraining(folder)
