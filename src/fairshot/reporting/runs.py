"""Folders of runs as a report reads them: the result, and whatever else the run left, each piece optional."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fairshot.errors import DamagedFile, NoRunsFound, UserError
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import (
    CHECKPOINTS,
    FEATURES,
    MIRROR_TRADEOFF,
    RECIPE,
    RESULT,
    SEARCH,
    TRADEOFF,
    TRAINING,
    TRAINING_COLUMNS,
    TRIALS,
)
from fairshot.studies.tradeoff import TradeOff
from fairshot.tensor_files import check_tensors

TRACES = (RESULT, RECIPE, CHECKPOINTS, TRAINING)  # any of these makes a folder a run
DEEPEST_COLLECTION = 2  # folders below the one that is asked for: whole disks are not searched
NEEDED_FOR = {
    FEATURES: "t-SNE, heat map and FMO need the features of the test images",
    TRAINING: "the training curve needs it",
}

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Features:
    """Transferable features g (N, V, d) of the test images, the plain view first; classes in stream order."""

    g: Floats
    labels: NDArray[np.int64]
    base_classes: int

    @property
    def is_base(self) -> NDArray[np.bool_]:
        """Which images belong to base classes."""
        return self.labels < self.base_classes


@dataclass(frozen=True)
class Run:
    """A folder of a run, read as far as it goes; `missing` says what is not there, and why it matters."""

    folder: Path
    result: Result | None = None
    features_file: Path | None = None  # one that can be read
    training: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    trained: bool = True  # else it decided on the base session of another run, or on a frozen network
    trade_offs: tuple[TradeOff, ...] = ()  # without mirror images, and with them
    missing: tuple[str, ...] = ()

    def read_features(self) -> Features | None:
        """Read the features, which are large; a report needs them of few runs."""
        return None if self.features_file is None else _read_features(self.features_file)

    @property
    def base_session_of(self) -> str:
        """The run whose base session was loaded; nothing if this one trained its own, or nothing at all."""
        if self.trained or self.result is None or self.untrained:
            return ""
        return self.result.base or "another run"  # a result of an earlier version does not say which

    @property
    def untrained(self) -> bool:
        """Whether nothing was trained, here or in another run whose base session was loaded."""
        return self.result is not None and self.result.untrained and self.result.base is None

    @property
    def name(self) -> str:
        """The run as its reader knows it: the last two parts of its path."""
        return "/".join(self.folder.absolute().parts[-2:])


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of runs among the paths and directly below them, in order and without repetition."""
    found: dict[Path, None] = {}
    for path in paths:
        chosen = [path] if _is_run(path) else _runs_in(path)
        if not chosen:
            raise NoRunsFound(path, tuple(find_collections([path])))
        found.update(dict.fromkeys(chosen))
    return list(found)


def find_collections(paths: Sequence[Path]) -> dict[Path, int]:
    """Return the folders below the paths that hold runs of their own, and how many.

    They answer other questions than the runs beside them, such as shorter trainings or ablations; a report
    has them only where they are given.
    """
    given = {path.resolve() for path in paths}
    return {
        folder: len(runs)
        for path in paths
        if not _is_run(path)
        for folder, runs in _collections(path, DEEPEST_COLLECTION)
        if folder.resolve() not in given
    }


def _collections(folder: Path, depth: int) -> Iterator[tuple[Path, list[Path]]]:
    for child in _folders_in(folder) if depth else ():
        if not _is_run(child):
            if runs := _runs_in(child):
                yield child, runs
            yield from _collections(child, depth - 1)


def _runs_in(folder: Path) -> list[Path]:
    return [child for child in _folders_in(folder) if _is_run(child)]


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # not a folder, or somebody else's
        return []


def _is_run(folder: Path) -> bool:
    try:
        if (folder / RESULT).exists():
            return True
        searched = (folder / SEARCH).exists() or (folder / TRIALS).exists()
        return not searched and any((folder / trace).exists() for trace in TRACES)
    except OSError:
        return False


def read_run(folder: Path) -> Run:
    """Read what the folder holds; a missing or unreadable piece is a line in `missing`, never an error."""
    missing: list[str] = []
    result = features_file = None
    training: dict[str, NDArray[np.float64]] = {}
    trained = True
    try:
        result = Result.read(folder)
    except UserError as problem:
        resume = (
            "the run was interrupted; the same command, writing to the same folder, goes on where it stopped"
        )
        missing.append(str(problem) if (folder / RESULT).is_file() else f"no {RESULT}: {resume}")
    try:
        check_tensors(folder / FEATURES)
        _read_features(folder / FEATURES, first_alone=True)
        features_file = folder / FEATURES
    except (OSError, SafetensorError, KeyError, ValueError) as problem:
        missing.append(_lack(FEATURES, problem))
    try:
        training = _read_training(folder / TRAINING, "" if result is None else result.training_sha256)
        trained = bool(training)  # a finished run without a line has trained nothing
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as problem:
        missing.append(_lack(TRAINING, problem))
    trade_offs = _read_trade_offs(folder, missing)
    return Run(folder, result, features_file, training, trained, trade_offs, tuple(missing))


def _read_trade_offs(folder: Path, missing: list[str]) -> tuple[TradeOff, ...]:
    """Read the trade-offs that are there; of one that cannot be read, a line is added to `missing`."""
    found: dict[bool, TradeOff] = {}  # earlier versions wrote one with mirror images under the other name
    for name, mirror in ((TRADEOFF, False), (MIRROR_TRADEOFF, True)):
        if (folder / name).is_file():
            try:
                read = TradeOff.read(folder, mirror)
                found[read.mirror] = read
            except UserError as problem:
                missing.append(_lack(name, problem))
    return tuple(found.values())


def _lack(name: str, problem: Exception) -> str:
    if isinstance(problem, FileNotFoundError):
        return f"no {name}: {NEEDED_FOR[name]}"
    return f"{name} cannot be read: {problem}"


def without_repeats(runs: Sequence[Run]) -> list[Run]:
    """Keep one of the copies of a run, which says so; a mean over seeds has each once.

    A recipe for own pictures does not say which: only the same classes and answers make a copy.
    """
    kept: dict[str, Run] = {}
    for run in runs:
        result = run.result
        same = {"method", "benchmark", "sessions", "recipe", "class_names", "confusions"}
        content = str(run.folder) if result is None else result.model_dump(include=same)
        key = json.dumps(content, sort_keys=True, default=str)
        if key in kept:
            repeated = f"{run.name} has the same recipe, seed and answers, and is left out"
            kept[key] = replace(kept[key], missing=(*kept[key].missing, repeated))
        else:
            kept[key] = run
    return list(kept.values())


def _read_features(path: Path, first_alone: bool = False) -> Features:
    with safe_open(path, framework="np") as file:
        base_classes = int((file.metadata() or {})["base_classes"])
        labels = file.get_tensor("labels").astype(np.int64)
        g = file.get_slice("g")
        shape = g.get_shape()
        if len(shape) != 3 or shape[0] != len(labels) or len(labels) == 0:
            raise ValueError(f"g is {shape} for {len(labels)} labels, not (images, views, features)")
        views = g[:1] if first_alone else g[:]
    return Features(views.astype(np.float32), labels, base_classes)


def _read_training(path: Path, sha256: str) -> dict[str, NDArray[np.float64]]:
    content = path.read_bytes()
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedFile(path, "it is not the file of the result")
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    columns = [name for name in TRAINING_COLUMNS if rows and name in rows[0]]
    return {name: np.array([float(row[name]) for row in rows]) for name in columns}
