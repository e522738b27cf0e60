"""What tables in a terminal have in common: columns that stand close, and a heading in a line of its own."""

from __future__ import annotations

from rich.box import HORIZONTALS
from rich.table import Table
from rich.text import Text


def heading(text: str) -> Text:
    """Return a line to stand above a table; a title inside it would be broken where the table is narrow."""
    return Text(f"\n{text}", "bold")


def plain_table() -> Table:
    """Return an empty table whose columns stand close: 80 of a terminal hold nine sessions."""
    return Table(header_style="dim", box=HORIZONTALS, padding=0, show_edge=False)
