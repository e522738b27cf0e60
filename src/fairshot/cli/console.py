"""What the command line shows of long work: bars on the terminal, lines in the log of a run."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fairshot.progress import Advance, Reporter

CONSOLE = Console()  # what a command is asked for
MESSAGES = Console(stderr=True)  # what it says meanwhile: progress, notes, errors


def this_command() -> str:
    """Return the command as it was given."""
    return shlex.join(["fairshot", *sys.argv[1:]])


class ConsoleReporter(Reporter):
    """Draws progress bars and, if given a log, appends what happened to it.

    Lines wait until the folder of the log is there: what is refused before that leaves nothing behind.
    """

    def __init__(self, title: str = "", log: Path | None = None) -> None:
        self.title = title
        self.log = log
        self.waiting: list[str] = []

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a bar; each new note also becomes a line of the log."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        began, last = time.monotonic(), ""
        with Progress(*columns, console=MESSAGES) as bars:
            bar = bars.add_task(f"{self.title} {what}".strip(), total=total, completed=done, note="")

            def advance(units: int = 1, note: str = "") -> None:
                nonlocal last
                bars.update(bar, advance=units, note=note)
                if note and note != last:
                    self._record(f"{what}: {note}")
                    last = note

            yield advance
        self._record(f"{what}: done in {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """Print one line and log it."""
        MESSAGES.print(text, highlight=False, markup=False, soft_wrap=True)
        self._record(text)

    def _record(self, text: str) -> None:
        if self.log is None:
            return
        self.waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.log.parent.is_dir():
            with self.log.open("a") as file:
                file.writelines(self.waiting)
            self.waiting.clear()
