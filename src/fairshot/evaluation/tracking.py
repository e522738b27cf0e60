"""Trackers that show runs while they train: TensorBoard and Weights & Biases, beside `training.csv`.

What was logged is noted beside a tracker's files, so that a run that goes on, or is logged only when it has
finished, logs everything once.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from fairshot.documents import Document, read_model, write_json
from fairshot.errors import ExtraMissing, UserError
from fairshot.evaluation.metrics import Metrics, SessionMetrics
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FIGURES
from fairshot.recipes import Recipe
from fairshot.settings import flat
from fairshot.training.state import Row

if TYPE_CHECKING:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

TrackerName = Literal["tensorboard", "wandb"]
Draw = Callable[[Sequence[Result], Path], Sequence[Path]]  # writes the figures of runs into a folder
LOGGED = "logged.json"
ACCURACIES = ("overall", "base", "inc", "harmonic_mean")  # of each session
SUMMARIES = (
    *("overall_avg", "last", "pd", "base_avg", "inc_avg", "harmonic_mean_avg"),
    *("base_inc", "cinc_pinc", "bicp"),
)


class TrackerRefused(UserError):
    """Weights & Biases cannot be logged to now."""

    reason: str
    message = (
        "Weights & Biases cannot be logged to ({reason}); log in (wandb login), or set WANDB_MODE=offline to "
        "log into the folder of the run alone"
    )


@dataclass(frozen=True)
class Tracking:
    """Which trackers runs are logged to, and what draws their figures."""

    names: Sequence[TrackerName] = ()
    draw: Draw | None = None

    def check(self) -> None:
        """Refuse a tracker whose package is not installed."""
        for name in self.names:
            if find_spec(name) is None:
                raise ExtraMissing(f"logging to {name}", name)


UNTRACKED = Tracking()


class RunLog:
    """Logs the training curve, the accuracies and the figures of a run to its trackers."""

    def __init__(self, run: Path, recipe: Recipe, tracking: Tracking) -> None:
        self.run, self.recipe, self.draw = run, recipe, tracking.draw
        kinds = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
        self.trackers: list[Tracker] = [kinds[name](run / name, recipe) for name in tracking.names]

    def open(self) -> None:
        """Reach the trackers now, so that one that refuses does so before anything is trained."""
        for tracker in self.trackers:
            tracker.open()

    def log_training(self, rows: Sequence[Row]) -> None:
        """Log the rows of the training curve that were not logged before."""
        for tracker in self.trackers:
            for row in rows:
                if row["step"] > tracker.logged.step:
                    values = {f"training/{key}": row[key] for key in row if key != "step"}
                    tracker.log(values, int(row["step"]))
                    tracker.note(step=int(row["step"]))

    def log_result(self, result: Result) -> None:
        """Log the accuracies of the sessions, the summary and the figures, unless that was done before."""
        waiting = [tracker for tracker in self.trackers if not tracker.logged.finished]
        figures = self.draw([result], self.run / FIGURES) if self.draw and waiting else ()
        for tracker in waiting:
            for number, session in enumerate(result.metrics.sessions):
                accuracies = _known(session, ACCURACIES)
                tracker.log({f"sessions/{name}": value for name, value in accuracies.items()}, number)
            tracker.log_summary(_known(result.metrics, SUMMARIES))
            for path in figures:
                if path.suffix == ".png":
                    tracker.log_figure(path.stem, path)
            tracker.note(finished=True)

    def close(self) -> None:
        """Write what trackers keep back, and close them."""
        for tracker in self.trackers:
            tracker.close()


def _known(metrics: Metrics | SessionMetrics, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics of these names that are not None."""
    return {name: value for name in names if (value := getattr(metrics, name)) is not None}


class Logged(Document):
    """What a tracker has logged of a run."""

    id: str  # of the run, for the tracker
    step: int = 0  # the last of the training curve
    finished: bool = False


class Tracker(ABC):
    """One tracker of one run, whose files lie in a folder of the run. It is opened when first needed."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.logged = Logged(id=uuid.uuid4().hex[:12])
        if (folder / LOGGED).is_file():
            self.logged = read_model(folder / LOGGED, Logged, "a note of what was logged")

    def note(self, **changes: Any) -> None:
        """Note what was logged."""
        self.logged = self.logged.model_copy(update=changes)
        write_json(self.folder / LOGGED, self.logged.model_dump_json() + "\n")

    @abstractmethod
    def open(self) -> None:
        """Reach the tracker, unless that was done before."""

    @abstractmethod
    def log(self, values: dict[str, float], step: int) -> None:
        """Log numbers whose names begin with a group: training/, whose steps are counted, or sessions/."""

    @abstractmethod
    def log_summary(self, summary: dict[str, float]) -> None:
        """Log the numbers that sum a run up, with its settings."""

    @abstractmethod
    def log_figure(self, name: str, png: Path) -> None:
        """Log a figure."""

    @abstractmethod
    def close(self) -> None:
        """Write what is kept back."""


class TensorBoard(Tracker):
    """TensorBoard, by the logger that Lightning Fabric has for it."""

    @cached_property
    def logger(self) -> TensorBoardLogger:
        """The logger; it makes a file when it is first used."""
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        return TensorBoardLogger(self.folder.parent, name=self.folder.name, version="")

    def open(self) -> None:
        _ = self.logger.experiment

    def log(self, values: dict[str, float], step: int) -> None:
        self.logger.log_metrics(values, step)
        self.logger.save()  # to the disk, before it is noted as logged

    def log_summary(self, summary: dict[str, float]) -> None:
        metrics = {f"summary/{name}": value for name, value in summary.items()}
        self.logger.log_hyperparams(dict(flat(self.recipe.as_dict())), metrics, 0)

    def log_figure(self, name: str, png: Path) -> None:
        with Image.open(png) as image:
            pixels = np.asarray(image.convert("RGB"))
        self.logger.experiment.add_image(f"figures/{name}", pixels, dataformats="HWC")

    def close(self) -> None:
        if "logger" in vars(self):
            self.logger.finalize("success")


class WeightsAndBiases(Tracker):
    """Weights & Biases, as its settings in the environment say: online, or offline into the run's folder."""

    @cached_property
    def run(self) -> Any:
        """The run as wandb knows it, by the same id each time."""
        os.environ.setdefault("WANDB_SILENT", "true")  # it would print into the progress of the run
        import wandb

        try:
            run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "fairshot"),
                dir=self.folder.parent,  # in which it makes a folder `wandb`
                id=self.logged.id,
                name=self.folder.parent.resolve().name,
                config=self.recipe.as_dict(),
                resume="allow",
            )
        except wandb.Error as problem:
            raise TrackerRefused(str(problem).partition("\n")[0]) from problem
        for group in ("training", "sessions"):
            run.define_metric(f"{group}/*", step_metric=f"{group}/step")
        return run

    def open(self) -> None:
        _ = self.run

    def log(self, values: dict[str, float], step: int) -> None:
        (group,) = {name.partition("/")[0] for name in values}
        self.run.log({f"{group}/step": step, **values})

    def log_summary(self, summary: dict[str, float]) -> None:
        self.run.summary.update(summary)

    def log_figure(self, name: str, png: Path) -> None:
        import wandb

        self.run.log({f"figures/{name}": wandb.Image(str(png))})

    def close(self) -> None:
        if "run" in vars(self):
            self.run.finish()
