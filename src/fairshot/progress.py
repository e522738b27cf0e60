"""How long work says how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Reports some more units of work done, with a short note (loss, images/s)."""

    def __call__(self, units: int = 1, note: str = "") -> None: ...


class Reporter:
    """A listener that keeps silent; the command line has one that draws bars and one that keeps a log."""

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Follow a piece of work of `total` units, `done` of which were finished earlier."""

        def ignore(units: int = 1, note: str = "") -> None:
            del units, note

        del what, total, done
        yield ignore

    def say(self, text: str) -> None:
        """Pass on one line."""
        del text


SILENT = Reporter()
