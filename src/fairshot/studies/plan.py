"""Planned runs: what each run of a study is, and the folder it has."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairshot.benchmarks import DATASETS, UnknownBenchmark
from fairshot.benchmarks.stream import Stream
from fairshot.evaluation.run_folder import (
    MODEL,
    RECIPE,
    SPLIT,
    code_has_changed,
    is_finished,
    recorded_recipe,
)
from fairshot.methods import packaged_names
from fairshot.recipes import Recipe, load_recipe, run_name
from fairshot.recipes.sources import benchmarks_with_recipes

EVERY_METHOD = "all"  # in place of names of methods


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, with the options that are its own."""

    recipe: Recipe
    out: Path
    name: str = ""  # in progress and messages; made from the recipe if not given
    base: Path | None = None  # the run whose base session is loaded; it may be planned too, but earlier
    split: Path | None = None  # the run whose split of own pictures is used again
    prepare: Callable[[Stream], Stream] | None = None  # makes another stream from that of the benchmark

    @property
    def title(self) -> str:
        """The run as progress and messages name it."""
        order = self.recipe.benchmark.class_order_seed
        suffix = "" if order is None else f" order {order}"
        seed = f"seed {self.recipe.seed}{suffix}"
        return self.name or f"{self.recipe.method_name} {self.recipe.benchmark.name} {seed}"

    @property
    def finished(self) -> bool:
        """Whether this very recipe, and this very code of a method of one's own, has left a result here."""
        if not is_finished(self.out) or recorded_recipe(self.out) != self.recipe:
            return False
        return not code_has_changed(self.out, self.recipe.method_name)


def plan(
    methods: Sequence[str],
    benchmarks: Sequence[str],
    seeds: Sequence[int],
    class_orders: Sequence[int | None],
    overrides: Sequence[str],
    out: Path,
    fresh: bool = False,
) -> list[PlannedRun]:
    """Return the runs of methods x benchmarks x seeds x class orders, each combination once.

    `all` stands for every method of the package. Run folders are directly in `out`, where a report finds
    them. A run that an earlier comparison left there is found by its recipe, whatever its folder is called.
    Of runs that are trained alike one trains for all (`share_trainings`).
    """
    for benchmark in benchmarks:
        _check_benchmark(benchmark)
    methods = [name for each in methods for name in (packaged_names() if each == EVERY_METHOD else [each])]
    planned: dict[str, tuple[Recipe, str]] = {}
    for benchmark, method, seed, order in itertools.product(benchmarks, methods, seeds, class_orders):
        shuffled = [] if order is None else [f"benchmark.class_order_seed={order}"]
        recipe = load_recipe(f"{benchmark}/{method}", [*overrides, *shuffled], seed)
        parts = [benchmark] if len(set(benchmarks)) > 1 else []
        parts += [run_name(f"{benchmark}/{method}", recipe), f"seed{seed}"] + (
            [] if order is None else [f"order{order}"]
        )
        planned[recipe.as_yaml()] = recipe, "-".join(parts)
    earlier = _earlier(out)  # now that methods of one's own are known
    runs = [PlannedRun(recipe, earlier.get(text, out / name)) for text, (recipe, name) in planned.items()]
    return share_trainings(runs, fresh)


def share_trainings(planned: Sequence[PlannedRun], fresh: bool = False) -> list[PlannedRun]:
    """Let runs load the base session of one that is trained alike on the same pictures.

    That is one which has finished and kept its network, or else the first that is yet to be trained. Finished
    runs need none, unless all are run afresh.
    """
    done = [each.finished and not fresh for each in planned]
    trainings = [_training(each) for each in planned]
    trained: dict[str, Path] = {}
    for each, is_done, training in zip(planned, done, trainings, strict=True):
        if is_done and (each.out / MODEL).is_file():
            trained.setdefault(training, each.out)
    shared = []
    for each, is_done, training in zip(planned, done, trainings, strict=True):
        shared.append(each if is_done else replace(each, base=trained.get(training)))
        if not is_done and _can_train(each, fresh):
            trained.setdefault(training, each.out)
    return shared


def _training(planned: PlannedRun) -> str:
    """Return what decides the base session of a run: its recipe, and of own pictures those it is given."""
    split = planned.split and planned.split / SPLIT
    pictures = split.read_text(encoding="utf-8") if split and split.is_file() else None
    return json.dumps([planned.recipe.training_part(), pictures], sort_keys=True)


def _can_train(planned: PlannedRun, fresh: bool) -> bool:
    """Whether the folder of a run is its own, so that it will not be refused."""
    if fresh or not (planned.out / RECIPE).is_file():
        return True
    return not is_finished(planned.out) and recorded_recipe(planned.out) == planned.recipe


def _check_benchmark(name: str) -> None:
    """Refuse a name that is neither a benchmark's nor a folder's, which may hold recipes."""
    if name not in (*DATASETS, *benchmarks_with_recipes()) and not Path(name).is_dir():
        raise UnknownBenchmark(name, "", tuple(DATASETS))


def _earlier(out: Path) -> dict[str, Path]:
    """Return the run folders of an earlier comparison by their recipes."""
    folders = sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []
    return {recipe.as_yaml(): folder for folder in folders if (recipe := recorded_recipe(folder)) is not None}
