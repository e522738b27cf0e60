"""Batch norm from two sums a channel: one pass on a GPU, one exchange between processes."""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from fairshot.errors import UserError


def sum_batch_norms(module: nn.Module, fabric: Fabric) -> None:
    """Make batch norms work by sums on a GPU, and where several processes share a batch; in place.

    Alone on a CPU, torch's own kernel is the fastest.
    """
    if fabric.world_size == 1 and fabric.device.type != "cuda":
        return
    for name, child in module.named_modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            child.__class__ = BatchNormBySums  # the same weights and running means, another forward
        elif fabric.world_size > 1 and isinstance(child, nn.modules.batchnorm._BatchNorm):
            raise UserError(f"processes: the batch norm {name} ({type(child).__name__}) cannot be shared")


class BatchNormBySums(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the batches of all processes.

    Sum and sum of squares need one pass over the images where a compiled `nn.BatchNorm2d` merges running
    variances (Welford), and one exchange where it would need two. They are taken around the running mean,
    so that their difference loses no digits.
    """

    def _check_input_dim(self, images: Tensor) -> None:
        del images

    def forward(self, images: Tensor) -> Tensor:
        """Normalise by mean and variance of the global batch while training."""
        if not self.training:
            return super().forward(images)
        assert self.running_mean is not None
        over = [0, *range(2, images.dim())]
        shape = [1, -1, *[1] * (images.dim() - 2)]
        centred = images.to(self.weight.dtype) - self.running_mean.view(shape)
        count, sums = _over_processes(
            images.numel() // images.shape[1], torch.stack([centred.sum(over), centred.square().sum(over)])
        )
        mean, square = sums / count
        variance = (square - mean.square()).clamp(min=0)
        scale = self.weight * (variance + self.eps).rsqrt()
        normal: Tensor = centred * scale.view(shape) + (self.bias - mean * scale).view(shape)
        self._move_running(mean.detach(), variance.detach() * count / (count - 1))
        return normal.to(images.dtype)

    def _move_running(self, moved: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.add_(moved, alpha=self.momentum)
        self.running_var.lerp_(variance, self.momentum)


def _over_processes(count: int, sums: Tensor) -> tuple[int, Tensor]:
    """Add up over the processes, if there are several."""
    if not torch.distributed.is_initialized():
        return count, sums
    return count * torch.distributed.get_world_size(), cast(Tensor, _SumOverProcesses.apply(sums))


class _SumOverProcesses(torch.autograd.Function):
    """A sum over the processes whose gradient is summed over them too."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        """Add up what every process holds."""
        del context
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        """Add up the gradients: every process used the sum."""
        del context
        total = gradient.clone()
        torch.distributed.all_reduce(total)
        return total
