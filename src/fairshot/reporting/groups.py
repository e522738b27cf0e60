"""Runs that differ in nothing but their seed are one line of a table, with a mean and a deviation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fairshot.evaluation.metrics import Metrics, SessionMetrics
from fairshot.evaluation.result import Result
from fairshot.reporting.settings import PARTS, is_sss, section, without_seed
from fairshot.settings import flat

MOST_DIFFERENCES_IN_A_LABEL = 3


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its sample standard deviation, None for a single seed."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """Summarise the seeds; None as soon as one of them has no such value."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        spread = float(np.std(known, ddof=1)) if len(known) > 1 and np.isfinite(known).all() else None
        return cls(float(np.mean(known)), spread)


def means(spreads: Sequence[Spread | None]) -> list[float | None]:
    """Keep the means alone."""
    return [None if spread is None else spread.mean for spread in spreads]


@dataclass(frozen=True)
class Group:
    """Results of one method with one recipe on one benchmark, over one or several seeds."""

    label: str
    results: tuple[Result, ...]

    @property
    def benchmark(self) -> str:
        """The benchmark all results of the group were computed on."""
        return self.results[0].benchmark

    @property
    def images(self) -> tuple[str, str]:
        """What tells the images of the group from those of others."""
        return images_of(self.results[0])

    @property
    def official(self) -> str:
        """The benchmark as others publish on it; none for own pictures, whatever their folder is called."""
        name, own = self.images
        return "" if own else name

    @property
    def session_count(self) -> int:
        """Sessions of the benchmark, the base session included."""
        return len(self.results[0].sessions)

    @property
    def is_sss(self) -> bool:
        """Whether the method is the paper's own."""
        return is_sss(self.results[0].method)

    @property
    def alike(self) -> tuple[Result, ...]:
        """The results with the classes of the first: of own pictures each seed draws other base classes."""
        first = self.results[0]
        return tuple(result for result in self.results if result.class_names == first.class_names)

    @property
    def class_label(self) -> str:
        """The label beside single classes, which names the seeds that have these if not all do."""
        if len(self.alike) == len(self.results):
            return self.label
        seeds = ", ".join(str(result.seed) for result in self.alike)
        return f"{self.label}, seed{'s' * (len(self.alike) > 1)} {seeds}"

    def holds(self, result: Result | None) -> bool:
        """Whether this very result is one of the group's."""
        return any(result is own for own in self.results)

    @cached_property
    def metrics(self) -> tuple[Metrics, ...]:
        """The metrics of each seed, derived once."""
        return tuple(result.metrics for result in self.results)

    @property
    def seconds(self) -> Spread | None:
        """Seconds a run took."""
        return Spread.of([total_seconds(result) for result in self.results])

    def summary(self, pick: Callable[[Metrics], float | None]) -> Spread | None:
        """Summarise a number of a whole run over the seeds."""
        return Spread.of([pick(metrics) for metrics in self.metrics])

    def session(self, t: int, pick: Callable[[SessionMetrics], float | None]) -> Spread | None:
        """Summarise a number of session t over the seeds."""
        return Spread.of([pick(metrics.sessions[t]) for metrics in self.metrics])


def total_seconds(result: Result) -> float:
    """Seconds of the whole run, all parts together."""
    return sum(result.seconds.values())


def images_of(result: Result) -> tuple[str, str]:
    """Name the images of a result: the benchmark, and which of the folders with this name, if it is one.

    A result of an earlier version does not say which own pictures it is of; their classes then tell.
    """
    own = section(result.recipe, "benchmark").get("name", result.benchmark) != result.benchmark
    return result.benchmark, result.pictures or "\n".join(sorted(result.class_names) if own else ())


def group_results(results: Sequence[Result]) -> list[Group]:
    """Gather runs that differ only in their seed, in the order of first appearance."""
    gathered: dict[str, list[Result]] = {}
    for result in results:
        identity = [result.method, images_of(result), result.sessions, without_seed(result.recipe)]
        gathered.setdefault(json.dumps(identity, sort_keys=True, default=str), []).append(result)
    members = list(gathered.values())
    return [Group(_label(own, members), tuple(own)) for own in members]


def by_benchmark(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Gather what may be compared: the same images in as many sessions."""
    comparable: dict[str, list[Group]] = {}
    for group in groups:
        alike = list(dict.fromkeys(g.images for g in groups if g.benchmark == group.benchmark))
        lengths = {g.session_count for g in groups if g.images == group.images}
        number = f" #{alike.index(group.images) + 1}" if len(alike) > 1 else ""
        sessions = f" ({group.session_count} sessions)" if len(lengths) > 1 else ""
        comparable.setdefault(f"{group.benchmark}{number}{sessions}", []).append(group)
    return comparable


def sss_first(groups: Sequence[Group]) -> list[Group]:
    """Order the lines of a report: the paper's own method, then the others as they came."""
    return sorted(groups, key=lambda group: not group.is_sss)


def _label(own: list[Result], members: list[list[Result]]) -> str:
    """Name the method, and where several groups share it, the settings that set this one apart."""
    method, images = own[0].method, images_of(own[0])
    rivals = [other for other in members if other[0].method == method and images_of(other[0]) == images]
    if len(rivals) == 1:
        return method
    settings = [dict(flat(without_seed(rival[0].recipe))) for rival in rivals]
    mine = settings[rivals.index(own)]
    differing = [key for key in mine if any(other.get(key) != mine[key] for other in settings)]
    parts = [key for key in differing if _last(key) in PARTS]
    others = [f"{_last(key)}={_plain(mine[key])}" for key in differing if key not in parts]
    number = f"{method} #{rivals.index(own) + 1}"
    if not differing:
        return number
    if len(others) > MOST_DIFFERENCES_IN_A_LABEL:
        method, others = number, [*others[: MOST_DIFFERENCES_IN_A_LABEL - 1], "..."]
    switched = [
        title for part, (title, _) in PARTS.items() for key in mine if _last(key) == part and mine[key]
    ]
    return f"{method} ({', '.join(['+'.join(switched) or 'plain'] * bool(parts) + others)})"


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _plain(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
