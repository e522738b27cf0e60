"""Device, precision and processes, through Lightning Fabric."""

from __future__ import annotations

import os
import platform

import torch
from lightning_fabric import Fabric
from torch import Tensor

from fairshot.errors import UserError


def choose_hardware(device: str = "auto", processes: int = 1, machines: int = 1) -> Fabric:
    """Return a Fabric for a device: bf16 on a GPU, float32 on a CPU (bf16 there is slow or unsupported)."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise UserError(f"device: {device!r} was given; expected auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda was asked for, but torch finds no GPU here; use --device cpu")
    if device == "cuda" and processes > torch.cuda.device_count():
        raise UserError(
            f"processes: {processes} asked for, but there are {torch.cuda.device_count()} GPUs here"
        )
    fabric = Fabric(
        accelerator=device,
        devices=processes,
        num_nodes=machines,
        strategy="ddp" if processes * machines > 1 else "auto",
        precision="bf16-mixed" if device == "cuda" else "32-true",
    )
    fabric.launch()
    return fabric


def describe_device(fabric: Fabric) -> str:
    """Name the processor a run used."""
    if fabric.device.type == "cuda":
        return torch.cuda.get_device_name(fabric.device)
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def synchronise(fabric: Fabric) -> None:
    """Wait until the device has done what it was given."""
    if fabric.device.type == "cuda":
        torch.cuda.synchronize(fabric.device)


def from_all_processes(values: Tensor) -> Tensor:
    """Put together what every process holds, without gradient; alone, a process has all there is."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return values.detach()
    processes = torch.distributed.get_world_size()
    gathered = values.new_empty(processes * len(values), *values.shape[1:])
    torch.distributed.all_gather_into_tensor(gathered, values.detach().contiguous())
    return gathered
