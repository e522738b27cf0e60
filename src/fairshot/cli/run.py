"""`fairshot run`: an experiment from a recipe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot.cli.console import CONSOLE, ConsoleReporter, say
from fairshot.cli.options import (
    Base,
    Compile,
    Data,
    Device,
    Fresh,
    Log,
    Minutes,
    OnOff,
    Root,
    Seed,
    Set,
    Trust,
    common,
    tracking_of,
)
from fairshot.cli.suggestions import after_run
from fairshot.cli.trust import load_trusted
from fairshot.errors import UserError
from fairshot.progress import SILENT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairshot.evaluation.result import Result

Processes = Annotated[int, typer.Option(min=1, help="Processes that share each batch: GPUs of a machine.")]
Machines = Annotated[
    int, typer.Option(min=1, help="Machines that share each batch; start them with torchrun.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the run; runs/<benchmark or PHOTOS>-<method>-seed<seed> if not given."),
]
Split = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", help="With --data: an earlier run, or its split.json, whose split is used again."
    ),
]


RecipeName = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe: benchmark/method, or a YAML file; with a method of your own: "
        "benchmark/file.py:Class. If not given, doodles/sss, or folder/sss with --data.",
    ),
]


def run_command(
    recipe: RecipeName = None,
    data: Data = None,
    split: Split = None,
    base: Base = None,
    set_: Set = [],
    trust: Trust = False,
    seed: Seed = None,
    device: Device = "auto",
    processes: Processes = 1,
    machines: Machines = 1,
    out: Out = None,
    fresh: Fresh = False,
    root: Root = None,
    max_minutes: Minutes = math.inf,
    compile_: Compile = OnOff.ON,
    log: Log = [],
) -> None:
    """Train on the base classes, learn the sessions, report how balanced the classifier stayed.

    Interrupted at any moment, the same command goes on where it stopped.

    Example: fairshot run doodles/sss --seed 1 --out runs/mine
    """
    from fairshot.evaluation.experiment import RunOptions, run
    from fairshot.evaluation.run_folder import LOG
    from fairshot.recipes import default_recipe, run_name
    from fairshot.training.hardware import choose_hardware

    if split is not None and data is None:
        raise UserError("--split goes with --data: it says how own pictures were split")
    recipe = recipe or default_recipe("folder" if data else "doodles")
    chosen = load_trusted(recipe, set_, seed, trust)
    tracking = tracking_of(log)  # before anything is trained
    source, name = source_name(chosen.benchmark.name, data), run_name(recipe, chosen)
    folder = out or Path("runs") / f"{source}-{name}-seed{chosen.seed}"
    fabric = choose_hardware(device, processes, machines)
    reporter = ConsoleReporter(f"{name} {source}", folder / LOG) if fabric.is_global_zero else SILENT
    options = RunOptions(
        folder,
        fabric,
        split,
        base,
        fresh=fresh,
        max_minutes=max_minutes,
        tracking=tracking,
        compiled=compile_ is OnOff.ON,
        **common(reporter, data, root),
    )
    result = run(chosen, options)
    if result is not None:
        present({folder: result}, folder)
        say("\nnext:")
        for line in after_run(folder, chosen):
            say(f"  {line}")


def present(results: dict[Path, Result], out: Path, *further: RenderableType) -> None:
    """Print runs side by side, whatever further table there is, and where they are; draw their figures."""
    from fairshot.reporting.figures.accuracy import write_all_figures
    from fairshot.reporting.terminal import side_by_side

    write_all_figures(results, out)
    for table in (side_by_side(list(results.values()), CONSOLE.width), *further):
        CONSOLE.print(table)
    say(f"\nwritten to {out}")


def source_name(benchmark: str, photos: Path | None) -> str:
    """Return what a folder under runs/ is called after: the benchmark, or the folder of own pictures."""
    return photos.resolve().name if photos else benchmark
