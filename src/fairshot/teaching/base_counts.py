"""What is read of the classifier file of a store without torch: how many images its base classes have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fairshot.teaching.errors import StoreDamaged

CLASSIFIER = "classifier.safetensors"
HEADER, CHECKSUM = "fairshot", "sha256"  # keys of our JSON, and of the checksum, in the header of a file
Values = tuple[str, str, tuple[int, ...], Any]  # name, type as torch writes it, shape and buffer of a tensor


def read_counts(path: Path) -> list[int]:
    """Return the number of training images of each base class, of a file that is as it was written."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        values = [(name, f"torch.{each.dtype}", each.shape, each.data) for name, each in arrays.items()]
        if checksum_of_values(values, metadata[HEADER]) != metadata[CHECKSUM]:
            raise StoreDamaged(path, "its checksum is another")
        return [int(count) for count in arrays["counts"]]
    except (SafetensorError, KeyError, OSError, TypeError) as problem:
        raise StoreDamaged(path, f"its counts cannot be read: {problem}") from None


def checksum_of_values(tensors: Iterable[Values], description: str) -> str:
    """Return a SHA-256 over a description and over the names, types, shapes and values of tensors."""
    state = hashlib.sha256(description.encode())
    for name, kind, shape, buffer in sorted(tensors, key=lambda each: each[0]):
        state.update(f"{name} {kind} {tuple(shape)}".encode())
        state.update(buffer)
    return state.hexdigest()
