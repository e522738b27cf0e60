"""Atomic writes: a file has its old or its new content, whatever interrupts the write."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fairshot.errors import CannotWrite

PARTIAL = ".partial"  # suffix of files that are being written
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into one that says what could not be written."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise CannotWrite(path, reason, problem.errno in DISK_FULL) from problem


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers, also after a crash, see its old or its new content, never a part."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                with suppress(OSError):  # not every file system knows locks
                    _lock(file)  # until it is closed: `remove_partial` leaves it alone
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(temporary, 0o644)
                os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def remove_partial(folder: Path) -> None:
    """Remove files that killed processes left half-written; not those that a process is writing."""
    for path in folder.glob(f".*{PARTIAL}"):
        try:
            with path.open("rb") as file:
                _lock(file)
                path.unlink(missing_ok=True)
        except OSError:  # it is being written, or has just been renamed or removed
            continue


def _lock(file: IO[bytes]) -> None:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
