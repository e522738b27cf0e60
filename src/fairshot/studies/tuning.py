"""Tuning: settings are chosen on pseudo-novel classes, never on the test set."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fairshot.benchmarks.stream import Stream
from fairshot.documents import load_json, write_json
from fairshot.errors import BadSetting, FolderOccupied, FolderUnusable
from fairshot.evaluation.experiment import load_pictures
from fairshot.evaluation.result import BASE_SESSION, Result
from fairshot.evaluation.run_folder import (
    FEATURES,
    LOG,
    MODEL,
    RECIPE,
    SEARCH,
    TRIAL_RUNS,
    TRIALS,
    is_finished,
    lock_run,
)
from fairshot.methods import method_named, packaged_names
from fairshot.methods.plugins import plugin_file
from fairshot.recipes import Recipe, load_recipe, write_recipe
from fairshot.settings import differences, flat
from fairshot.studies.execute import StudyOptions, execute
from fairshot.studies.plan import EVERY_METHOD, PlannedRun
from fairshot.studies.pseudo_novel import describe_split, pseudo_sizes, pseudo_stream, with_as_many_steps
from fairshot.training.hardware import choose_hardware

CRITERIA = ("both", "overall_avg", "harmonic_mean_avg", "inc_avg", "last")
Point = tuple[dict[str, Any], Recipe]  # of a grid: what is changed, and the recipe that gives


class Trial(BaseModel):
    """One point of a grid: what was changed in the recipe, and what that gave on pseudo-novel classes."""

    changes: dict[str, Any]
    overall_avg: float
    harmonic_mean_avg: float
    both: float  # mean of the two
    inc_avg: float
    last: float
    base_avg: float
    base_inc: float | None
    bicp: float | None
    novel_only: float  # average over the sessions
    seconds: float  # of the base session, shared by the trials that differ only in how they decide

    @classmethod
    def of(cls, changes: Mapping[str, Any], result: Result, seconds: float) -> Trial:
        """Return what the result of a run says."""
        names = set(cls.model_fields) - {"changes", "novel_only", "seconds"}
        found = {name: getattr(result.metrics, name) for name in names}
        novel_only = [value for value in result.novel_only if value is not None]
        return cls(
            changes=dict(changes), novel_only=sum(novel_only) / len(novel_only), seconds=seconds, **found
        )

    def __str__(self) -> str:
        changes = "  ".join(f"{key}={value}" for key, value in self.changes.items())
        return (
            f"{changes}: overall {self.overall_avg:.2f}  last {self.last:.2f}  base {self.base_avg:.2f}  "
            f"inc {self.inc_avg:.2f}  harmonic mean {self.harmonic_mean_avg:.2f}  "
            f"novel-only {self.novel_only:.2f}  ({self.seconds:.0f} s of base session)"
        )


@dataclass(frozen=True)
class Tuning:
    """What a search found."""

    trials: list[Trial]
    best: Trial
    recipe: Recipe  # with the changes of the best trial


def tune(
    recipe: str,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    by: str = "both",
    novel: int | None = None,
    held_out: int | None = None,
    options: StudyOptions = StudyOptions(),
) -> Tuning:
    """Try all combinations of a grid {key: values} on pseudo-novel classes, and write the best recipe.

    An empty grid stands for the values that the method itself names. A trial trains for as many steps as a
    run of its recipe would. Points whose recipes differ only in settings of the decision share one training.
    `out` keeps each trial as soon as it has ended; the same call goes on where an interrupted one stopped.
    """
    if by not in CRITERIA:
        raise BadSetting("by", by, f"expected one of {', '.join(CRITERIA)}")
    grid = grid or _own_grid(load_recipe(recipe, overrides, seed).method_name)
    points = _points(recipe, grid, overrides, seed)
    first = points[0][1]
    fabric, reporter = choose_hardware(options.device), options.reporter
    stream, _ = load_pictures(first, options)
    novel, held_out = pseudo_sizes(stream, novel, held_out)
    prepare = partial(pseudo_stream, novel=novel, held_out=held_out, seed=first.seed)
    pseudo = prepare(stream)
    with lock_run(out):
        _prepare(out, _search(grid, first, pseudo, novel, held_out), options.fresh)
        reporter.say(options.command)
        reporter.say(describe_split(stream, novel, held_out, first.seed, fabric))
        tried = [with_as_many_steps(point, stream, novel, held_out) for _, point in points]
        planned = _plan(tried, out / TRIAL_RUNS, prepare, options.photos is not None)
        trials = _run_trials(planned, points, out, replace(options, fresh=False))
        best = max(range(len(trials)), key=lambda index: float(getattr(trials[index], by)))
        reporter.say(f"best by {by}: {trials[best]}")
        chosen = points[best][1]
        write_recipe(out / RECIPE, chosen)
    return Tuning(trials, trials[best], chosen)


def tune_each(
    recipe: str,
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    options: StudyOptions = StudyOptions(),
    **chosen: Any,
) -> Iterator[tuple[Path, Tuning]]:
    """Tune a recipe, or with `benchmark/all` every method of the package, in a folder each that has its log.

    What is `chosen` further is passed to `tune`. Yields each folder, and what was found, as its search ends.
    """
    benchmark, _, method = recipe.partition("/")
    folders = {recipe: out}
    if method == EVERY_METHOD:
        folders = {f"{benchmark}/{name}": out / name for name in packaged_names()}
    for source, folder in folders.items():
        own = replace(options, reporter=options.reporter.of_run("tune", folder / LOG))
        yield folder, tune(source, grid, folder, options=own, **chosen)


def _own_grid(method: str) -> Mapping[str, Sequence[Any]]:
    """Return the values that a method names to be tried."""
    grid = method_named(method).card.grid
    if not grid:
        raise BadSetting("grid", grid, f"{method} names no values of its own; give some to try")
    return grid


def _points(
    recipe: str, grid: Mapping[str, Sequence[Any]], overrides: Sequence[str], seed: int | None
) -> list[Point]:
    """Return every combination of the grid, as changes and as the recipe they give."""
    points = []
    for chosen in itertools.product(*([(key, value) for value in values] for key, values in grid.items())):
        changes = [f"{key}={json.dumps(value)}" for key, value in chosen]
        points.append((dict(chosen), load_recipe(recipe, [*overrides, *changes], seed)))
    return points


def _search(
    grid: Mapping[str, Sequence[Any]], first: Recipe, pseudo: Stream, novel: int, held_out: int
) -> dict[str, Any]:
    """Return what a search is asked for; whatever differs in it gives trials that cannot be mixed."""
    own = plugin_file(first.method_name)
    asked = {
        **{key: value for key, value in flat(first.as_dict()) if key not in grid},
        "grid": dict(grid),
        "novel": novel,
        "held_out": held_out,
        "the steps of a trial": "as many as those of a run",
        "the digest of the pictures": pseudo.base.train.sha256(),
        "the digest of the method's file": own and hashlib.sha256(own.read_bytes()).hexdigest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(asked))
    return plain


def _prepare(out: Path, asked: dict[str, Any], fresh: bool) -> None:
    """Keep what a search is asked for, and refuse a folder that holds another one, or a run."""
    searched = (out / SEARCH).exists() or (out / TRIALS).exists()
    if fresh and searched and not is_finished(out):
        for name in (SEARCH, TRIALS, RECIPE, LOG):
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / TRIAL_RUNS, ignore_errors=True)
    if not (out / SEARCH).is_file():
        if (out / RECIPE).exists():
            raise FolderUnusable(out, f"holds a {RECIPE} that is not of this search")
        write_json(out / SEARCH, json.dumps(asked))
    elif other := differences(load_json(out / SEARCH), asked):
        raise FolderOccupied(out, f"another search: {other}")


def _plan(
    recipes: Sequence[Recipe], folder: Path, prepare: Callable[[Stream], Stream], own_pictures: bool
) -> list[PlannedRun]:
    """Plan a run per recipe; those of one training load the base session of the first of them."""
    trained: dict[str, Path] = {}
    planned = []
    for number, recipe in enumerate(recipes, start=1):
        run = folder / str(number)
        base = trained.setdefault(json.dumps(recipe.training_part(), sort_keys=True), run)
        split = folder / "1" if own_pictures and number > 1 else None
        name = f"trial {number} of {len(recipes)}"
        planned.append(PlannedRun(recipe, run, name, None if base == run else base, split, prepare))
    return planned


def _run_trials(
    planned: Sequence[PlannedRun], points: Sequence[Point], out: Path, options: StudyOptions
) -> list[Trial]:
    """Run the trials, and write each as soon as it has ended."""
    changes_of = {each.out: changes for each, (changes, _) in zip(planned, points, strict=True)}
    trials: dict[Path, Trial] = {}
    for status in execute(planned, options):
        status.check()
        run, base = status.planned.out, status.planned.base
        seconds = Result.read(base or run).seconds[BASE_SESSION]
        trials[run] = Trial.of(changes_of[run], Result.read(run), seconds)
        ended = [trials[each.out] for each in planned if each.out in trials]
        write_json(out / TRIALS, json.dumps({"trials": [trial.model_dump() for trial in ended]}))
        options.reporter.say(str(trials[run]))
        for name in (FEATURES,) if base is None else (FEATURES, MODEL):
            (run / name).unlink(missing_ok=True)  # large, and no other trial reads them
    return [trials[each.out] for each in planned]
