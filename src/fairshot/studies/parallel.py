"""Runs in several processes of this machine at once, which may share its GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from fairshot.errors import UserError
from fairshot.progress import SILENT
from fairshot.studies.cluster import LogView, Task, ready, run_task, task_of
from fairshot.studies.execute import RunStatus, StudyOptions, without_base
from fairshot.studies.gpu_sharing import shared_gpu
from fairshot.studies.plan import PlannedRun

SECONDS_BETWEEN_LOOKS = 1.0  # at the logs of the runs


@dataclass(frozen=True)
class _Started:
    """A run under way, and where its process says how it ended."""

    planned: PlannedRun
    process: SpawnProcess
    answer: Connection

    def status(self) -> RunStatus:
        """Return how it ended, once its process has."""
        self.process.join()
        try:
            return RunStatus(self.planned, self.answer.recv())
        except EOFError:
            code = self.process.exitcode
            return RunStatus(
                self.planned, UserError(f"its process was lost or failed, with exit code {code}")
            )


def run_in_processes(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    """Run as many at once as the options say, each in a process of its own; yield as they end.

    A run that reads the base session or the split of another planned one begins when that one has ended.
    Closed early, it asks all runs to stop, which they do after a checkpoint.
    """
    on_gpu = options.device != "cpu" and torch.cuda.is_available()
    with shared_gpu() if on_gpu else nullcontext():
        yield from _run_all(planned, options)


def _run_all(planned: Sequence[PlannedRun], options: StudyOptions) -> Iterator[RunStatus]:
    deadline, call = time.time() + 60 * options.max_minutes, uuid.uuid4().hex
    sent = replace(options, reporter=SILENT)
    left, running, failed = list(planned), list[_Started](), set[Path]()
    try:
        with LogView(options.reporter) as view:
            while left or running:
                free = options.parallel - len(running)
                for each in ready(left, [one.planned for one in running])[:free]:
                    left.remove(each)
                    if lost := without_base(each, failed):
                        yield lost
                        continue
                    running.append(_start(each, task_of(each, sent, deadline, call)))
                ended = wait([one.process.sentinel for one in running], SECONDS_BETWEEN_LOOKS)
                for one in [one for one in running if one.process.sentinel in ended]:
                    running.remove(one)
                    view.hide(one.planned)
                    status = one.status()
                    if status.failed:
                        failed.add(one.planned.out)
                    yield status
                view.refresh([one.planned for one in running])
    finally:
        for one in running:
            if one.process.pid is not None and one.process.is_alive():
                os.kill(one.process.pid, signal.SIGINT)
        for one in running:
            one.process.join()


def _start(planned: PlannedRun, task: Task) -> _Started:
    context = multiprocessing.get_context("spawn")  # a GPU cannot be used in a process that was forked
    answer, own = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(task, own))
    process.start()
    own.close()  # so that the end of the process is the end of the pipe
    return _Started(planned, process, answer)


def _run(task: Task, answer: Connection) -> None:
    problem = run_task(task)
    with suppress(BrokenPipeError):  # whoever started it was killed, and nobody listens
        answer.send(problem)
