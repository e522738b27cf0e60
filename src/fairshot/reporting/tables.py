"""Runs side by side in a terminal: sessions as columns, one block a measure, the best value starred."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fairshot.evaluation.result import Result
from fairshot.reporting.groups import Group, Spread, by_benchmark, group_results, means
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES, SessionMeasure, best
from fairshot.reporting.terminal import heading, plain_table

LABELS, WIDEST_LABEL = "session", 24  # title of the column of labels, and their room


def side_by_side(results: Sequence[Result], width: int = 80) -> RenderableType:
    """Show the sessions and the summary of several runs; runs that differ only in their seed are averaged."""
    parts: list[RenderableType] = []
    for benchmark, groups in by_benchmark(group_results(results)).items():
        for sessions in _split_sessions(groups, width):
            parts += [heading(f"{benchmark}: accuracy after each session, in %"), _sessions(groups, sessions)]
        parts += [heading(f"{benchmark}: summary, accuracies in %"), _summary(groups)]
    if len(group_results(results)) > 1:
        parts.append(
            Text("* best; for the ratios that is the value closest to 1, which means balance", "dim")
        )
    return Lines(*parts)


def _split_sessions(groups: Sequence[Group], width: int) -> list[range]:
    """Cut the sessions into as few tables as fit into the width, of about the same length."""
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
    table = plain_table()
    table.add_column("", style="bold", no_wrap=True)
    table.add_column(LABELS, overflow="fold", max_width=WIDEST_LABEL)
    for t in sessions:
        table.add_column(str(t), justify="right", no_wrap=True)
    for measure in SESSION_MEASURES:
        _add_measure(table, measure, groups, sessions)
    return table


def _add_measure(table: Table, measure: SessionMeasure, groups: Sequence[Group], sessions: range) -> None:
    values = [[group.session(t, measure.pick) for t in sessions] for group in groups]
    if all(value is None for row in values for value in row):
        return
    winners = [best(means(column), measure.goal, digits=1) for column in zip(*values, strict=True)]
    for place, group in enumerate(groups):
        cells = [_cell(value, place in winners[i], 1) for i, value in enumerate(values[place])]
        title = measure.title if place == 0 else ""
        table.add_row(title, group.label, *cells, end_section=0 < place == len(groups) - 1)


def _summary(groups: Sequence[Group]) -> Table:
    table = plain_table()
    table.add_column("", overflow="fold", max_width=WIDEST_LABEL)
    for title in (*(measure.title for measure in SUMMARY_MEASURES), "Seconds"):
        table.add_column(title.replace(" ", "\n"), justify="right", no_wrap=True)
    columns = [[group.summary(measure.pick) for group in groups] for measure in SUMMARY_MEASURES]
    winners = [
        best(means(column), measure.goal) for measure, column in zip(SUMMARY_MEASURES, columns, strict=True)
    ]
    for place, group in enumerate(groups):
        cells = [_cell(column[place], place in winners[i], 2) for i, column in enumerate(columns)]
        seeds = Text(group.label)
        if len(group.results) > 1:
            seeds.append(f"\n{len(group.results)} seeds", "dim")
        table.add_row(seeds, *cells, _cell(group.seconds, False, 0))
    return table


def _cell(value: Spread | None, is_best: bool, digits: int) -> Text:
    """Write a mean, its deviation below it; a trailing star or blank, so that the points stay aligned."""
    if value is None:
        return Text("– ", "dim")
    mean = f"{value.mean:.{digits}f}" if math.isfinite(value.mean) else "inf"
    cell = Text(mean + ("*" if is_best else " "), "bold green" if is_best else "")
    if value.deviation is not None:
        cell.append(f"\n±{value.deviation:.{digits}f} ", "dim not bold")
    return cell
