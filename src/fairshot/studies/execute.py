"""The executor of planned runs: here, one after the other or several at once, or on a Ray cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.run_folder import LOG
from fairshot.evaluation.tracking import UNTRACKED, Tracking
from fairshot.progress import SILENT, Reporter, RunFinished
from fairshot.studies.plan import PlannedRun
from fairshot.training.hardware import choose_hardware

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class StudyOptions:
    """How the runs of a study are run: nothing here changes their numbers on one kind of device."""

    device: str = "auto"
    root: Path | None = None  # where benchmarks are looked for
    photos: Path | None = None  # own pictures instead of a benchmark: photos/<class>/*
    fresh: bool = False  # remove what an earlier call left in the folders
    on_ray: bool = False  # on a Ray cluster, one GPU per run; folders must be on a shared disk
    max_minutes: float = math.inf  # for all runs together
    command: str = ""  # recorded in each result
    reporter: Reporter = SILENT
    tracking: Tracking = UNTRACKED
    parallel: int = 1  # runs at once, in processes of this machine
    compiled: bool = True  # whether training steps are compiled for a GPU


@dataclass(frozen=True)
class RunStatus:
    """A run that has ended: well, or with the problem that ended it."""

    planned: PlannedRun
    problem: UserError | TrainingStopped | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it was stopped, and can go on."""
        return isinstance(self.problem, TrainingStopped)

    def check(self) -> None:
        """Raise the problem, if there is one."""
        if self.problem is not None:
            raise self.problem


def execute(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    """Run what is planned, and yield each run as it ends; finished ones are not repeated.

    Of own pictures a run itself finds out whether they are still the same, and of one that is logged to a
    tracker, what is not logged yet.
    """
    kept = not options.fresh and options.photos is None and not options.tracking.names
    done = [each for each in planned if kept and each.finished]
    waiting = [each for each in planned if each not in done]
    reporter = options.reporter
    with reporter.track("runs", len(planned), len(done)) as advance:
        for each in done:
            reporter.say(RunFinished(each.out, trial=each.prepare is not None))
            yield RunStatus(each)
        for left, status in enumerate(_start(waiting, options), start=1 - len(waiting)):
            if status.problem is None:
                reporter.say(f"{status.planned.title}: finished; runs still to come: {-left}")
            advance()
            yield status


def _start(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    if options.on_ray and planned:
        from fairshot.studies.cluster import run_on_ray

        return run_on_ray(planned, options)
    if options.parallel > 1 and len(planned) > 1:
        from fairshot.studies.parallel import run_in_processes

        return run_in_processes(planned, options)
    return _run_here(planned, options)


def _run_here(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    """Run one after the other, until one is stopped."""
    deadline, fabric = time.monotonic() + 60 * options.max_minutes, choose_hardware(options.device)
    for each in planned:
        minutes = max(0, (deadline - time.monotonic()) / 60)
        reporter = options.reporter.of_run(each.title, each.out / LOG)
        status = run_planned(each, replace(options, max_minutes=minutes, reporter=reporter), fabric)
        yield status
        if status.unfinished:
            return


def run_planned(planned: PlannedRun, options: StudyOptions, fabric: Fabric, call: str = "") -> RunStatus:
    """Run one, and say how it ended; the reporter is its own."""
    own = RunOptions(
        planned.out,
        fabric,
        options.command,
        options.root,
        options.photos,
        planned.split,
        planned.base,
        options.fresh,
        options.max_minutes,
        options.reporter,
        planned.prepare,
        call,
        options.tracking,
        options.compiled,
    )
    try:
        run(planned.recipe, own)
    except (UserError, TrainingStopped) as problem:
        return RunStatus(planned, problem)
    return RunStatus(planned)
