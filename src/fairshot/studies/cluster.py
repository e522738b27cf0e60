"""Runs on a Ray cluster: one GPU a run, as many at once as the cluster has; folders on a shared disk."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import yaml

from fairshot.errors import TrainingStopped, UserError
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.run_folder import LOG
from fairshot.methods.plugins import load_plugin, plugin_sources
from fairshot.progress import LogReporter
from fairshot.recipes import check_recipe
from fairshot.studies.plan import PlannedRun
from fairshot.training.hardware import choose_hardware

RETRIES = 3  # of a run whose machine is lost; it goes on from its checkpoint


@dataclass(frozen=True)
class RunStatus:
    """A run that has ended: well, or with a problem, or before its end."""

    cell: PlannedRun
    problem: str | None = None
    unfinished: bool = False


@dataclass(frozen=True)
class Task:
    """What a machine of the cluster needs to know of a run."""

    recipe: str
    out: Path
    device: str
    command: str
    root: Path | None
    photos: Path | None
    deadline: float  # in seconds of time.time(), which machines share
    own_methods: list[str]
    fresh: bool
    call: str  # the same for all runs of a grid, however often a machine is lost


def run_on_ray(
    cells: Sequence[PlannedRun],
    device: str,
    command: str,
    root: Path | None,
    photos: Path | None,
    fresh: bool,
    max_minutes: float,
) -> Iterator[RunStatus | None]:
    """Run cells on the Ray cluster that is reachable from here, or on this machine if none is.

    Yields each as it ends, in between None about every second. Closed early, it asks all runs to stop,
    which they do after a checkpoint. A fresh run is cleared once: one whose machine is lost goes on.
    """
    deadline, call = time.time() + 60 * max_minutes, uuid.uuid4().hex
    root, photos = (None if path is None else path.resolve() for path in (root, photos))
    ray = _connected()
    if device == "auto":
        device = "cuda" if ray.cluster_resources().get("GPU", 0) else "cpu"
    gpus = 1 if device == "cuda" else 0
    start = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_run_there)
    task = Task("", Path(), device, command, root, photos, deadline, plugin_sources(), fresh, call)
    waiting = {}
    try:
        for cell in cells:
            reference = start.remote(replace(task, recipe=cell.recipe.as_yaml(), out=cell.out.resolve()))
            waiting[reference] = cell
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=1.0)
            for reference in done:
                yield _ended(ray, reference, waiting.pop(reference))
            if not done:
                yield None
    finally:
        for reference in waiting:
            ray.cancel(reference)
        ray.shutdown()


def _connected() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'fairshot[cluster]'") from None
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:  # a cluster of this machine alone, whose processes import what this one does
        here = [str(Path(path).resolve()) for path in sys.path if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(here)
        ray.init(include_dashboard=False, **quiet)
    module: ModuleType = ray
    return module


def _ended(ray: ModuleType, reference: object, cell: PlannedRun) -> RunStatus:
    try:
        ended: RunStatus = replace(ray.get(reference), cell=cell)
    except ray.exceptions.RayError as problem:
        return RunStatus(cell, f"its process was lost or failed: {problem}")
    return ended


def _run_there(task: Task) -> RunStatus:
    """Run one cell in a process of the cluster."""
    for source in task.own_methods:
        load_plugin(source)
    recipe = check_recipe(yaml.safe_load(task.recipe))
    cell = PlannedRun(recipe, task.out)
    minutes = (task.deadline - time.time()) / 60
    if minutes <= 0:
        return RunStatus(cell, "the time was up before it began", unfinished=True)
    place = RunOptions(
        task.out,
        choose_hardware(task.device),
        task.command,
        task.root,
        task.photos,
        fresh=task.fresh,
        max_minutes=minutes,
        reporter=LogReporter(task.out / LOG),
        call=task.call,
    )
    try:
        run(recipe, place)
    except UserError as problem:
        return RunStatus(cell, str(problem))
    except TrainingStopped as stopped:
        return RunStatus(cell, str(stopped), unfinished=True)
    return RunStatus(cell)
