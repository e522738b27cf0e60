"""Ablation: what each part of SSS adds (table 2), and how both kinds of features decide (3 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from fairshot.classifiers.combination import Rule
from fairshot.evaluation.experiment import check_base_fits
from fairshot.evaluation.result import Result
from fairshot.recipes import load_recipe
from fairshot.studies.execute import StudyOptions, execute
from fairshot.studies.plan import PlannedRun

PARTS = ("intra", "inter", "sr", "resistance", "calibration")
DECISIONS: tuple[str, ...] = get_args(Rule)
Table = Literal["components", "features"]
ROWS: dict[Table, dict[str, dict[str, Any]]] = {  # of each table: the settings of the method in a row
    "components": {
        row: {part: index < count for index, part in enumerate(PARTS)}
        for count, row in enumerate(("baseline", *PARTS))
    },
    "features": {
        decision: {"decision": decision, "resistance": False, "calibration": False} for decision in DECISIONS
    },
}
SHARING: dict[Table, Sequence[str]] = {"components": PARTS[2:], "features": DECISIONS}  # one base session


@dataclass(frozen=True)
class Ablation:
    """The runs of a table, by row."""

    table: Table
    runs: dict[str, Path]

    @property
    def results(self) -> dict[str, Result]:
        """The results by row."""
        return {row: Result.read(run) for row, run in self.runs.items()}


def ablate(
    table: Table,
    recipe: str,
    out: Path,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    base: Path | None = None,
    options: StudyOptions = StudyOptions(),
) -> Ablation:
    """Run the rows of a table of the paper with a recipe of SSS, each in a folder of its own.

    `components` adds Intra, Inter, SR, Resistance and Calibration one by one: four trainings, six runs.
    `features` uses both kinds of features alone and combined: one training, six runs. Rows that differ only
    in the decision share the base session of the first of them, or that of the run `base`. One that does not
    fit is refused before the first row is run.
    """
    planned = []
    for row, settings in ROWS[table].items():
        changes = [f"method.{key}={yaml.safe_dump(value).split()[0]}" for key, value in settings.items()]
        chosen = load_recipe(recipe, [*overrides, *changes], seed)
        first, *others = SHARING[table]
        shared = base or (out / first if row in others else None)
        loaded = shared if row in SHARING[table] else None
        if base is not None:
            check_base_fits(chosen, loaded, out / row, options.fresh)
        planned.append(PlannedRun(chosen, out / row, row, loaded))
    for status in execute(planned, options):
        status.check()
    return Ablation(table, {each.name: each.out for each in planned})
