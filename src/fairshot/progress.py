"""Reporters: long work reports its progress to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Advance(Protocol):
    """Reports that more units of work are done, with a short note (loss, images/s)."""

    def __call__(self, units: int = 1, note: str = "") -> None: ...


class Reporter:
    """A reporter that ignores everything; the command line has one that shows progress bars."""

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Follow work of `total` units, of which `done` were done earlier."""

        def ignore(units: int = 1, note: str = "") -> None:
            del units, note

        del what, total, done
        yield ignore

    def say(self, text: str) -> None:
        """Report one line of text."""
        del text


SILENT = Reporter()


class LogReporter(Reporter):
    """Appends lines to a log file, if there is one.

    Lines are kept back until the folder of the log exists, so that a refused run leaves nothing behind.
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
