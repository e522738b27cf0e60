"""One report from one or several runs: a page to read, figures and tables for a paper."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.ablations import ablation_tables
from fairshot.reporting.export import write_table
from fairshot.reporting.figures import accuracy, classes
from fairshot.reporting.figures.sections import SECTIONS
from fairshot.reporting.figures.style import method_id
from fairshot.reporting.figures.writer import Draw, FigureInput, FigureWriter, ReportFigure
from fairshot.reporting.groups import Group, by_benchmark, group_results, in_main_order, ranked, task_of
from fairshot.reporting.report_page import render_page
from fairshot.reporting.runs import Run, find_collections, find_runs, read_run, without_repeats
from fairshot.reporting.table import Table
from fairshot.reporting.tables import (
    comparison_tables,
    diagnosis_table,
    gate_table,
    orders_table,
    significance_table,
    summary_table,
)
from fairshot.studies.published import PublishedRow, published

PAGE = "report.html"
MOST_UNFOLDED = 4  # methods that a page shows one by one without being asked


@dataclass(frozen=True)
class BenchmarkSection:
    """What the page shows of the runs on one benchmark."""

    name: str
    groups: list[Group]
    runs: list[Run]
    shuffled: list[Run]  # in further class orders, which only one table shows
    overview: list[Table]
    tables: list[Table]
    table_files: dict[str, list[str]]  # by the key of a table
    figures: dict[str, list[ReportFigure]]  # by the key of a section
    confusion_files: tuple[str, ...]
    published: list[PublishedRow]

    @property
    def method_ids(self) -> dict[str, str]:
        """The id of each method on the page, by its label."""
        return {group.label: method_id(index) for index, group in enumerate(self.groups)}

    @property
    def title(self) -> str:
        """Its name for readers: that of a dataset as its authors write it."""
        first = self.groups[0]
        return self.name.replace(first.benchmark, first.benchmark_title, 1)

    @property
    def has_namesake(self) -> bool:
        """Whether another section shows the pictures of another folder of the same name."""
        return self.name.startswith(f"{self.groups[0].benchmark} #")

    @property
    def comparable(self) -> bool:
        """Whether all rows of the tables beside published rows can be compared with these."""
        return all(row.comparable for table in self.tables for row in table.rows)

    @property
    def folded(self) -> bool:
        """Whether the page folds up what it shows of each method, so that the comparison stays visible."""
        return len(self.groups) > MOST_UNFOLDED

    @property
    def means(self) -> str:
        """What the numbers are means over, in a short sentence; empty if each is of a single seed."""
        of_groups = {tuple(result.seed for result in group.results) for group in self.groups}
        if all(len(seeds) == 1 for seeds in of_groups):
            return ""
        if len(of_groups) == 1:
            return f"Mean of seeds {', '.join(map(str, *of_groups))}."
        return "Numbers of several seeds are their mean."

    @property
    def missing(self) -> list[str]:
        """What the runs do not hold, runs with the same lack together."""
        lacking: dict[str, list[str]] = {}
        for run in self.runs:
            for text in run.missing:
                lacking.setdefault(text, []).append(run.name)
        everyone = len(self.runs)
        return [
            f"{f'all {everyone} runs' if len(names) == everyone > 1 else ', '.join(names)}: {text}"
            for text, names in lacking.items()
        ]

    def group_of(self, run: Run) -> Group | None:
        """Return the group that a run belongs to; none for a run in a further class order."""
        return next((group for group in self.groups if group.holds(run.result)), None)


def write_report(
    paths: Sequence[str | Path], out: Path | None = None, command: str = "", reporter: Reporter = SILENT
) -> Path:
    """Write the report of all runs found at the paths; return the page.

    Without `out` it goes to a folder `report` beside the runs, or into the run if there is but one. Folders
    below the paths that hold further runs are named, with the command that reports them.
    """
    given = [Path(path) for path in paths]
    folders = find_runs(given)
    out = out or Path(os.path.commonpath([folder.absolute() for folder in folders])) / "report"
    runs, comparable = _read(folders)
    benchmarks = []
    for number, (name, groups) in enumerate(comparable.items(), 1):
        writer = FigureWriter(out, f"{number}-" if len(comparable) > 1 else "")
        benchmarks.append(write_benchmark(name, groups, runs, writer, reporter))
    further = {
        shlex.join(["fairshot", "report", str(folder)]): count
        for folder, count in find_collections(given).items()
    }
    write_atomically(out / PAGE, render_page(benchmarks, runs, command, further).encode())
    for line, count in further.items():
        reporter.say(
            f"not in this report: {f'{count} runs; to see them' if count > 1 else '1 run; to see it'}: {line}"
        )
    return out / PAGE


def write_benchmark(
    name: str, groups: list[Group], runs: Sequence[Run], writer: FigureWriter, reporter: Reporter = SILENT
) -> BenchmarkSection:
    """Write all figures and tables that the runs on one benchmark allow."""
    alike = _alike(groups, runs)
    own = [run for run in alike if any(group.holds(run.result) for group in groups)]
    rows = published().on(groups[0].official, groups[0].session_count)
    overview, tables = _tables(groups, alike)
    files = {t.key: write_table(t, writer.out / "tables", writer.prefix) for t in (*overview, *tables)}
    return BenchmarkSection(
        name,
        groups,
        runs=own,
        shuffled=[run for run in alike if not any(run is one for one in own)],
        overview=overview,
        tables=tables,
        table_files={key: [f"tables/{path.name}" for path in paths] for key, paths in files.items()},
        figures=_draw(FigureInput(groups, own, rows, reporter), writer),
        confusion_files=writer.write("confusion", classes.confusion(groups)).files,
        published=rows,
    )


def report_tables(paths: Sequence[str | Path]) -> dict[str, list[Table]]:
    """Return the tables of the report of all runs found at the paths, by benchmark; nothing is written."""
    runs, comparable = _read(find_runs([Path(path) for path in paths]))
    found = {}
    for name, groups in comparable.items():
        overview, tables = _tables(groups, _alike(groups, runs))
        found[name] = [*overview, *tables]
    return found


def _read(folders: Sequence[Path]) -> tuple[list[Run], dict[str, list[Group]]]:
    """Return runs, each once, and groups of those that are finished, by benchmark."""
    runs = without_repeats([read_run(folder) for folder in folders])
    results = [run.result for run in runs if run.result is not None]
    return runs, by_benchmark(ranked(group_results(in_main_order(results))))


def _alike(groups: list[Group], runs: Sequence[Run]) -> list[Run]:
    """Return the runs on the same images and sessions, in whatever order the classes came."""
    task = task_of(groups[0].results[0])
    return [run for run in runs if run.result is not None and task_of(run.result) == task]


def _tables(groups: list[Group], alike: Sequence[Run]) -> tuple[list[Table], list[Table]]:
    """Return the tables of an overview and the others."""
    rows = published().on(groups[0].official, groups[0].session_count)
    results = [run.result for run in alike if run.result]
    gated = {id(run.result): run.trade_offs for run in alike if run.trade_offs}
    further = [significance_table(groups, results), gate_table(groups, gated)]
    overview = [summary_table(groups), diagnosis_table(groups), *(t for t in further if t is not None)]
    tables = [*comparison_tables(groups, rows), *ablation_tables(groups, published())]
    if (orders := orders_table(results, groups)) is not None:
        tables.append(orders)
    return overview, tables


def _draw(given: FigureInput, writer: FigureWriter) -> dict[str, list[ReportFigure]]:
    """Draw the figures of all sections; those that show their own progress come last."""
    quick: dict[str, Draw] = {"accuracy": accuracy.per_method, "comparison": accuracy.comparison}
    quick |= {section.key: section.draw for section in SECTIONS if not section.own_progress}
    figures = {}
    with given.reporter.track("figures", len(quick)) as advance:
        for key, draw in quick.items():
            figures[key] = draw(given, writer)
            advance(1, key)
    return figures | {one.key: one.draw(given, writer) for one in SECTIONS if one.own_progress}
