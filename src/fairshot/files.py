"""Atomic writes: a file has its old or its new content, whatever interrupts the write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PARTIAL = ".partial"  # suffix of files that are being written


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers, also after a crash, see its old or its new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_partial(folder: Path) -> None:
    """Remove files that killed processes left half-written; only if no other process writes to the folder."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)
