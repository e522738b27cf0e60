"""The executor of planned runs: here, one after the other or several at once, or on a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.experiment import CommonOptions, RunOptions, run
from fairshot.evaluation.run_folder import LOG, MODEL
from fairshot.progress import RunFinished
from fairshot.studies.plan import PlannedRun
from fairshot.training.hardware import choose_hardware

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class StudyOptions(CommonOptions):
    """How the runs of a study are run: nothing here changes their numbers on one kind of device."""

    device: str = "auto"
    on_ray: bool = False  # on a Ray cluster, one GPU per run; folders must be on a shared disk
    parallel: int = 1  # runs at once, in processes of this machine


@dataclass(frozen=True)
class RunStatus:
    """A run that has ended: well, or with the problem that ended it."""

    planned: PlannedRun
    problem: UserError | TrainingStopped | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it was stopped, and can go on."""
        return isinstance(self.problem, TrainingStopped)

    @property
    def failed(self) -> bool:
        """Whether it ended with a problem, and was not merely stopped."""
        return self.problem is not None and not self.unfinished

    def check(self) -> None:
        """Raise the problem, if there is one."""
        if self.problem is not None:
            raise self.problem


class BaseRunFailed(UserError):
    """A run was to load the base session of one that ended with a problem before it had learnt it."""

    base: Path
    message = (
        "it needs the base session of {base}, which has not ended well; once it has, the same command goes on"
    )


def without_base(planned: PlannedRun, failed: Container[Path]) -> RunStatus | None:
    """Return the status of a run that cannot begin, because what it was to load is among failed runs."""
    base = planned.base
    if base is None or base not in failed or (base / MODEL).is_file():
        return None
    return RunStatus(planned, BaseRunFailed(base))


def execute(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    """Run what is planned, and yield each run as it ends; finished ones are not repeated.

    Finished runs on own pictures are begun again, because they check whether the pictures are the same; so
    are those with a tracker, because they log what is not logged yet.
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
    failed: set[Path] = set()
    for each in planned:
        status = without_base(each, failed)
        if status is None:
            minutes = max(0, (deadline - time.monotonic()) / 60)
            reporter = options.reporter.of_run(each.title, each.out / LOG)
            status = run_planned(each, replace(options, max_minutes=minutes, reporter=reporter), fabric)
        if status.failed:
            failed.add(each.out)
        yield status
        if status.unfinished:
            return


def run_planned(planned: PlannedRun, options: StudyOptions, fabric: Fabric, call: str = "") -> RunStatus:
    """Run one, and say how it ended; the reporter is its own."""
    common = {field.name: getattr(options, field.name) for field in fields(CommonOptions)}
    inputs = planned.split, planned.base, planned.prepare
    own = RunOptions(planned.out, fabric, *inputs, call, **common)
    try:
        run(planned.recipe, own)
    except (UserError, TrainingStopped) as problem:
        return RunStatus(planned, problem)
    return RunStatus(planned)
