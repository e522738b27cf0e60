"""Captures: pictures that a source gives, one after another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple, Protocol

from fairshot.benchmarks.pictures import Bytes


class Version(NamedTuple):
    """What tells a file from what it was before."""

    size: int
    changed: int  # nanoseconds since 1970

    @classmethod
    def of(cls, status: os.stat_result) -> Version:
        """Return the version of a file by its status."""
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Capture:
    """A picture of a source, or the reason why it cannot be read."""

    image: str  # the file, relative to the folder watched; or which frame of a stream
    id: str  # the same for the same file in the same version, so that a receiver can tell a repetition
    picture: Bytes | None  # prepared for the embedder of a store
    problem: str = ""
    path: Path | None = None  # of a file
    version: Version | None = None


Prepare = Callable[[Bytes], Bytes]  # from RGB (H, W, 3) to what the embedder of a store takes


def as_it_is(picture: Bytes) -> Bytes:
    """Return a picture unchanged."""
    return picture


Captures = Generator[list[Capture], None, None]


class Source(Protocol):
    """Where pictures come from."""

    @property
    def name(self) -> str:
        """What it is called, without passwords."""
        ...

    def batches(self, stop: Event) -> Captures:
        """Give pictures as they come, until there can be no more or it is told to stop.

        A batch that was taken is answered for before the next one is asked for.
        """
        ...


def as_text(name: str) -> str:
    """Return the name of a file as text that can be printed and kept, whatever bytes it is made of."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def identity(*parts: object) -> str:
    """Return a short text that is the same for the same values."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]
