"""What the command line shows of long work: bars on the terminal, lines in the log of a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

from fairshot.progress import Advance, LogReporter

CONSOLE = Console()  # what a command is asked for
MESSAGES = Console(stderr=True)  # what it says meanwhile: progress, notes, errors


def this_command() -> str:
    """Return the command as it was given."""
    return shlex.join(["fairshot", *sys.argv[1:]])


def new_bars() -> Progress:
    """Return an empty view of progress bars."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=MESSAGES,
    )


class ConsoleReporter(LogReporter):
    """Draws progress bars, in a view of its own or among others, and keeps the log of a run."""

    def __init__(self, title: str = "", log: Path | None = None, among: Progress | None = None) -> None:
        super().__init__(log)
        self.title = title
        self.among = among

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a bar; among others it goes when its work is done."""
        with super().track(what, total, done) as record, self._view() as bars:
            bar = bars.add_task(f"{self.title} {what}".strip(), total=total, completed=done, note="")

            def advance(units: int = 1, note: str = "") -> None:
                bars.update(bar, advance=units, note=note)
                record(units, note)

            try:
                yield advance
            finally:
                if self.among is not None:
                    bars.remove_task(bar)

    def say(self, text: str) -> None:
        """Print one line and log it."""
        MESSAGES.print(text, highlight=False, markup=False, soft_wrap=True)
        super().say(text)

    def _view(self) -> AbstractContextManager[Progress]:
        return new_bars() if self.among is None else nullcontext(self.among)
