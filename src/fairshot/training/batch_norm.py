"""Batch norm from two sums a channel: one pass on a GPU, one exchange between processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from fairshot.errors import UserError


def sum_batch_norms(module: nn.Module, fabric: Fabric) -> list[BatchNormBySums]:
    """Make batch norms work by sums on a GPU, and where several processes share a batch; in place.

    Alone on a CPU, torch's own kernel is the fastest. Returns those that work by sums, also the ones that
    did so already in an earlier phase of a training.
    """
    if fabric.world_size == 1 and fabric.device.type != "cuda":
        return []
    for name, child in module.named_modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            by_sums(cast(nn.modules.batchnorm._BatchNorm, child))
        elif isinstance(child, BatchNormBySums):
            continue
        elif fabric.world_size > 1 and isinstance(child, nn.modules.batchnorm._BatchNorm):
            raise UserError(f"processes: the batch norm {name} ({type(child).__name__}) cannot be shared")
    return [child for child in module.modules() if isinstance(child, BatchNormBySums)]


def by_sums(norm: nn.modules.batchnorm._BatchNorm) -> BatchNormBySums:
    """Give a batch norm another forward; weights and running means stay the same."""
    assert norm.running_mean is not None
    norm.__class__ = BatchNormBySums
    norm.register_buffer("centre", norm.running_mean.clone(), persistent=False)
    return cast(BatchNormBySums, norm)


@torch.no_grad()
def recentre(norms: Sequence[BatchNormBySums]) -> None:
    """Follow the running means, between steps."""
    if norms:
        means = [cast(Tensor, norm.running_mean) for norm in norms]
        torch._foreach_copy_([norm.centre for norm in norms], means)


class BatchNormBySums(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the batches of all processes.

    Sum and sum of squares need one pass over the images where a compiled `nn.BatchNorm2d` merges running
    variances (Welford), and one exchange where it would need two. They are taken around a centre near the
    mean, so that their difference loses no digits. The centre is not the running mean itself: that moves
    in the forward pass, and a compiled backward pass, which centres the images once more, would see it
    moved.
    """

    centre: Tensor

    def _check_input_dim(self, images: Tensor) -> None:
        del images

    def forward(self, images: Tensor) -> Tensor:
        """Normalise by mean and variance of the global batch while training."""
        if not self.training:
            return super().forward(images)
        over = [0, *range(2, images.dim())]
        shape = [1, -1, *[1] * (images.dim() - 2)]
        centred = images.to(self.weight.dtype) - self.centre.view(shape)
        count, sums = _over_processes(
            images.numel() // images.shape[1], torch.stack([centred.sum(over), centred.square().sum(over)])
        )
        mean, square = sums / count
        variance = (square - mean.square()).clamp(min=0)
        scale = self.weight * (variance + self.eps).rsqrt()
        normal: Tensor = centred * scale.view(shape) + (self.bias - mean * scale).view(shape)
        self._move_running(self.centre + mean.detach(), variance.detach() * count / (count - 1))
        return normal.to(images.dtype)

    def _move_running(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
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
