"""`fairshot tradeoff`: overall against novel accuracy for each rule between the two kinds of features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fairshot.benchmarks import load_stream
from fairshot.cli.console import CONSOLE, ConsoleReporter
from fairshot.evaluation.experiment import restore_method
from fairshot.evaluation.tradeoff import Point, best, embed_stream, rules, tradeoff
from fairshot.evaluation.tuning import pseudo_stream, train_on
from fairshot.files import write_atomically
from fairshot.recipes import load_recipe
from fairshot.training.hardware import choose_hardware


def tradeoff_command(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run whose features are used.")],
    tune: Annotated[
        bool,
        typer.Option(
            "--tune/--no-tune", help="Choose strengths on pseudo-novel classes, which takes a training."
        ),
    ] = True,
    novel: Annotated[int, typer.Option(min=1, help="Base classes that play novel ones.")] = 20,
    held_out: Annotated[int, typer.Option(min=1, help="Training images a class that play test images.")] = 50,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    root: Annotated[Path | None, typer.Option(help="Folder in which benchmarks are looked for.")] = None,
) -> None:
    """Draw the curve of every rule on the run's sessions, and the point chosen without looking at them.

    Writes `tradeoff.json` into the run, where `fairshot report` finds it.
    """
    recipe = load_recipe(str(run / "recipe.yaml"))
    reporter = ConsoleReporter("tradeoff", run / "tradeoff.log")
    fabric = choose_hardware(device)
    stream = load_stream(recipe.benchmark.name, recipe.benchmark, root, reporter)
    chosen: dict[str, float] = {}
    if tune:
        pseudo = pseudo_stream(stream, novel, held_out, recipe.seed)
        trained, _ = train_on(recipe, pseudo, fabric, run / "pseudo-novel", reporter)
        tried = tradeoff(embed_stream(trained, pseudo), rules())
        for rule in rules():
            found = best([point for point in tried if point.rule == rule.name])
            chosen[rule.name] = found.strength
            reporter.say(f"{rule.name}: strength {found.strength:g} is best on pseudo-novel classes")
    points = tradeoff(embed_stream(restore_method(run, recipe, stream, fabric), stream), rules())
    write_atomically(run / "tradeoff.json", json.dumps(_as_dict(points, chosen)).encode())
    CONSOLE.print(_table(points, chosen))


def _as_dict(points: Sequence[Point], chosen: dict[str, float]) -> dict[str, Any]:
    """The curves as the report reads them."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        values = {
            name: getattr(point.metrics, name) for name in ("overall_avg", "inc_avg", "harmonic_mean_avg")
        }
        tuned = chosen.get(point.rule) == point.strength
        curves.setdefault(point.rule, []).append({"setting": point.strength, **values, "tuned": tuned})
    return {"rules": [{"name": name, "points": curve} for name, curve in curves.items()]}


def _table(points: Sequence[Point], chosen: dict[str, float]) -> Table:
    table = Table(title="rules between the two kinds of features; > chosen on pseudo-novel classes")
    for title in ("", "strength", "Overall avg", "Inc avg", "Base/Inc", "Harmonic avg"):
        table.add_column(title, justify="right" if title else "left")
    for point in points:
        found = point.metrics
        mark = "> " if chosen.get(point.rule) == point.strength else "  "
        values = (found.overall_avg, found.inc_avg, found.base_inc, found.harmonic_mean_avg)
        cells = ["-" if value is None else f"{value:.2f}" for value in values]
        table.add_row(mark + point.rule, f"{point.strength:g}", *cells)
    return table
