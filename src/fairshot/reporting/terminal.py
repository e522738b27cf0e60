"""Tables in a terminal: runs side by side, sessions as columns, the best value starred; conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import HORIZONTALS
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # torch: seconds to import, and tables of other commands need none
    from fairshot.evaluation.result import Result
    from fairshot.reporting.groups import Group, Spread

LABELS, WIDEST_LABEL = "session", 24  # title of the column of labels, and its greatest width
LOADED = "†"  # beside seconds without a base session


def heading(text: str) -> Text:
    """Return a line for above a table; a title inside it would be broken where the table is narrow."""
    return Text(f"\n{text}", "bold")


def terminal_table() -> Table:
    """Return an empty table with little space between columns: 80 characters hold nine sessions."""
    return Table(header_style="dim", box=HORIZONTALS, padding=0, show_edge=False)


def side_by_side(results: Sequence[Result], width: int = 80) -> RenderableType:
    """Show the sessions and the summary of several runs, ranked as a report ranks them.

    Runs that differ only in their seed are averaged.
    """
    from fairshot.reporting.groups import by_benchmark, group_results, ranked

    parts: list[RenderableType] = []
    all_groups = ranked(group_results(results))
    for benchmark, groups in by_benchmark(all_groups).items():
        for sessions in _split_sessions(groups, width):
            parts += [heading(f"{benchmark}: accuracy after each session, in %"), _sessions(groups, sessions)]
        parts += [heading(f"{benchmark}: summary, accuracies in %"), _summary(groups)]
    if len(all_groups) > 1:
        parts.append(
            Text("* best; for the ratios that is the value closest to 1, which means balance", "dim")
        )
    if loaded := dict.fromkeys(name for group in all_groups for name in group.base_sessions_of):
        parts.append(Text(f"{LOADED} without the base session, loaded from {', '.join(loaded)}", "dim"))
    return Lines(*parts)


def conditions_table(results: Sequence[Result]) -> RenderableType:
    """Show under which conditions methods ran: in a line what all share, in a table where they differ."""
    from fairshot.reporting.conditions import conditions, known_titles
    from fairshot.reporting.groups import group_results, ranked

    known = [conditions(group) for group in ranked(group_results(results))]
    rows, titles = [one.values for one in known], known_titles(known)
    differing = [title for title in titles if len({row[title] for row in rows}) > 1]
    alike = "; ".join(f"{title}: {rows[0][title]}" for title in titles if title not in differing)
    parts: list[RenderableType] = [heading("conditions")]
    if alike:
        parts.append(Text(f"alike for all: {alike}" if len(rows) > 1 else alike))
    if differing:
        table = terminal_table()
        for title in differing:
            table.add_column(title.replace(" ", "\n"), overflow="fold")
        for cells in dict.fromkeys(tuple(row[title] for title in differing) for row in rows):
            table.add_row(*cells)
        parts.append(table)
    return Lines(*parts)


def _split_sessions(groups: Sequence[Group], width: int) -> list[range]:
    """Cut the sessions into as few tables as fit into the width, of about the same length."""
    from fairshot.reporting.measures import SESSION_MEASURES

    count = groups[0].session_count
    values = [
        group.session(t, one.pick) for group in groups for one in SESSION_MEASURES for t in range(count)
    ]
    widest = max(len(line) for value in values for line in _cell(value, False, 1).plain.splitlines())
    label = min(WIDEST_LABEL, max(len(name) for name in (LABELS, *(group.label for group in groups))))
    room = width - label - max(len(one.title) for one in SESSION_MEASURES) - 1
    tables = math.ceil(count / max(1, room // (1 + widest)))
    each = math.ceil(count / tables)
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


def _sessions(groups: Sequence[Group], sessions: range) -> Table:
    from fairshot.reporting.groups import means
    from fairshot.reporting.measures import SESSION_MEASURES, best

    table = terminal_table()
    table.add_column("", style="bold", no_wrap=True)
    table.add_column(LABELS, overflow="fold", max_width=WIDEST_LABEL)
    for t in sessions:
        table.add_column(str(t), justify="right", no_wrap=True)
    for measure in SESSION_MEASURES:
        values = [[group.session(t, measure.pick) for t in sessions] for group in groups]
        if all(value is None for row in values for value in row):
            continue
        winners = [best(means(column), measure.goal, digits=1) for column in zip(*values, strict=True)]
        for index, group in enumerate(groups):
            cells = [_cell(value, index in winners[i], 1) for i, value in enumerate(values[index])]
            title = measure.title if index == 0 else ""
            table.add_row(title, group.label, *cells, end_section=0 < index == len(groups) - 1)
    return table


def _summary(groups: Sequence[Group]) -> Table:
    from fairshot.reporting.tables import summary_table

    summary = summary_table(groups)
    table = terminal_table()
    table.add_column("", overflow="fold", max_width=WIDEST_LABEL)
    for title in (*(column.title.removesuffix(" (%)") for column in summary.columns), "Seconds"):
        table.add_column(title.replace(" ", "\n"), justify="right", no_wrap=True)
    for index, (row, group) in enumerate(zip(summary.rows, groups, strict=True)):
        cells = [_cell(value, index in summary.winners[i], 2) for i, value in enumerate(row.values)]
        label = Text(group.label)
        if row.seeds > 1:
            label.append(f"\n{row.seeds} seeds", "dim")
        mark = LOADED if group.base_sessions_of else " "
        table.add_row(label, *cells, _cell(group.total_seconds, False, 0, mark))
    return table


def _cell(value: Spread | None, is_best: bool, digits: int, mark: str = " ") -> Text:
    """Write a mean, its deviation below it; a trailing star or mark, so that the points stay aligned."""
    if value is None:
        return Text("– ", "dim")
    mean = f"{value.mean:.{digits}f}" if math.isfinite(value.mean) else "inf"
    cell = Text(mean + ("*" if is_best else mark), "bold green" if is_best else "")
    if value.deviation is not None:
        cell.append(f"\n±{value.deviation:.{digits}f} ", "dim not bold")
    return cell
