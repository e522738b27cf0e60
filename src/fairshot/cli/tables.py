"""Tables of numbers on a terminal, whose 80 columns hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairshot.cli.console import CONSOLE
from fairshot.reporting.terminal import heading, terminal_table


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print names on the left, broken between words where they are long, and numbers, never broken."""
    table = terminal_table()
    for index, column in enumerate(columns):
        number = index > 0
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(heading(title), table)
