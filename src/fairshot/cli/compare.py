"""`fairshot compare`: a grid of runs on this machine or on a Ray cluster, shown side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from fairshot.cli.console import CONSOLE, ConsoleReporter, new_bars, print_message, this_command
from fairshot.cli.options import Device, Fresh, Minutes, Root, Set
from fairshot.cli.run import present
from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.cluster import Ended, run_on_ray
from fairshot.evaluation.experiment import Place, run
from fairshot.evaluation.grid import Cell, plan
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FIGURES, LOG
from fairshot.reporting.conditions import conditions_table
from fairshot.reporting.figures import write_figures
from fairshot.training.hardware import choose_hardware

Methods = Annotated[
    list[str],
    typer.Argument(metavar="METHOD", help="Methods to run side by side; your own as file.py:Class."),
]
Benchmarks = Annotated[
    list[str],
    typer.Option("--benchmark", help="The benchmark they run on; give it several times for several."),
]
Seeds = Annotated[
    list[int],
    typer.Option("--seed", help="Seed of the runs; give it several times for mean and deviation."),
]
ClassOrders = Annotated[
    list[int],
    typer.Option(
        "--class-order",
        min=0,
        help="Shuffle the classes by this seed; give it several times for several orders. "
        "If not given, the official order.",
    ),
]
OnRay = Annotated[
    bool,
    typer.Option("--ray", help="Run on a Ray cluster, one GPU a run; --out must lie on a shared disk."),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the comparison; runs/compare-<benchmark> if not given.")
]


def compare_command(
    methods: Methods,
    benchmarks: Benchmarks = ["doodles"],  # noqa: B006 - typer copies it
    set_: Set = [],  # noqa: B006 - typer copies it
    seeds: Seeds = [0],  # noqa: B006 - typer copies it
    class_orders: ClassOrders = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    on_ray: OnRay = False,
    out: Out = None,
    fresh: Fresh = False,
    root: Root = None,
    max_minutes: Minutes = math.inf,
) -> None:
    """Run methods on benchmarks with several seeds and class orders, and print them side by side.

    Finished runs are not repeated, and interrupted ones go on: the same command continues a comparison, and
    one with more methods or seeds extends it. `fairshot report` makes a page of its folder.
    """
    out = out or Path("runs") / "-".join(["compare", *dict.fromkeys(benchmarks)])
    cells = plan(methods, benchmarks, seeds, class_orders or [None], set_, out)
    done = [cell for cell in cells if cell.finished and not fresh]
    waiting = [cell for cell in cells if cell not in done]
    with GridView(cells) as view:
        for cell in done:
            view.close(Ended(cell), note=f"{cell.out} is finished already; --fresh runs it again")
        if on_ray and waiting:
            source = run_on_ray(waiting, device, this_command(), root, fresh, max_minutes)
        else:
            source = _run_here(waiting, view, device, root, fresh, max_minutes)
        problems = _watch(source, view)
    results = [Result.read(cell.out) for cell in cells if cell.finished]
    if results:
        present(results, out)
        CONSOLE.print(conditions_table(results))
    _complain(problems)


def _run_here(
    cells: list[Cell], view: GridView, device: str, root: Path | None, fresh: bool, max_minutes: float
) -> Iterator[Ended | None]:
    """Run cells one after the other."""
    fabric, began = choose_hardware(device), time.monotonic()
    place = Place(Path(), fabric, this_command(), root, fresh=fresh)
    for cell in cells:
        left = max_minutes - (time.monotonic() - began) / 60
        reporter = view.reporter(cell)
        try:
            run(cell.recipe, replace(place, out=cell.out, max_minutes=max(0, left), reporter=reporter))
        except UserError as problem:  # the others can still run
            yield Ended(cell, str(problem))
        else:
            yield Ended(cell)


def _watch(source: Iterator[Ended | None], view: GridView) -> list[Ended]:
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


def _complain(problems: list[Ended]) -> None:
    """Say what did not end well, once everything else is shown."""
    failed = [f"{ended.cell.title}: {ended.problem}" for ended in problems if not ended.unfinished]
    if failed:
        raise UserError("\n".join(failed))
    if problems:
        raise TrainingStopped("\n".join(f"{ended.cell.title}: {ended.problem}" for ended in problems))


class GridView:
    """A bar for the whole grid, and below it the runs under way."""

    def __init__(self, cells: list[Cell]) -> None:
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

    def reporter(self, cell: Cell) -> ConsoleReporter:
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

    def close(self, ended: Ended, note: str = "") -> None:
        """Count a run that has ended, and say how if not well; where there are no bars, in any case."""
        self.open.remove(ended.cell)
        if ended.cell.out in self.elsewhere:
            self.bars.remove_task(self.elsewhere.pop(ended.cell.out))
        if note or ended.problem:
            print_message(note or f"{ended.cell.title}: {ended.problem}")
        elif self.bars.disable:
            print_message(f"{ended.cell.title}: finished; runs still to come: {len(self.open)}")
        self.bars.advance(self.overall)


def _last_line(log: Path) -> str:
    return log.read_text().rstrip().rpartition("\n")[2][20:] if log.is_file() else ""  # without the time
