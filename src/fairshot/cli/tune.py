"""`fairshot tune`: choose settings on pseudo-novel base classes, never on the test set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairshot.cli.console import ConsoleReporter, say
from fairshot.cli.options import Data, Device, Fresh, HeldOut, Novel, Parallel, Root, Seed, Set, Trust, common
from fairshot.cli.run import source_name
from fairshot.cli.suggestions import picture_options
from fairshot.cli.trust import load_trusted
from fairshot.documents import BadYAML, parse_yaml
from fairshot.errors import UserError

if TYPE_CHECKING:
    from fairshot.recipes import Recipe


LONGEST = 200  # characters of a value that messages repeat
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe: benchmark/method, or a YAML file; benchmark/all: every method."
    ),
]
Grid = Annotated[
    list[str],
    typer.Option(
        metavar="'KEY=[VALUES]'",
        help="Values to try: 'method.gamma=[0.1,0.2]'; all combinations of several. If not given, the "
        "method's own, as many for each: what its paper leaves open, and what balances old and new classes.",
    ),
]
By = Annotated[
    str,
    typer.Option(
        help="What the best trial maximises: both, overall_avg, harmonic_mean_avg, inc_avg or last."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the log, the trials and the best recipe; "
        "runs/tuning-<benchmark or PHOTOS>-<method> if not given. Of every method it holds a folder each."
    ),
]


def tune_command(
    recipe: RecipeName,
    grid: Grid = [],
    set_: Set = [],
    trust: Trust = False,
    by: By = "both",
    novel: Novel = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    device: Device = "auto",
    parallel: Parallel = 1,
    out: Out = None,
    fresh: Fresh = False,
    data: Data = None,
    root: Root = None,
) -> None:
    """Try a grid of settings on pseudo-novel classes made of base training images alone.

    A trial trains for as many steps as a run of the recipe. Interrupted at any moment, the same command goes
    on where it stopped.

    Example: fairshot tune doodles/sss --grid 'method.gamma=[0.1,0.2,0.4]'
    """
    from fairshot.studies import StudyOptions, tune_each
    from fairshot.studies.plan import EVERY_METHOD

    values = _values(grid)
    benchmark, _, method = recipe.partition("/")
    if method != EVERY_METHOD:
        given = load_trusted(recipe, set_, seed, trust)
        benchmark, method = given.benchmark.name, given.method_name
    out = out or Path("runs") / f"tuning-{source_name(benchmark, data)}-{method}"
    options = StudyOptions(device, parallel=parallel, fresh=fresh, **common(ConsoleReporter(), data, root))
    chosen = {"overrides": set_, "seed": seed, "by": by, "novel": novel, "held_out": held_out}
    for folder, found in tune_each(recipe, values, out, options, **chosen):
        say(f"written to {folder}; to run the best:")
        say(f"  {_next_command(folder, found.recipe, data, root)}")


def _next_command(out: Path, best: Recipe, data: Path | None, root: Path | None) -> str:
    """Return the command that runs the best recipe on the same images."""
    from fairshot.evaluation.run_folder import RECIPE
    from fairshot.methods.plugins import plugin_file, plugin_methods

    command = ["fairshot", "run", str(out / RECIPE)]
    if (own := plugin_file(best.method_name)) is not None:
        command += ["--set", f"method.name={own}:{plugin_methods()[best.method_name].__name__}"]
    return shlex.join([*command, *picture_options(data, root)])


def _values(grid: list[str]) -> dict[str, list[Any]]:
    """Read the keys of a grid and the values of each."""
    found = {}
    for axis in grid:
        key, equals, text = axis.partition("=")
        try:
            values = parse_yaml(text) if equals else None
        except BadYAML:
            values = None
        if not isinstance(values, list) or not values:
            given = axis[:LONGEST]
            raise UserError(f"--grid {given!r}: expected key=[values], for example 'method.gamma=[0.1,0.2]'")
        found[key.strip()] = values
    return found
