"""Synthetic results for the tests of the reporting room."""

from __future__ import annotations

import itertools

import numpy as np

from fairshot.evaluation.result import Environment, Result


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
        environment=Environment(python="3.11.7", packages={"fairshot": "0.1.0"}, device="cpu", cores=2),
    )
