"""Runs on a Ray cluster: one GPU per run, as many at once as the cluster has; folders on a shared disk."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from fairshot.benchmarks.stream import Stream
from fairshot.documents import parse_yaml
from fairshot.errors import ExtraMissing, TrainingStopped, UserError
from fairshot.evaluation.run_folder import LOG
from fairshot.methods.plugins import load_plugin, plugin_sources
from fairshot.progress import SILENT, Advance, LogReporter, Reporter
from fairshot.recipes import check_recipe
from fairshot.studies.execute import RunStatus, StudyOptions, run_planned, without_base
from fairshot.studies.plan import PlannedRun
from fairshot.training.hardware import choose_hardware

RETRIES = 3  # of a run whose machine is lost; it goes on from its checkpoint


@dataclass(frozen=True)
class Task:
    """A planned run as it is sent to a machine of the cluster."""

    recipe: str  # as YAML: the settings of a method of one's own cannot be sent before its file is loaded
    out: Path
    base: Path | None
    split: Path | None
    prepare: Callable[[Stream], Stream] | None
    options: StudyOptions
    deadline: float  # in seconds of time.time(), which machines share
    plugin_methods: list[str]
    call: str  # the same for all runs of a study, however often a machine is lost


def run_on_ray(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    """Run on the Ray cluster that is reachable from here, or on this machine if none is; yield as they end.

    A run that reads the base session or the split of another planned one begins when that one has ended.
    Closed early, it asks all runs to stop, which they do after a checkpoint. A fresh run is cleared once: one
    whose machine is lost goes on.
    """
    deadline, call = time.time() + 60 * options.max_minutes, uuid.uuid4().hex
    ray, device = _connect(), options.device
    if device == "auto":
        device = "cuda" if ray.cluster_resources().get("GPU", 0) else "cpu"
    start = ray.remote(num_cpus=1, num_gpus=int(device == "cuda"), max_retries=RETRIES)(run_task)
    root, photos = _absolute(options.root), _absolute(options.photos)
    sent = replace(options, device=device, root=root, photos=photos, reporter=SILENT)
    left = list(planned)
    running: dict[Any, PlannedRun] = {}  # by Ray's reference
    failed: set[Path] = set()
    try:
        with LogView(options.reporter) as view:
            while left or running:
                for each in ready(left, running.values()):
                    left.remove(each)
                    if lost := without_base(each, failed):
                        yield lost
                        continue
                    running[start.remote(task_of(each, sent, deadline, call))] = each
                done, _ = ray.wait(list(running), timeout=1.0)
                for reference in done:
                    ended = running.pop(reference)
                    view.hide(ended)
                    status = _status(ray, reference, ended)
                    if status.failed:
                        failed.add(ended.out)
                    yield status
                view.refresh(running.values())
    finally:
        for reference in running:
            ray.cancel(reference)
        ray.shutdown()


def ready(left: Sequence[PlannedRun], running: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Return the runs that read nothing of a run that is under way or planned before them."""
    unfinished, ready = {each.out for each in running}, []
    for each in left:
        if unfinished.isdisjoint({each.base, each.split}):
            ready.append(each)
        unfinished.add(each.out)
    return ready


def task_of(planned: PlannedRun, options: StudyOptions, deadline: float, call: str) -> Task:
    """Return a planned run as another process gets it."""
    return Task(
        planned.recipe.as_yaml(),
        planned.out.resolve(),
        _absolute(planned.base),
        _absolute(planned.split),
        planned.prepare,
        options,
        deadline,
        plugin_sources(),
        call,
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def _connect() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError:
        raise ExtraMissing("a study on a cluster", "cluster") from None
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:  # a cluster of this machine alone, whose processes import what this one does
        here = [str(Path(path).resolve()) for path in sys.path if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(here)
        ray.init(include_dashboard=False, **quiet)
    module: ModuleType = ray
    return module


def _status(ray: ModuleType, reference: object, planned: PlannedRun) -> RunStatus:
    try:
        return RunStatus(planned, ray.get(reference))
    except ray.exceptions.RayError as problem:
        return RunStatus(planned, UserError(f"its process was lost or failed: {problem}"))


def run_task(task: Task) -> UserError | TrainingStopped | None:
    """Run one in a process of the cluster; return the problem that ended it, if any."""
    for source in task.plugin_methods:
        load_plugin(source)
    minutes = (task.deadline - time.time()) / 60
    if minutes <= 0:
        return TrainingStopped("the time was up before it began")
    options = replace(task.options, max_minutes=minutes, reporter=LogReporter(task.out / LOG))
    recipe = check_recipe(parse_yaml(task.recipe))
    planned = PlannedRun(recipe, task.out, base=task.base, split=task.split, prepare=task.prepare)
    return run_planned(planned, options, choose_hardware(options.device), task.call).problem


class LogView(ExitStack):
    """Shows of each run on another machine what it last logged."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.reporter = reporter
        self.shown: dict[Path, tuple[ExitStack, Advance]] = {}

    def refresh(self, planned: Iterable[PlannedRun]) -> None:
        """Show the last line of each log."""
        for each in planned:
            if not (line := _last_line(each.out / LOG)):
                continue
            if each.out not in self.shown:
                stack = self.enter_context(ExitStack())
                self.shown[each.out] = stack, stack.enter_context(self.reporter.track(each.title, 1))
            self.shown[each.out][1](0, line)

    def hide(self, planned: PlannedRun) -> None:
        """Show nothing more of a run, which has ended."""
        if planned.out in self.shown:
            self.shown.pop(planned.out)[0].close()


def _last_line(log: Path) -> str:
    return log.read_text().rstrip().rpartition("\n")[2][20:] if log.is_file() else ""  # without the time
