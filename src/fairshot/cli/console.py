"""What the command line prints: lines, tables, and of long work bars, or a line now and then."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
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

from fairshot.cli.advice import with_advice
from fairshot.progress import Advance, LogReporter, Notice
from fairshot.reporting.terminal import heading, terminal_table

CONSOLE = Console()  # what a command is asked for
MESSAGES = Console(stderr=True)  # what it says meanwhile: progress, notes, errors
# Characters that steer a terminal or reverse text are shown instead: names that strangers gave may hold them.
STEERING = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
SHOWN = {code: ascii(chr(code))[1:-1] for code in STEERING}
SECONDS_BETWEEN_LINES = 30  # of progress, where there is no terminal to draw bars on


def this_command() -> str:
    """Return the command as it was given."""
    return shlex.join(["fairshot", *sys.argv[1:]])


def say(text: str) -> None:
    """Print one line of what the command was asked for, as it is; the terminal breaks it."""
    CONSOLE.print(text.translate(SHOWN), highlight=False, markup=False, soft_wrap=True)


def print_message(text: str, style: str | None = None) -> None:
    """Print one line that is not what the command was asked for."""
    MESSAGES.print(text.translate(SHOWN), highlight=False, markup=False, soft_wrap=True, style=style)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print names on the left, broken between words where they are long, and numbers, never broken."""
    table = terminal_table()
    for index, column in enumerate(columns):
        number = index > 0
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(heading(title), table)


def _new_bars() -> Progress:
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
    """Shows progress, with bars in a view of its own or among others, and keeps the log of a run."""

    def __init__(self, title: str = "", log: Path | None = None, bars: Progress | None = None) -> None:
        super().__init__(log)
        self.title = title
        self.bars = bars  # those under way: a terminal shows one view of them at a time

    @contextmanager
    def track(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show how far the work is, and log it."""
        title = f"{self.title} {what}".strip()
        shown = self._bar(title, total, done) if MESSAGES.is_terminal else _lines(title, total, done)
        with super().track(what, total, done) as record, shown as show:

            def advance(units: int = 1, note: str = "") -> None:
                show(units, note)
                record(units, note)

            yield advance

    def say(self, text: str | Notice) -> None:
        """Print one line and log it, with the option that helps if there is one."""
        line = with_advice(text)
        print_message(line)
        super().say(line)

    def of_run(self, title: str, log: Path) -> ConsoleReporter:
        """Return the reporter of one of several runs, whose bars are shown below those of this one."""
        return ConsoleReporter(title, log, self.bars)

    @contextmanager
    def _bar(self, title: str, total: int, done: int) -> Iterator[Advance]:
        """Draw a bar; among others it goes when its work is done."""
        outer = self.bars
        with _new_bars() if outer is None else nullcontext(outer) as bars:
            self.bars = bars
            bar = bars.add_task(title, total=total, completed=done, note="")

            def advance(units: int = 1, note: str = "") -> None:
                bars.update(bar, advance=units, note=note)

            try:
                yield advance
            finally:
                self.bars = outer
                if outer is not None:
                    bars.remove_task(bar)


@contextmanager
def _lines(title: str, total: int, done: int) -> Iterator[Advance]:
    """Print a line now and then, and one at the end."""
    began = printed = time.monotonic()
    before = done

    def advance(units: int = 1, note: str = "") -> None:
        nonlocal done, printed
        done += units
        now = time.monotonic()
        if now - printed >= SECONDS_BETWEEN_LINES and before < done < total:
            left = timedelta(seconds=round((now - began) / (done - before) * (total - done)))
            print_message(f"{title}: {done:,} of {total:,}, about {left} left  {note}".rstrip())
            printed = now

    yield advance
    print_message(f"{title}: done in {time.monotonic() - began:.1f} s")
