"""Writes that are whole or absent, whatever interrupts them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PARTIAL = ".partial"  # ends the name of a file that is being written


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, meets the old content or the new, never a part."""
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
    """Remove what killed processes left half-written in a folder; only where no other process writes."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)
