"""`fairshot tune`: choose settings on pseudo-novel base classes, never on the test set."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from fairshot.cli.console import CONSOLE, ConsoleReporter, this_command
from fairshot.cli.options import Data, Device, Fresh, HeldOut, Novel, Root, Seed, Set
from fairshot.cli.run import source_name
from fairshot.errors import UserError
from fairshot.files import write_atomically
from fairshot.settings import differences, flat

if TYPE_CHECKING:
    from fairshot.benchmarks.stream import Stream
    from fairshot.recipes import Recipe
    from fairshot.studies.tuning import Trial

CRITERIA = ("both", "overall_avg", "harmonic_mean_avg", "inc_avg", "last")


RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe: benchmark/method, or a YAML file.")
]
Grid = Annotated[
    list[str],
    typer.Option(
        metavar="'KEY=[VALUES]'", help="Values to try: 'method.gamma=[0.1,0.2]'; all combinations of several."
    ),
]
By = Annotated[str, typer.Option(help=f"What the best trial maximises: {', '.join(CRITERIA)}.")]
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
    novel: Novel = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    device: Device = "auto",
    out: Out = None,
    fresh: Fresh = False,
    data: Data = None,
    root: Root = None,
) -> None:
    """Try a grid of settings on pseudo-novel classes made of base training images alone.

    Interrupted at any moment, the same command goes on where it stopped.
    """
    # All this takes seconds to import, and --help needs none.
    from fairshot.evaluation.experiment import RunOptions, load_pictures
    from fairshot.evaluation.run_folder import LOG, RECIPE, TRAININGS, lock_run
    from fairshot.studies.tuning import describe, pseudo_sizes, pseudo_stream, tune
    from fairshot.training.hardware import choose_hardware, describe_device

    if by not in CRITERIA:
        raise UserError(f"--by: {by!r} was given; expected one of {', '.join(CRITERIA)}")
    axes = _axes(grid)
    points = _points(recipe, axes, set_, seed)
    first = points[0][1]
    out = out or Path("runs") / f"tuning-{source_name(first, data)}-{first.method_name}"
    reporter = ConsoleReporter("tune", out / LOG)
    fabric = choose_hardware(device)
    stream, _ = load_pictures(first, RunOptions(out, fabric, root=root, photos=data, reporter=reporter))
    novel, held_out = pseudo_sizes(stream, novel, held_out)
    pseudo = pseudo_stream(stream, novel, held_out, first.seed)
    with lock_run(out):
        _prepare(out, _search(axes, first, pseudo, novel, held_out), fresh)
        reporter.say(this_command())
        reporter.say(
            f"{pseudo.base_classes} base and {novel} pseudo-novel classes, {held_out} held-out training "
            f"images a class, seed {first.seed}, on {describe_device(fabric)}; no test image is read"
        )
        trials = _kept(tune(points, pseudo, fabric, out / TRAININGS, reporter), out)
        best = max(trials, key=lambda trial: _value(trial, by))
        reporter.say(f"best by {by}: {describe(best)}")
        write_atomically(out / RECIPE, best.recipe.as_yaml().encode())
    CONSOLE.print(f"written to {out}; to run the best:", highlight=False)
    CONSOLE.print(f"  {_next_command(out, best.recipe, data, root)}", highlight=False, soft_wrap=True)


def _search(
    axes: list[tuple[str, list[Any]]], first: Recipe, pseudo: Stream, novel: int, held_out: int
) -> dict[str, Any]:
    """Return what a search is asked for; whatever differs in it gives trials that cannot be mixed."""
    from fairshot.methods.plugins import plugin_file

    varied = dict(axes)
    own = plugin_file(first.method_name)
    asked = {
        **{key: value for key, value in flat(first.as_dict()) if key not in varied},
        "--grid": varied,
        "--novel": novel,
        "--held-out": held_out,
        "the digest of the pictures": pseudo.base.train.sha256(),
        "the digest of the method's file": own and hashlib.sha256(own.read_bytes()).hexdigest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(asked))
    return plain


def _prepare(out: Path, asked: dict[str, Any], fresh: bool) -> None:
    """Keep what a search is asked for, and refuse a folder that holds another one, or a run."""
    from fairshot.evaluation.run_folder import LOG, RECIPE, RESULT, SEARCH, TRAININGS, TRIALS

    searched = (out / SEARCH).exists() or (out / TRIALS).exists()
    if fresh and searched and not (out / RESULT).exists():
        for name in (SEARCH, TRIALS, RECIPE, LOG):
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / TRAININGS, ignore_errors=True)
    if not (out / SEARCH).is_file():
        if (out / RECIPE).exists():
            raise UserError(f"{out} holds a {RECIPE} that is not of this search; give another --out")
        write_atomically(out / SEARCH, json.dumps(asked).encode())
    elif other := differences(json.loads((out / SEARCH).read_bytes()), asked):
        raise UserError(
            f"{out} holds another search: {other}; give another --out, or begin anew in this one with --fresh"
        )


def _kept(trials: Iterable[Trial], out: Path) -> list[Trial]:
    """Write each trial as soon as it has ended; those of an earlier call stay until they are repeated."""
    from fairshot.evaluation.run_folder import TRIALS

    earlier = json.loads((out / TRIALS).read_bytes()) if (out / TRIALS).is_file() else []
    rows = {json.dumps(row["changes"]): row for row in earlier}
    ended = []
    for trial in trials:
        ended.append(trial)
        row = _as_dict(trial)
        rows[json.dumps(row["changes"])] = row
        write_atomically(out / TRIALS, json.dumps(list(rows.values())).encode())
    return ended


def _next_command(out: Path, best: Recipe, data: Path | None, root: Path | None) -> str:
    """Return the command that runs the best recipe on the same pictures."""
    from fairshot.evaluation.run_folder import RECIPE, where_pictures_lie
    from fairshot.methods.plugins import plugin_file, plugin_methods

    command = ["fairshot", "run", str(out / RECIPE)]
    if (own := plugin_file(best.method_name)) is not None:
        command += ["--set", f"method.name={own}:{plugin_methods()[best.method_name].__name__}"]
    return shlex.join([*command, *where_pictures_lie(data, root)])


def _value(trial: Trial, by: str) -> float:
    """What is maximised; `both` is the mean of overall accuracy and harmonic mean."""
    names = ("overall_avg", "harmonic_mean_avg") if by == "both" else (by,)
    return float(sum(getattr(trial.metrics, name) for name in names)) / len(names)


def _axes(grid: list[str]) -> list[tuple[str, list[Any]]]:
    """Read the keys of a grid and the values of each."""
    axes = []
    for axis in grid:
        key, equals, text = axis.partition("=")
        try:
            values = yaml.safe_load(text) if equals else None
        except yaml.YAMLError:
            values = None
        if not isinstance(values, list) or not values:
            raise UserError(f"--grid {axis!r}: expected key=[values], for example 'method.gamma=[0.1,0.2]'")
        axes.append((key.strip(), values))
    return axes


def _points(
    recipe: str, axes: list[tuple[str, list[Any]]], overrides: list[str], seed: int | None
) -> list[tuple[dict[str, Any], Recipe]]:
    """Every combination of the grid, as changes and as the recipe they give."""
    from fairshot.recipes import load_recipe

    points = []
    for chosen in itertools.product(*([(key, value) for value in values] for key, values in axes)):
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
