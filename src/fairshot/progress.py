"""Reporters: long work reports its progress to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairshot.errors import UserError


class Advance(Protocol):
    """Reports that more units of work are done, with a short note (loss, images/s)."""

    def __call__(self, units: int = 1, note: str = "") -> None: ...


class Notice:
    """Something to say for which a listener may know a remedy; a subclass keeps what it is about."""


@dataclass(frozen=True)
class RunFinished(Notice):
    """A run was finished by an earlier call."""

    folder: Path
    trial: bool = False  # whether it is part of a study, and not run by itself

    def __str__(self) -> str:
        return f"{self.folder} is finished already"


@dataclass(frozen=True)
class RunRefused(Notice):
    """One of several runs cannot be run."""

    title: str
    problem: UserError

    def __str__(self) -> str:
        return f"{self.title}: {self.problem}"


@dataclass(frozen=True)
class SlowTraining(Notice):
    """A network that was meant for a GPU is trained without one."""

    backbone: str
    size: int  # pixels per side
    photos: Path | None = None  # the folder of own pictures, if it is trained on those

    def __str__(self) -> str:
        return f"{self.backbone} at {self.size} pixels is very slow to train on a CPU"


class Reporter:
    """A reporter that ignores everything; the command line has one that shows progress bars."""

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Follow work of `total` units, of which `done` were done earlier."""

        def ignore(units: int = 1, note: str = "") -> None:
            del units, note

        del what, total, done
        yield ignore

    def say(self, text: str | Notice) -> None:
        """Report one line of text."""
        del text

    def of_run(self, title: str, log: Path) -> Reporter:
        """Return the reporter of one of several runs, which keeps the log of that run."""
        del title
        return LogReporter(log)


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

    def say(self, text: str | Notice) -> None:
        """Log one line."""
        self.record(str(text))

    def record(self, text: str) -> None:
        """Write one line with the time."""
        if self.log is None:
            return
        self.waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.log.parent.is_dir():
            with self.log.open("a") as file:
                file.writelines(self.waiting)
            self.waiting.clear()
