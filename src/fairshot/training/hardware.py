"""Device, precision and processes, through Lightning Fabric."""

from __future__ import annotations

import os
import platform

import torch
from lightning_fabric import Fabric

from fairshot.errors import UserError


def choose_hardware(device: str = "auto", processes: int = 1) -> Fabric:
    """Return a Fabric for a device: bf16 on a GPU, float32 on a CPU (bf16 there is slow or unsupported)."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise UserError(f"device: {device!r} was given; expected auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda was asked for, but torch finds no GPU here; use --device cpu")
    return Fabric(
        accelerator=device,
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        precision="bf16-mixed" if device == "cuda" else "32-true",
    )


def describe_device(fabric: Fabric) -> str:
    """Name the processor a run used."""
    if fabric.device.type == "cuda":
        return torch.cuda.get_device_name(fabric.device)
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
