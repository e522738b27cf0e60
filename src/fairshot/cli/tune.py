"""`fairshot tune`: choose settings on pseudo-novel base classes, never on the test set."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from fairshot.cli.console import CONSOLE, ConsoleReporter, this_command
from fairshot.cli.options import Data, Device, Root, Seed, Set
from fairshot.cli.run import source_name
from fairshot.errors import UserError
from fairshot.files import write_atomically

if TYPE_CHECKING:
    from fairshot.evaluation.tuning import Trial
    from fairshot.recipes import Recipe

CRITERIA = ("both", "overall_avg", "harmonic_mean_avg", "inc_avg", "last")


RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe: benchmark/method, or a YAML file.")
]
Grid = Annotated[
    list[str],
    typer.Option(metavar="KEY=[VALUES]", help="Values to try: method.gamma=[0.1,0.2]; all combinations."),
]
By = Annotated[str, typer.Option(help=f"What the best trial maximises: {', '.join(CRITERIA)}.")]
Novel = Annotated[int, typer.Option(min=1, help="Base classes that play novel ones.")]
HeldOut = Annotated[int, typer.Option(min=1, help="Training images a class that play test images.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the log, the trials and the best recipe; "
        "runs/tuning-<benchmark or PHOTOS>-<method> if not given."
    ),
]


def tune_command(
    recipe: RecipeName,
    grid: Grid,
    set_: Set = [],  # noqa: B006 - typer copies it
    by: By = CRITERIA[0],
    novel: Novel = 20,
    held_out: HeldOut = 50,
    seed: Seed = None,
    device: Device = "auto",
    out: Out = None,
    data: Data = None,
    root: Root = None,
) -> None:
    """Try a grid of settings on pseudo-novel classes made of base training images alone."""
    # All this takes seconds to import, and --help needs none.
    from fairshot.evaluation.experiment import Place, load_pictures
    from fairshot.evaluation.run_folder import LOG, RECIPE, TRIALS
    from fairshot.evaluation.tuning import describe, pseudo_stream, tune
    from fairshot.training.hardware import choose_hardware, describe_device

    if by not in CRITERIA:
        raise UserError(f"--by: {by!r} was given; expected one of {', '.join(CRITERIA)}")
    points = _points(recipe, grid, set_, seed)
    first = points[0][1]
    out = out or Path("runs") / f"tuning-{source_name(first, data)}-{first.method_name}"
    reporter = ConsoleReporter("tune", out / LOG)
    fabric = choose_hardware(device)
    stream, _ = load_pictures(first, Place(out, fabric, root=root, photos=data, reporter=reporter))
    pseudo = pseudo_stream(stream, novel, held_out, first.seed)
    reporter.say(this_command())
    reporter.say(
        f"{pseudo.base_classes} base and {novel} pseudo-novel classes, {held_out} held-out training images "
        f"a class, seed {first.seed}, on {describe_device(fabric)}; no test image is read"
    )
    trials = tune(points, pseudo, fabric, out / "trainings", reporter)
    best = max(trials, key=lambda trial: _value(trial, by))
    reporter.say(f"best by {by}: {describe(best)}")
    write_atomically(out / TRIALS, json.dumps([_as_dict(trial) for trial in trials]).encode())
    write_atomically(out / RECIPE, best.recipe.as_yaml().encode())
    CONSOLE.print(f"written to {out}", highlight=False)


def _value(trial: Trial, by: str) -> float:
    """What is maximised; `both` is the mean of overall accuracy and harmonic mean."""
    names = ("overall_avg", "harmonic_mean_avg") if by == "both" else (by,)
    return float(sum(getattr(trial.metrics, name) for name in names)) / len(names)


def _points(
    recipe: str, grid: list[str], overrides: list[str], seed: int | None
) -> list[tuple[dict[str, Any], Recipe]]:
    """Every combination of the grid, as changes and as the recipe they give."""
    from fairshot.recipes import load_recipe

    axes = []
    for axis in grid:
        key, equals, text = axis.partition("=")
        try:
            values = yaml.safe_load(text) if equals else None
        except yaml.YAMLError:
            values = None
        if not isinstance(values, list) or not values:
            raise UserError(f"--grid {axis!r}: expected key=[values], for example method.gamma=[0.1,0.2]")
        axes.append([(key.strip(), value) for value in values])
    points = []
    for chosen in itertools.product(*axes):
        changes = [f"{key}={json.dumps(value)}" for key, value in chosen]
        points.append((dict(chosen), load_recipe(recipe, [*overrides, *changes], seed)))
    return points


def _as_dict(trial: Trial) -> dict[str, Any]:
    found = trial.metrics
    names = (*CRITERIA[1:], "base_avg", "base_inc", "bicp")
    return {
        "changes": dict(trial.changes),
        **{name: getattr(found, name) for name in names},
        "novel_only": trial.novel_only,
        "seconds": trial.seconds,
    }
