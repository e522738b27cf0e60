"""A run, a study and a search whose files can be damaged, and all that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairshot.benchmarks.image_folder import ClassSplit, Split
from fairshot.documents import load_json, write_json, write_yaml
from fairshot.errors import CodeNotTrusted, UserError
from fairshot.evaluation.base_session import load_model
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import recipe_of
from fairshot.progress import Reporter
from fairshot.recipes import load_recipe, write_recipe
from fairshot.reporting.runs import read_run
from fairshot.studies.poisoning import Damage, Poisoning
from fairshot.studies.tradeoff import CurvePoint, RuleCurve, TradeOff
from fairshot.studies.tuning import Trial
from fairshot.tensor_files import read_metadata, read_tensors
from fairshot.training.checkpoints import Checkpoints
from fairshot.training.hardware import choose_hardware
from support.damaged_stores import Case

SMALL = [
    *("benchmark.base_classes=4", "benchmark.way=2", "benchmark.sessions=1", "model.size=12"),
    *("training.epochs=1", "training.batch=120"),
]
METHOD = """from fairshot.methods.ncm import NCM


class Mild(NCM):
    name = "mild"
    limit = 1
"""


class Listener(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: object) -> None:
        self.said.append(str(text))


def _make_files(folder: Path) -> None:
    """Fill a folder with one of each kind of file that is written and read back."""
    recipe = load_recipe("doodles/ncm", SMALL)
    run(recipe, RunOptions(folder / "run", choose_hardware("cpu")))
    classes = [ClassSplit(name=f"class {i}", train=(f"c{i}/a.png",), test=(f"c{i}/b.png",)) for i in range(4)]
    Split(seed=0, base_classes=2, way=1, shots=1, sessions=2, classes=tuple(classes), skipped={}).write(
        folder / "run"
    )
    point = CurvePoint(
        rule="plain",
        setting=0.5,
        overall_avg=61.25,
        base_avg=70.5,
        inc_avg=40.125,
        harmonic_mean_avg=51.0,
        both=56.0,
        method={"gamma": 0.5},
    )
    curves = TradeOff(rules=[RuleCurve(name="plain", points=[point])], chosen_on_pseudo_novel=[point])
    for mirror in (False, True):
        curves.model_copy(update={"mirror": mirror}).write(folder / "run")
    damages = [
        Damage(kind="noise", images=10, bounded=bounded, cost=1.5, target=3, order="first")
        for bounded in (True, False)
    ]
    Poisoning(benchmark="doodles", labelled=60.5, natural={"bounded": 61.5}, damages=damages).write(
        folder / "run"
    )
    trial = Trial.of({"method.gamma": 0.5}, Result.read(folder / "run"), 12.5)
    write_json(folder / "run" / "trials.json", json.dumps({"trials": [trial.model_dump()]}))
    write_json(folder / "run" / "search.json", json.dumps({"seed": 0, "grid": {"method.gamma": [0.5]}}))
    (folder / "own").mkdir()
    (folder / "own" / "method.py").write_text(METHOD)
    write_recipe(folder / "own" / "recipe.yaml", recipe, METHOD.encode())
    text = (folder / "own" / "recipe.yaml").read_text().partition("\n")[2].replace("name: ncm", "name: mild")
    write_yaml(folder / "own" / "recipe.yaml", text)


def _plain(value: Any) -> Any:
    """Return values that can be compared, tensors as bytes."""
    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            value.contiguous().flatten().view(torch.uint8).numpy().tobytes(),
        )
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _model(folder: Path) -> Any:
    path = folder / "run" / "model.safetensors"
    return load_model(path, _plain), read_metadata(path)


def _report(folder: Path) -> Any:
    """Return what a report uses of a run; a piece that it says is missing is a refusal."""
    found = read_run(folder / "run")
    if found.missing:
        raise UserError("; ".join(found.missing))
    features = found.read_features()
    assert features is not None
    arrays = {
        name: array.tobytes()
        for name, array in (*asdict(features).items(), *found.training.items())
        if isinstance(array, np.ndarray)
    }
    return arrays, features.base_classes, found.result, found.trade_offs


def _checkpoint(folder: Path) -> Any:
    """Return the last checkpoint; a message about a damaged one is a refusal."""
    listener = Listener()
    last = Checkpoints(folder / "run" / "checkpoints" / "base", listener).read_last()
    if listener.said:
        raise UserError("; ".join(listener.said))
    assert last is not None
    return last.step, _plain(last.tensors), last.note


def _method(folder: Path) -> Any:
    """Return the code that would be run if it were trusted."""
    try:
        load_recipe(str(folder / "own" / "recipe.yaml"))
    except CodeNotTrusted as asked:
        return asked.code.read_bytes()
    raise AssertionError("code that a recipe names was run unasked")


READERS: dict[str, list[Callable[[Path], Any]]] = {  # by the files, as patterns: all that reads them
    "run/result.json": [lambda folder: Result.read(folder / "run"), _report],
    "run/recipe.yaml": [
        lambda folder: recipe_of(folder / "run"),
        lambda folder: load_recipe(str(folder / "run" / "recipe.yaml")),
    ],
    "run/split.json": [lambda folder: Split.read(folder / "run")],
    "run/model.safetensors": [_model],
    "run/features.safetensors": [
        _report,
        lambda folder: _plain(read_tensors(folder / "run" / "features.safetensors")),
    ],
    "run/training.csv": [_report],
    "run/tradeoff.json": [lambda folder: TradeOff.read(folder / "run"), _report],
    "run/tradeoff-mirror.json": [lambda folder: TradeOff.read(folder / "run", mirror=True), _report],
    "run/poisoning.json": [lambda folder: Poisoning.read(folder / "run")],
    "run/trials.json": [lambda folder: load_json(folder / "run" / "trials.json")],
    "run/search.json": [lambda folder: load_json(folder / "run" / "search.json")],
    "run/checkpoints/base/*": [_checkpoint],
    "own/method.py": [_method],
    "own/recipe.yaml": [_method],
}


def run_cases(folder: Path) -> list[Case]:
    """Make a run and all that studies write into one; return its files."""
    _make_files(folder)
    return [
        (max(folder.glob(pattern)), partial(reader, folder))
        for pattern, readers in READERS.items()
        for reader in readers
    ]
