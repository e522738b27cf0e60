"""Result: what a run leaves behind. Every metric is derived from its confusion matrices."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from fairshot.benchmarks.pictures import Ints
from fairshot.errors import NoRun, UserError
from fairshot.evaluation.metrics import Metrics, metrics_from_confusions
from fairshot.evaluation.run_folder import RESULT
from fairshot.files import write_atomically

RECORDED_PACKAGES = ("fairshot", "torch", "torchvision", "timm", "lightning-fabric", "scikit-learn", "numpy")


class Environment(BaseModel):
    """What the numbers were computed with."""

    model_config = ConfigDict(extra="forbid")

    python: str
    packages: dict[str, str]
    device: str
    cores: int

    @classmethod
    def current(cls, device: str) -> Environment:
        """Describe this process."""
        packages = {}
        for name in RECORDED_PACKAGES:
            try:
                packages[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                packages[name] = "not installed as a package"
        return cls(
            python=platform.python_version(), packages=packages, device=device, cores=os.cpu_count() or 1
        )


class Result(BaseModel):
    """One finished run."""

    model_config = ConfigDict(extra="forbid")

    method: str
    benchmark: str
    seed: int
    command: str
    recipe: dict[str, Any]
    class_names: list[str]
    sessions: list[list[int]]  # class ids that each session introduced
    confusions: list[list[list[int]]]  # per session: rows true, columns predicted, over the classes seen
    novel_only: list[float | None]  # per session: accuracy in % when only incremental classes may be answered
    transductive: bool  # whether unlabelled test images moved the classifiers (Calibration)
    seconds: dict[str, float]
    environment: Environment
    base: str | None = None  # the run whose base session was loaded, if one was
    pictures: str = ""  # of own pictures: a digest that tells them from others in a folder of the same name

    @property
    def metrics(self) -> Metrics:
        """All metrics of the run."""
        return metrics_from_confusions(self.confusion_arrays, [len(classes) for classes in self.sessions])

    @property
    def confusion_arrays(self) -> list[Ints]:
        """The confusion matrices as arrays."""
        return [np.array(matrix, dtype=np.int64) for matrix in self.confusions]

    @property
    def base_names(self) -> list[str]:
        """The names of the base classes."""
        return self.class_names[: len(self.sessions[0])]

    def write(self, folder: Path) -> None:
        """Write `result.json` into the folder of the run."""
        write_atomically(folder / RESULT, (self.model_dump_json(indent=None) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Result:
        """Read the result of a run from its folder."""
        path = folder / RESULT
        if not path.is_file():
            raise NoRun(folder, RESULT)
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValueError as problem:
            raise UserError(f"{path} is not a result this version can read: {problem}") from problem
