"""`fairshot compare`: methods on benchmarks, on this machine or on a Ray cluster, side by side."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.console import ConsoleReporter, say
from fairshot.cli.options import (
    Compile,
    Data,
    Device,
    Fresh,
    Log,
    Minutes,
    OnOff,
    Parallel,
    Root,
    Set,
    common,
    tracking_of,
)
from fairshot.cli.run import present
from fairshot.errors import UserError

Methods = Annotated[
    list[str],
    typer.Argument(metavar="METHOD", help="Methods to run side by side, or all; your own as file.py:Class."),
]
Benchmarks = Annotated[
    list[str],
    typer.Option(
        "--benchmark",
        help="The benchmark they run on, doodles if not given; give it several times for several.",
    ),
]
Seeds = Annotated[
    list[str],
    typer.Option(
        "--seed",
        metavar="SEED",
        help="Seed of the runs; several, as 0,1,2 or by giving it several times, for mean and deviation.",
    ),
]
SeedCount = Annotated[
    int | None, typer.Option("--seeds", min=1, help="So many seeds: 0, 1, ... in place of --seed.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="images=N",
        help="Pass N images through the network in every base session, or those of its authors' epochs where "
        "they are more; all views, fused and flipped images count.",
    ),
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
    typer.Option("--ray", help="Run on a Ray cluster, one GPU per run; --out must be on a shared disk."),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the comparison; runs/compare-<benchmark> if not given.")
]


def compare_command(
    methods: Methods,
    benchmarks: Benchmarks = [],
    data: Data = None,
    set_: Set = [],
    seed: Seeds = [],
    seeds: SeedCount = None,
    budget: Budget = None,
    class_orders: ClassOrders = [],
    device: Device = "auto",
    on_ray: OnRay = False,
    parallel: Parallel = 1,
    compile_: Compile = OnOff.ON,
    out: Out = None,
    fresh: Fresh = False,
    root: Root = None,
    max_minutes: Minutes = math.inf,
    log: Log = [],
) -> None:
    """Run methods on benchmarks with several seeds and class orders, and print them side by side.

    Finished runs are not repeated, and interrupted ones go on: the same command continues a comparison, and
    one with more methods or seeds extends it. `fairshot report` makes a page of its folder.

    Example: fairshot compare ncm sss --benchmark doodles --seed 0 --seed 1 --seed 2
    """
    if on_ray and parallel > 1:
        raise UserError("--parallel is for runs on this machine, and --ray shares them among machines")
    if on_ray and not max_minutes:
        raise UserError("--max-minutes 0 leaves a run on Ray no time to begin; give it some minutes")
    from fairshot.reporting.terminal import conditions_table
    from fairshot.studies import StudyOptions, compare

    benchmarks = _benchmarks(benchmarks, data)
    sources = dict.fromkeys(benchmarks) if data is None else [data.resolve().name]
    out = out or Path("runs") / "-".join(["compare", *sources])
    options = StudyOptions(
        device,
        on_ray,
        parallel,
        fresh=fresh,
        max_minutes=max_minutes,
        tracking=tracking_of(log),
        compiled=compile_ is OnOff.ON,
        **common(ConsoleReporter(), data, root),
    )
    overrides = [*set_, *_overrides(budget)]
    found = compare(methods, out, benchmarks, _seeds(seed, seeds), class_orders or [None], overrides, options)
    if results := found.results:
        present(results, out, conditions_table(list(results.values())))
        say(f"as a page: {shlex.join(['fairshot', 'report', str(out)])}")
    found.check()


def _seeds(given: list[str], count: int | None) -> list[int]:
    """Return the seeds that were asked for one by one or by their number; 0 if none was."""
    if count is not None:
        if given:
            raise UserError(f"--seeds {count} and --seed {' '.join(given)} were given; leave one of them out")
        return list(range(count))
    try:
        return [int(part) for text in given for part in text.split(",")] or [0]
    except ValueError:
        raise UserError(f"--seed {' '.join(given)}: expected whole numbers, such as 0 or 0,1,2") from None


def _overrides(budget: str | None) -> list[str]:
    """Return the settings that are a budget."""
    if budget is None:
        return []
    kind, _, number = budget.partition("=")
    try:
        images = int(float(number.replace(",", "").replace("_", "")))
    except (ValueError, OverflowError):
        images = 0
    if kind != "images" or images < 1:
        raise UserError(f"--budget {budget}: expected a number of images, such as images=14376960")
    return [f"training.images={images}"]


def _benchmarks(given: list[str], data: Path | None) -> list[str]:
    """Return what is compared on: what was asked for, own pictures, or the embedded benchmark."""
    from fairshot.evaluation.experiment import OWN_PICTURES

    if data is None:
        return given or ["doodles"]
    if set(given) - {OWN_PICTURES}:
        raise UserError(
            "--data: own pictures are compared by themselves, but --benchmark "
            f"{', '.join(given)} was given; leave one of them out"
        )
    return [OWN_PICTURES]
