"""Comparison: methods x benchmarks x seeds x class orders, side by side in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.result import Result
from fairshot.progress import RunRefused
from fairshot.studies.execute import RunStatus, StudyOptions, execute
from fairshot.studies.plan import PlannedRun, plan


class RunsRefused(UserError):
    """Runs of a comparison that could not be begun or ended; each was reported with its reason."""

    refused: Sequence[str]
    stopped: Sequence[str]

    def __str__(self) -> str:
        missing = f"not among the results, for the reasons above: {', '.join(self.refused)}"
        return "\n".join([missing, *self.stopped])


@dataclass(frozen=True)
class Comparison:
    """What was compared: all planned runs, and how those that were begun have ended."""

    planned: list[PlannedRun]
    ended: list[RunStatus]

    @property
    def results(self) -> dict[Path, Result]:
        """The results of the finished runs by their folders, also where the others had a problem."""
        return {each.out: Result.read(each.out) for each in self.planned if each.finished}

    def check(self) -> None:
        """Raise an error if runs were refused, each of which was reported before, or stopped."""
        refused = [status.planned.title for status in self.ended if isinstance(status.problem, UserError)]
        stopped = [f"{status.planned.title}: {status.problem}" for status in self.ended if status.unfinished]
        if refused:
            raise RunsRefused(refused, stopped)
        if stopped:
            raise TrainingStopped("\n".join(stopped))


def compare(
    methods: Sequence[str],
    out: Path,
    benchmarks: Sequence[str] = ("doodles",),
    seeds: Sequence[int] = (0,),
    class_orders: Sequence[int | None] = (None,),
    overrides: Sequence[str] = (),
    options: StudyOptions = StudyOptions(),
) -> Comparison:
    """Run every method on every benchmark with every seed and class order (None: the official one).

    Finished runs are not repeated and interrupted ones go on: the same call continues a comparison, and one
    with more methods or seeds extends it. A run that is refused does not keep the others from running.
    """
    planned = plan(methods, benchmarks, seeds, class_orders, overrides, out, options.fresh)
    ended = []
    for status in execute(planned, options):
        if isinstance(status.problem, UserError):
            options.reporter.say(RunRefused(status.planned.title, status.problem))
        ended.append(status)
    return Comparison(planned, ended)
