"""Result: what a run leaves behind. Every metric is derived from its confusion matrices."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from fairshot.benchmarks.pictures import Ints
from fairshot.documents import Document, read_model, write_json
from fairshot.errors import NoRun
from fairshot.evaluation.checkout import checkout_of
from fairshot.evaluation.metrics import Metrics, metrics_from_confusions
from fairshot.evaluation.run_folder import RESULT
from fairshot.methods import methods
from fairshot.training.loop import Budget

Count = Annotated[int, Field(ge=0, lt=2**53)]
BASE_SESSION = "base session"  # a part of `Result.seconds`
RECORDED_PACKAGES = ("fairshot", "torch", "torchvision", "timm", "lightning-fabric", "scikit-learn", "numpy")


class Environment(Document):
    """What the numbers were computed with."""

    python: str
    packages: dict[str, str]
    device: str
    cores: int
    commit: str | None = None  # of the checkout that finished the run, if git knows one
    changed: bool | None = None  # whether the package differed from that commit

    @classmethod
    def current(cls, device: str) -> Environment:
        """Describe this process."""
        packages = {}
        for name in RECORDED_PACKAGES:
            try:
                packages[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                packages[name] = "not installed as a package"
        checkout = checkout_of()
        return cls(
            python=platform.python_version(),
            packages=packages,
            device=device,
            cores=os.cpu_count() or 1,
            commit=checkout and checkout.commit,
            changed=checkout and checkout.changed,
        )

    @property
    def software(self) -> str:
        """Python, the packages, and the commit of this one, in words."""
        parts = [f"Python {self.python}", *(f"{name} {number}" for name, number in self.packages.items())]
        if self.commit is not None:
            parts.append(f"commit {self.commit[:12]}{' with changes' if self.changed else ''}")
        return ", ".join(parts)


class Result(Document):
    """One finished run."""

    method: str
    benchmark: str
    seed: int
    command: str
    recipe: dict[str, Any]
    class_names: list[str]
    sessions: list[list[int]]  # class ids that each session introduced
    confusions: list[list[list[Count]]]  # per session: rows true, columns predicted, over the classes seen
    novel_only: list[float | None]  # per session: accuracy in % when only incremental classes may be answered
    transductive: bool  # whether unlabelled test images moved the classifiers (Calibration)
    seconds: dict[str, float]
    environment: Environment
    base: str | None = None  # the run whose base session was loaded, if one was
    pictures: str = ""  # of own pictures: a digest that tells them from others in a folder of the same name
    training_sha256: str = ""  # of training.csv
    images: Count | None = None  # through the network in the base session, counted in the training loop
    epochs: Count | None = None  # of the base session, without further phases
    budget: Budget = "epochs"  # what decided for how long that was
    kept_bytes: Count | None = None  # of all classes after the last session, beside the networks

    @model_validator(mode="after")
    def _matrices_fit_the_sessions(self) -> Self:
        """Refuse matrices of another shape than the classes seen, of which metrics could not be computed."""
        seen = list(accumulate(len(classes) for classes in self.sessions))
        shapes = [[len(row) for row in matrix] for matrix in self.confusions]
        if not seen or shapes != [[classes] * classes for classes in seen]:
            raise ValueError("the confusion matrices do not fit the classes of the sessions")
        if len(self.class_names) < seen[-1] or len(self.novel_only) != len(seen):
            raise ValueError("there is not a name for each class and a number for each session")
        return self

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the recipe; an empty one where a result of another version has none."""
        found = self.recipe.get(name)
        return found if isinstance(found, Mapping) else {}

    @property
    def class_order(self) -> int | None:
        """The seed by which the classes were shuffled; None for the official order."""
        order: int | None = self.section("benchmark").get("class_order_seed")
        return order

    @property
    def of_own_pictures(self) -> bool:
        """Whether the run was on own pictures, even if their folder is called like a benchmark."""
        named = self.section("benchmark").get("name", self.benchmark)
        return bool(self.pictures) or named != self.benchmark

    @property
    def untrained(self) -> bool:
        """Whether nothing was trained, so that the network stayed as it began.

        A method that is not known here may have trained it in its sessions.
        """
        kind = methods().get(self.method)
        passed = self.section("training").get("epochs") if self.images is None else self.images
        return kind is not None and kind.frozen and passed == 0

    @property
    def own_seconds(self) -> dict[str, float]:
        """Seconds of each part of the run, without a base session that another run trained."""
        loaded = self.base is not None
        return {part: took for part, took in self.seconds.items() if not (loaded and part == BASE_SESSION)}

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
        write_json(folder / RESULT, self.model_dump_json() + "\n")

    @classmethod
    def read(cls, folder: Path) -> Result:
        """Read the result of a run from its folder."""
        path = folder / RESULT
        if not path.is_file():
            raise NoRun(folder, RESULT)
        return read_model(path, cls, "a result")
