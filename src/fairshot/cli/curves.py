"""The curves of `fairshot tradeoff`: each rule's gate is chosen, then all are drawn, written and printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from fairshot.benchmarks.stream import Stream
from fairshot.cli.console import CONSOLE, ConsoleReporter, this_command
from fairshot.errors import UserError
from fairshot.evaluation.base_session import check_base, check_images, restore_method
from fairshot.evaluation.experiment import RunOptions, load_pictures
from fairshot.evaluation.run_folder import (
    CHECKPOINTS,
    LOG,
    RECIPE,
    TRADEOFF,
    TRADEOFF_PAGE,
    TRIALS,
    command_on_base,
    recipe_of,
)
from fairshot.files import write_atomically
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.recipes import Recipe
from fairshot.studies.cached_stream import cache_stream
from fairshot.studies.gates import Gate, curve
from fairshot.studies.pseudo_novel import pseudo_streams
from fairshot.studies.tradeoff import Point, choose, search, tradeoff
from fairshot.studies.tuning import pseudo_sizes, pseudo_stream, train_on
from fairshot.training.hardware import choose_hardware, describe_device

METRICS = ("overall_avg", "base_avg", "inc_avg", "harmonic_mean_avg", "both")
AVERAGES = "| overall avg | base avg | inc avg | harmonic mean avg | both |"  # as the head of a table
Sizes = tuple[int | None, int | None, int]  # pseudo-novel classes, held-out images a class, draws


def draw_curves(
    run: Path, folder: Path, sizes: Sizes, device: str, photos: Path | None, root: Path | None
) -> None:
    """Choose the gate of each rule in the folder of the pseudo-novel training, and draw the rule's curve."""
    recipe, place = _recipe_of_sss(run), _place(run, folder, device, photos, root)
    stream, _ = load_pictures(recipe, place)
    check_images(run, stream)  # before a network is trained that nothing could be done with
    chosen = _choose(_pseudo_recipe(folder, recipe), stream, place, folder, sizes)
    own = _own_gate(recipe)
    points = _curves(recipe, stream, place, chosen, own)
    _write(run, points, chosen)
    _show(place, points, chosen, own)


def _recipe_of_sss(run: Path) -> Recipe:
    recipe = recipe_of(run)
    if recipe.method_name != SSS.name:
        raise UserError(f"{run} is a run of {recipe.method_name}; the gates are those of {SSS.name}")
    check_base(run, recipe)
    return recipe


def _place(run: Path, folder: Path, device: str, photos: Path | None, root: Path | None) -> RunOptions:
    """Return where the run's pictures lie and on what they are looked at; the log is that of the folder."""
    fabric = choose_hardware(device)
    folder.mkdir(parents=True, exist_ok=True)
    reporter = ConsoleReporter("tradeoff", folder / LOG)
    reporter.say(this_command())
    return RunOptions(run, fabric, root=root, photos=photos, split=run if photos else None, reporter=reporter)


def _choose(
    recipe: Recipe,
    stream: Stream,
    place: RunOptions,
    folder: Path,
    sizes: Sizes,
) -> dict[str, Point]:
    """Train on pseudo-novel classes, try every gate there, and keep the best of each rule."""
    (*given, draws), reporter = sizes, place.reporter
    novel, held_out = pseudo_sizes(stream, *given)
    small = pseudo_stream(stream, novel, held_out, recipe.seed)
    trained, _ = train_on(recipe, small, place.fabric, folder / CHECKPOINTS, reporter)
    reporter.say(
        f"{small.base_classes} base and {novel} pseudo-novel classes, {held_out} held-out training images a "
        f"class, {draws} draws, seed {recipe.seed}, on {describe_device(place.fabric)}; no test image is read"
    )
    tried = search(pseudo_streams(trained, stream, novel, held_out, recipe.seed, draws, reporter), reporter)
    chosen = choose(tried)
    for point in chosen.values():
        reporter.say(f"chosen: {_describe(point)}")
    write_atomically(folder / TRIALS, json.dumps([_as_dict(point) for point in tried]).encode())
    return chosen


def _pseudo_recipe(folder: Path, recipe: Recipe) -> Recipe:
    """Return this recipe with the seed of the pseudo-novel training in a folder, whose recipe it must be."""
    path = folder / RECIPE
    if not path.is_file():
        write_atomically(path, recipe.as_yaml().encode())
    found = recipe_of(folder)
    if replace(found, seed=recipe.seed).training_part() != recipe.training_part():
        raise UserError(
            f"{folder} holds the training of another recipe; only the seed and the decision may differ"
        )
    return replace(recipe, seed=found.seed)


def _own_gate(recipe: Recipe) -> Gate | None:
    """Return Resistance as the run has it, or None if the run decides by another rule."""
    settings = recipe.method
    assert isinstance(settings, SSSSettings)
    gamma = settings.gamma if settings.resistance else 0.0
    return None if settings.has_gate else Gate("plain", 0.0, gamma=gamma)


def _curves(
    recipe: Recipe, stream: Stream, place: RunOptions, chosen: Mapping[str, Point], own: Gate | None
) -> list[Point]:
    """Take the gates of each curve through the run's sessions; a whitened one in the space chosen for it."""
    course = cache_stream(restore_method(place.out, recipe, stream, place.fabric), stream, place.reporter)
    curves = {family: set(curve(point.gate)) for family, point in chosen.items()}
    if own is not None:
        curves[own.family].add(own)
    gates = [gate for found in curves.values() for gate in sorted(found, key=lambda gate: gate.position)]
    return tradeoff([course], gates, place.reporter)


def _as_dict(point: Point) -> dict[str, Any]:
    values = {name: getattr(point, name) for name in METRICS}
    return {
        "rule": point.gate.family,
        "setting": point.gate.position,
        **values,
        "method": point.gate.settings(),
    }


def _describe(point: Point) -> str:
    settings = "  ".join(f"{key}={value}" for key, value in point.gate.settings().items())
    values = "  ".join(f"{name} {getattr(point, name):.2f}" for name in METRICS)
    return f"{point.gate.family}: {settings}: {values}"


def _is_chosen(gate: Gate, chosen: Mapping[str, Point]) -> bool:
    return chosen[gate.family].gate == gate


def _write(run: Path, points: Sequence[Point], chosen: Mapping[str, Point]) -> None:
    """Write the curves as the report reads them; as tables the chosen points, and all."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        entry = {**_as_dict(point), "tuned": _is_chosen(point.gate, chosen)}
        curves.setdefault(point.gate.family, []).append(entry)
    rules = [{"name": name, "points": curve} for name, curve in curves.items()]
    choice = [_as_dict(point) for point in chosen.values()]
    content = {"command": this_command(), "rules": rules, "chosen_on_pseudo_novel": choice}
    write_atomically(run / TRADEOFF, json.dumps(content).encode())
    write_atomically(run / TRADEOFF_PAGE, _markdown(points, chosen).encode())


def _markdown(points: Sequence[Point], chosen: Mapping[str, Point]) -> str:
    lines = [
        f"`{this_command()}`",
        "",
        "Each rule as chosen on pseudo-novel classes: what it gave there, and on the test images.",
        "",
        f"| rule | power | shrinkage | own share | strength | pseudo overall | pseudo harmonic {AVERAGES}",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for point in points:
        if _is_chosen(point.gate, chosen):
            before = chosen[point.gate.family]
            space = point.gate.space
            parameters = ["-"] * 3 if space is None else [f"{value:g}" for value in astuple(space)]
            pseudo = [f"{value:.2f}" for value in (before.overall_avg, before.harmonic_mean_avg)]
            lines.append(_line(point.gate.family, *parameters, _strength(point), *pseudo, *_averages(point)))
    lines += ["", "All strengths of these rules, on the test images:", ""]
    lines += [f"| rule | strength {AVERAGES}", "|---|---|---|---|---|---|---|"]
    lines += [_line(point.gate.family, _strength(point), *_averages(point)) for point in points]
    return "\n".join(lines) + "\n"


def _averages(point: Point) -> list[str]:
    return [f"{getattr(point, name):.2f}" for name in METRICS]


def _strength(point: Point) -> str:
    return f"{point.gate.position:g}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _show(place: RunOptions, points: Sequence[Point], chosen: Mapping[str, Point], own: Gate | None) -> None:
    """Print the points that matter, and how to run the best of the chosen gates."""
    CONSOLE.print(_table(points, chosen, own))
    page = place.out / TRADEOFF_PAGE
    CONSOLE.print(f"all {len(points)} points: {page}", highlight=False, soft_wrap=True)
    best = max(chosen.values(), key=lambda point: point.both)
    CONSOLE.print(f"best on pseudo-novel classes: {best.gate.family}; to run it:", highlight=False)
    out = f"{place.out}-gate"
    command = command_on_base(place.out, best.gate.settings(), out, place.photos, place.root)
    CONSOLE.print(f"  {command}", highlight=False, soft_wrap=True)


def _table(points: Sequence[Point], chosen: Mapping[str, Point], own: Gate | None) -> Table:
    """Show each rule as chosen, and Resistance as the run has it.

    Their order is that of pseudo-novel classes: one by test images would invite a choice on them.
    """
    table = Table(  # 80 columns hold it
        title="each rule on test images: averages over sessions, in %",
        caption="> chosen on pseudo-novel classes, the best there first; Both: mean of Overall and Harmonic",
        padding=(0, 0, 0, 1),
    )
    for title in ("", "strength", "Overall", "Base", "Inc", "Harmonic", "Both"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    shown = [point for point in points if _is_chosen(point.gate, chosen) or point.gate == own]
    for point in sorted(shown, key=lambda point: chosen[point.gate.family].both, reverse=True):
        mark = "> " if _is_chosen(point.gate, chosen) else "  "
        name = f"{point.gate.family} of the run" if point.gate == own else point.gate.family
        table.add_row(mark + name, _strength(point), *_averages(point))
    return table
