"""Device, precision and processes, through Lightning Fabric."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import platformdirs
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairshot.errors import BadSetting, NoGPU

if TYPE_CHECKING:
    from lightning_fabric import Fabric

COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"  # where torch keeps what it has compiled


def choose_hardware(device: str = "auto", processes: int = 1, machines: int = 1) -> Fabric:
    """Return a Fabric for a device: bf16 on a GPU, float32 on a CPU (bf16 there is slow or unsupported)."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise BadSetting("device", device, "expected auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise NoGPU
    if device == "cuda" and processes > torch.cuda.device_count():
        raise BadSetting("processes", processes, f"there are {torch.cuda.device_count()} GPUs here")
    from lightning_fabric import Fabric  # takes seconds to import, which only a training needs

    fabric = Fabric(
        accelerator=device,
        devices=processes,
        num_nodes=machines,
        strategy="ddp" if processes * machines > 1 else "auto",
        precision="bf16-mixed" if device == "cuda" else "32-true",
    )
    fabric.launch()
    return fabric


def keep_compiled() -> None:
    """Keep what is compiled in the platform's cache folder, where a later run of the same shapes finds it.

    torch names what it keeps by device, shapes, code and settings; its own version is in the path. A folder
    that the environment names already is left as it is.
    """
    kept = platformdirs.user_cache_path("fairshot") / "compiled" / f"torch-{torch.__version__}"
    os.environ.setdefault(COMPILE_CACHE, str(kept))


@contextmanager
def compiled_in(folder: Path) -> Iterator[None]:
    """Keep what is compiled in another folder for a while."""
    before = os.environ.get(COMPILE_CACHE)
    os.environ[COMPILE_CACHE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(COMPILE_CACHE)
        if before is not None:
            os.environ[COMPILE_CACHE] = before


@contextmanager
def timed_convolutions() -> Iterator[None]:
    """Let cuDNN time its kernels for every new shape and keep the fastest: a training has few shapes."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def own_random_numbers(device: torch.device) -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def describe_device(fabric: Fabric) -> str:
    """Return the name of the processor that a run uses."""
    if fabric.device.type == "cuda":
        return torch.cuda.get_device_name(fabric.device)
    name = platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name} CPU, {os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)}"


def synchronise(fabric: Fabric) -> None:
    """Wait until the device has finished all work that was queued."""
    if fabric.device.type == "cuda":
        torch.cuda.synchronize(fabric.device)


def share_batch_norms(module: nn.Module, fabric: Fabric) -> None:
    """Make batch norms see the global batch when several processes share it; in place."""
    if fabric.world_size == 1:
        return
    shared = nn.SyncBatchNorm if fabric.device.type == "cuda" else SharedBatchNorm
    for name, child in module.named_modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            child.__class__ = shared  # the same weights and running means, another `forward`
            child.process_group = None  # which SyncBatchNorm reads: all processes
        elif isinstance(child, nn.modules.batchnorm._BatchNorm) and type(child) is not shared:
            raise BadSetting(
                "processes",
                fabric.world_size,
                f"the batch norm {name} ({type(child).__name__}) cannot be shared; use one",
            )


def rank_and_processes() -> tuple[int, int]:
    """Return which process this is, and how many there are."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def from_all_processes(values: Tensor) -> Tensor:
    """Concatenate the values of all processes, without gradient."""
    _, processes = rank_and_processes()
    if processes == 1:
        return values.detach()
    gathered = values.new_empty(processes * len(values), *values.shape[1:])
    torch.distributed.all_gather_into_tensor(gathered, values.detach().contiguous())
    return gathered


def gather_with_grad(features: Tensor) -> Tensor:
    """Concatenate the features (N, d) of all processes, with gradient.

    A loss of all features has the same value in every process and, after the gradients are averaged, the same
    gradient as in a single process.
    """
    rank, processes = rank_and_processes()
    if processes == 1:
        return features
    before, after = rank * len(features), (processes - 1 - rank) * len(features)
    return _over_processes(pad(features, (0, 0, before, after)))


def rank_slice(values: Tensor) -> Tensor:
    """Return the rows of a global batch that this process works on."""
    rank, processes = rank_and_processes()
    return values.chunk(processes)[rank]


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the batches of all processes on CPUs, where torch's SyncBatchNorm does not work."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def _check_input_dim(self, images: Tensor) -> None:
        del images

    def forward(self, images: Tensor) -> Tensor:
        """Normalise by mean and variance of the global batch while training."""
        if not self.training:
            return super().forward(images)
        over = [0, *range(2, images.dim())]
        shape = [1, -1, *[1] * (images.dim() - 2)]
        count = images.numel() // images.shape[1] * torch.distributed.get_world_size()
        mean = _over_processes(images.sum(over)) / count
        centred = images - mean.view(shape)
        variance = _over_processes(centred.square().sum(over)) / count
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.detach(), self.momentum)
        self.running_var.lerp_(variance.detach() * count / (count - 1), self.momentum)
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape)


class _SumOverProcesses(torch.autograd.Function):
    """A sum over the processes. Every process uses the sum, so its gradient is summed over them too."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        del context
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _SumOverProcesses.forward(context, gradient)


def _over_processes(values: Tensor) -> Tensor:
    return cast(Tensor, _SumOverProcesses.apply(values))
