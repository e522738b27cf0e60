"""How long work says how far it is, without knowing who listens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Advance(Protocol):
    """Reports some more units of work done, with a short note (loss, images/s)."""

    def __call__(self, units: int = 1, note: str = "") -> None: ...


class Reporter:
    """A listener that keeps silent; the command line has one that draws bars."""

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


class LogReporter(Reporter):
    """Appends what happened to the log of a run, if it has one.

    Lines wait until the folder of the log is there: what is refused before that leaves nothing behind.
    """

    def __init__(self, log: Path | None) -> None:
        self.log = log
        self.waiting: list[str] = []

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Write a line for each new note, and one at the end."""
        del total, done
        began, last = time.monotonic(), ""

        def advance(units: int = 1, note: str = "") -> None:
            nonlocal last
            del units
            if note and note != last:
                self.record(f"{what}: {note}")
                last = note

        yield advance
        self.record(f"{what}: done in {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """Log one line."""
        self.record(text)

    def record(self, text: str) -> None:
        """Write one line with the time."""
        if self.log is None:
            return
        self.waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.log.parent.is_dir():
            with self.log.open("a") as file:
                file.writelines(self.waiting)
            self.waiting.clear()
