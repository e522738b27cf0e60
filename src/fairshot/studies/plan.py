"""Grid: methods x benchmarks x seeds x class orders, each a run of its own in one folder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairshot.evaluation.run_folder import RESULT, code_has_changed, recorded_recipe
from fairshot.recipes import Recipe, load_recipe


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid, and the folder it has."""

    recipe: Recipe
    out: Path

    @property
    def title(self) -> str:
        """The run as a progress view names it."""
        order = self.recipe.benchmark.class_order_seed
        suffix = "" if order is None else f" order {order}"
        return f"{self.recipe.method_name} {self.recipe.benchmark.name} seed {self.recipe.seed}{suffix}"

    @property
    def finished(self) -> bool:
        """Whether this very recipe, and this very code of a method of one's own, has left a result here."""
        if not (self.out / RESULT).is_file() or recorded_recipe(self.out) != self.recipe:
            return False
        return not code_has_changed(self.out, self.recipe.method_name)


def plan(
    methods: Sequence[str],
    benchmarks: Sequence[str],
    seeds: Sequence[int],
    class_orders: Sequence[int | None],
    overrides: Sequence[str],
    out: Path,
) -> list[PlannedRun]:
    """Return the runs of a grid, each combination once.

    Run folders lie directly in `out`, where a report finds them. A run that an earlier grid left there is
    found by its recipe, whatever its folder is called.
    """
    planned: dict[str, tuple[Recipe, str]] = {}
    for benchmark, method, seed, order in itertools.product(benchmarks, methods, seeds, class_orders):
        shuffled = [] if order is None else [f"benchmark.class_order_seed={order}"]
        recipe = load_recipe(f"{benchmark}/{method}", [*overrides, *shuffled], seed)
        parts = [benchmark] if len(set(benchmarks)) > 1 else []
        parts += [recipe.method_name, f"seed{seed}"] + ([] if order is None else [f"order{order}"])
        planned[recipe.as_yaml()] = recipe, "-".join(parts)
    earlier = _earlier(out)  # now that methods of one's own are known
    return [PlannedRun(recipe, earlier.get(text, out / name)) for text, (recipe, name) in planned.items()]


def _earlier(out: Path) -> dict[str, Path]:
    """Return the run folders of a grid by their recipes."""
    folders = sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []
    return {recipe.as_yaml(): folder for folder in folders if (recipe := recorded_recipe(folder)) is not None}
