"""A grid of runs under way: run here one after the other, watched wherever they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.progress import TaskID

from fairshot.cli.console import ConsoleReporter, new_bars, print_message
from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FIGURES, LOG
from fairshot.reporting.figures.accuracy import write_figures
from fairshot.studies.cluster import RunStatus
from fairshot.studies.plan import PlannedRun


def run_here(cells: list[PlannedRun], view: GridView, place: RunOptions) -> Iterator[RunStatus | None]:
    """Run cells one after the other, each in a folder of its own, until one is stopped."""
    began = time.monotonic()
    for cell in cells:
        left = max(0, place.max_minutes - (time.monotonic() - began) / 60)
        try:
            run(cell.recipe, replace(place, out=cell.out, max_minutes=left, reporter=view.reporter(cell)))
        except UserError as problem:  # the others can still run
            yield RunStatus(cell, str(problem))
        except TrainingStopped as stopped:
            yield RunStatus(cell, str(stopped), unfinished=True)
            return
        else:
            yield RunStatus(cell)


def watch(source: Iterator[RunStatus | None], view: GridView) -> list[RunStatus]:
    """Draw the figures of each run that ends well; return those that do not."""
    problems = []
    for ended in source:
        if ended is None:
            view.refresh()
            continue
        view.close(ended)
        if ended.problem is not None:
            problems.append(ended)
        else:
            write_figures([Result.read(ended.cell.out)], ended.cell.out / FIGURES)
    return problems


def complain(problems: list[RunStatus]) -> None:
    """Say what did not end well, once everything else is shown; problems were told as they came."""
    failed = [ended.cell.title for ended in problems if not ended.unfinished]
    stopped = [f"{ended.cell.title}: {ended.problem}" for ended in problems if ended.unfinished]
    if failed:
        refusal = f"not among the results, for the reasons above: {', '.join(failed)}"
        raise UserError("\n".join([refusal, *stopped]))
    if stopped:
        raise TrainingStopped("\n".join(stopped))


class GridView:
    """A bar for the whole grid, and below it the runs under way."""

    def __init__(self, cells: list[PlannedRun]) -> None:
        self.bars = new_bars()
        self.overall = self.bars.add_task("runs", total=len(cells), note="")
        self.open = list(cells)
        self.elsewhere: dict[Path, TaskID] = {}  # runs of other machines, by their folder

    def __enter__(self) -> GridView:
        """Begin to draw."""
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        self.bars.stop()

    def reporter(self, cell: PlannedRun) -> ConsoleReporter:
        """Return what a run of this process reports to."""
        return ConsoleReporter(cell.title, cell.out / LOG, self.bars)

    def refresh(self) -> None:
        """Show of runs on other machines what they last logged."""
        for cell in self.open:
            line = _last_line(cell.out / LOG)
            if line and cell.out not in self.elsewhere:
                self.elsewhere[cell.out] = self.bars.add_task(cell.title, total=None, note=line)
            elif line:
                self.bars.update(self.elsewhere[cell.out], note=line)

    def close(self, ended: RunStatus, note: str = "") -> None:
        """Count a run that has ended, and say how if not well; where there are no bars, in any case."""
        self.open.remove(ended.cell)
        if ended.cell.out in self.elsewhere:
            self.bars.remove_task(self.elsewhere.pop(ended.cell.out))
        if note or (ended.problem and not ended.unfinished):
            print_message(note or f"{ended.cell.title}: {ended.problem}")
        elif self.bars.disable and not ended.unfinished:
            print_message(f"{ended.cell.title}: finished; runs still to come: {len(self.open)}")
        self.bars.advance(self.overall)


def _last_line(log: Path) -> str:
    return log.read_text().rstrip().rpartition("\n")[2][20:] if log.is_file() else ""  # without the time
