"""Synthetic results for the tests of the reporting room."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairshot.documents import write_json
from fairshot.evaluation.result import Environment, Result
from fairshot.tensor_files import write_tensors

CIFAR_SIZES = (60, *[5] * 8)  # classes of the sessions of CIFAR-100


def make_result(
    method: str = "sss",
    seed: int = 0,
    benchmark: str = "doodles",
    sizes: tuple[int, ...] = (6, 2, 2, 2),
    per_class: int = 20,
    base: float = 0.8,
    novel: float = 0.4,
    recipe: dict | None = None,
) -> Result:
    """Draw confusion matrices whose classes are answered rightly with about the given probabilities."""
    rng = np.random.default_rng([seed, len(method), round(novel * 1000)])
    confusions = []
    for t in range(len(sizes)):
        seen = sum(sizes[: t + 1])
        matrix = np.zeros((seen, seen), dtype=np.int64)
        for true in range(seen):
            right = base if true < sizes[0] else novel
            chances = np.full(seen, (1 - right) / (seen - 1))
            chances[true] = right
            matrix[true] = rng.multinomial(per_class, chances)
        confusions.append(matrix.tolist())
    starts = np.cumsum((0, *sizes))
    names = [
        f"{kind} {i}" for kind, many in (("base", sizes[0]), ("novel", sum(sizes[1:]))) for i in range(many)
    ]
    return Result(
        method=method,
        benchmark=benchmark,
        seed=seed,
        command=f"fairshot run {method} --seed {seed}",
        recipe={"method": method, "seed": seed, "training": {"epochs": 3}, **(recipe or {})},
        class_names=names,
        sessions=[list(range(a, b)) for a, b in itertools.pairwise(starts.tolist())],
        confusions=confusions,
        novel_only=[None] + [60.0] * (len(sizes) - 1),
        transductive=False,
        seconds={"training": 12.0 + seed, "sessions": 1.5},
        environment=Environment(
            python="3.11.7",
            packages={"fairshot": "0.1.0"},
            device="cpu",
            cores=2,
            commit="0a1b2c3d4e5f60718293",
            changed=True,
        ),
    )


def make_even_result(method: str, average: float, seed: int = 0, **details: Any) -> Result:
    """Make a result on CIFAR-100 whose sessions all have this overall accuracy in percent."""
    result = make_result(method, seed, "cifar100", CIFAR_SIZES, per_class=1, **details)
    right = round(100 * average)
    for matrix in result.confusions:
        for row, line in enumerate(matrix):
            line[:] = [0] * len(line)
            line[row], line[row - 1] = right, 10_000 - right
    return result


def write_run(folder: Path, result: Result, *, features: bool = True, trade_off: bool = False) -> Path:
    """Write a run folder as `fairshot run` leaves it."""
    result.write(folder)
    (folder / "recipe.yaml").write_text("seed: 0\n")
    steps = np.arange(1, 41)
    lines = [f"{step},{step / 4},{3 * 0.93**step:.4f},{0.1 * (1 - step / 40):.5f},900" for step in steps]
    text = "\n".join(["step,epoch,loss,learning_rate,images_per_second", *lines])
    (folder / "training.csv").write_text(text + "\n")
    if features:
        write_features(folder, result)
    if trade_off:
        points = [
            {
                "setting": s,
                "overall_avg": 60 - 40 * s**2,
                "inc_avg": 30 + 60 * s,
                "harmonic_mean_avg": 45 + 30 * s - 90 * s**2,
                "tuned": index == 4,
                "base_avg": 70 - 90 * s,
                "both": 50,
                "method": {"bias": s},
            }
            for index, s in enumerate(np.linspace(0, 0.3, 7))
        ]
        curves = {"transferable scores + constant": points, "Resistance": points[:4]}
        rules = [
            {"name": rule, "points": [point | {"rule": rule} for point in drawn]}
            for rule, drawn in curves.items()
        ]
        write_json(folder / "tradeoff.json", json.dumps({"rules": rules}))
    return folder


def write_features(folder: Path, result: Result, per_class: int = 4, width: int = 16) -> None:
    """Write features of clustered classes, as half precision."""
    rng = np.random.default_rng([result.seed, len(result.method)])
    labels = np.repeat(np.arange(len(result.class_names)), per_class)
    centres = rng.random((len(result.class_names), width)) ** 3
    g = np.maximum(centres[labels] + 0.08 * rng.standard_normal((len(labels), width)), 0)
    tensors = {"g": np.stack([g, g], axis=1).astype(np.float16), "labels": labels.astype(np.int64)}
    metadata = {"base_classes": str(len(result.sessions[0]))}
    as_torch = {name: torch.from_numpy(value) for name, value in tensors.items()}
    write_tensors(folder / "features.safetensors", as_torch, metadata)
