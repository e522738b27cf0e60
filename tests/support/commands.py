"""Run the real command line in processes of its own, without paying for the imports each time.

A server process imports the command line once and forks for each command. What a test sees is what a
terminal sees: arguments in, exit code, output and files out; the process can be sent any signal. Only the
figures it writes are blank: drawing them takes longer than a tiny run, and tests/reporting looks at them.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from PIL import _plugins as pillow_plugins

from fairshot import methods

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODULES = [module.name for module in pkgutil.iter_modules(methods.__path__)]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(  # with what they need, all that takes long to import
    [
        *("fairshot.speed.mixtures", "fairshot.speed.train", "fairshot.studies.gate_search"),
        *("fairshot.studies.tuning", "fairshot.studies.poisoning", "fairshot.studies.comparison"),
        *("fairshot.reporting.ablations", "fairshot.reporting.report", "fairshot.teaching.backbone_spec"),
        *("fairshot.teaching.run_spec", "fairshot.cli", "matplotlib.backends.backend_agg", "pillow_heif"),
        *(f"PIL.{name}" for name in pillow_plugins),
        *(f"fairshot.methods.{name}" for name in _MODULES),
    ]
)

TINY = [  # a run of SSS on doodles that takes seconds
    *("--set", "benchmark.base_classes=6", "--set", "benchmark.way=2", "--set", "benchmark.sessions=2"),
    *("--set", "training.epochs=1", "--set", "training.batch=60", "--set", "model.size=12"),
    *("--set", "method.sr_width=32", "--device", "cpu"),
]


@dataclass
class Command:
    """A command under way."""

    process: BaseProcess
    output: Path
    errors: Path

    @property
    def stdout(self) -> str:
        return self.output.read_text()

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    def wait(self) -> int:
        """Return the exit code, or minus the signal that ended it."""
        self.process.join(240)
        assert self.process.exitcode is not None, f"still running: {self.stderr}"
        return self.process.exitcode

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something the command does, as long as it runs."""
        while not condition():
            assert self.process.is_alive(), f"it ended: {self.stdout}{self.stderr}"
            time.sleep(0.01)


def set_environment(values: dict[str, str]) -> None:
    """Set variables in the process of a command, as `before`: it does not inherit those of a test."""
    os.environ.update(values)


def start(folder: Path, *arguments: str | Path, before: Callable[[], None] | None = None) -> Command:
    """Start `fairshot ARGUMENTS` in a folder; `before` is called in its process first."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob(".stdout-*")))
    output, errors = folder / f".stdout-{number}", folder / f".stderr-{number}"
    given = [str(argument) for argument in arguments]
    process = CONTEXT.Process(target=_main, args=(given, folder, output, errors, before))
    process.start()
    return Command(process, output, errors)


def fairshot(folder: Path, *arguments: str | Path, before: Callable[[], None] | None = None) -> Command:
    """Run `fairshot ARGUMENTS` to its end."""
    command = start(folder, *arguments, before=before)
    command.wait()
    return command


def _main(
    arguments: list[str], folder: Path, output: Path, errors: Path, before: Callable[[], None] | None
) -> None:
    for path, stream in ((output, sys.stdout), (errors, sys.stderr)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have it ignored
    os.chdir(folder)
    sys.argv = ["fairshot", *arguments]
    if before is not None:
        before()
    from fairshot.cli import main
    from fairshot.reporting.figures import style, writer

    style.render = writer.render = blank
    main()


def blank(figure: Figure, kinds: Sequence[str]) -> dict[str, bytes]:
    """Return an empty picture of the size of a figure, in place of `style.render`."""
    width, height = 72 * figure.get_size_inches()
    frame = f'<svg viewBox="0 0 {width:g} {height:g}"></svg>'
    png = io.BytesIO()
    Image.new("1", (round(width), round(height))).save(png, "PNG")
    return dict.fromkeys(kinds, frame.encode()) | ({"png": png.getvalue()} if "png" in kinds else {})
