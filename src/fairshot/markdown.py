"""Tables in Markdown, for the pages that studies and reports write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: its head, and one line per row."""
    return "\n".join([_line(head), "|---" * len(head) + "|", *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
