"""Groups of runs that differ in their seed alone: one row of a table, with a mean and a deviation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np

from fairshot.benchmarks import DATASETS
from fairshot.errors import UserError
from fairshot.evaluation.metrics import Metrics, SessionMetrics
from fairshot.evaluation.result import Result
from fairshot.methods import method_title, methods
from fairshot.methods.dual_method import DualMethod
from fairshot.recipes import check_recipe
from fairshot.reporting.names import PARTS, variant_name
from fairshot.settings import flat


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


def spread_text(spread: Spread | None, digits: int = 2, missing: str = "", bold: str = "") -> str:
    """Return a mean ± its deviation, the mean between marks of bold text if there are some."""
    if spread is None:
        return missing
    mean = f"{bold}{spread.mean:.{digits}f}{bold}"
    return mean if spread.deviation is None else f"{mean} ± {spread.deviation:.{digits}f}"


def means(spreads: Sequence[Spread | None]) -> list[float | None]:
    """Return the means alone."""
    return [None if spread is None else spread.mean for spread in spreads]


@dataclass(frozen=True)
class Group:
    """Results of one method with one recipe on one benchmark, over one or several seeds."""

    label: str  # by which every table and figure calls it
    results: tuple[Result, ...]

    @property
    def benchmark(self) -> str:
        """The benchmark of all results."""
        return self.results[0].benchmark

    @property
    def images(self) -> tuple[str, str]:
        """What tells the images of the group from those of others."""
        return images_of(self.results[0])

    @property
    def official(self) -> str:
        """The benchmark as others publish on it; empty for own pictures, whatever their folder is called."""
        name, own = self.images
        return "" if own else name

    @property
    def benchmark_title(self) -> str:
        """The benchmark as the authors of its dataset write it; own pictures by their folder."""
        known = DATASETS.get(self.official)
        return self.benchmark if known is None else known.title

    @property
    def session_count(self) -> int:
        """Sessions of the benchmark, the base session included."""
        return len(self.results[0].sessions)

    @property
    def base_classes(self) -> int:
        """How many classes session 0 introduced."""
        return len(self.results[0].sessions[0])

    @property
    def is_sss(self) -> bool:
        """Whether the method is the paper's own, with either kind of classifiers; figures draw it thick."""
        kind = methods().get(self.results[0].method)
        return kind is not None and issubclass(kind, DualMethod)

    @property
    def transductive(self) -> bool:
        """Whether unlabelled test images moved the classifiers of some of the runs."""
        return any(result.transductive for result in self.results)

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
    def seconds(self) -> dict[str, Spread]:
        """Seconds of each part that all runs went through themselves."""
        taken = [result.own_seconds for result in self.results]
        spreads = {part: Spread.of([one.get(part) for one in taken]) for part in taken[0]}
        return {part: spread for part, spread in spreads.items() if spread is not None}

    @property
    def total_seconds(self) -> Spread | None:
        """Seconds of these parts together."""
        return Spread.of([sum(result.own_seconds[part] for part in self.seconds) for result in self.results])

    @property
    def base_sessions_of(self) -> list[str]:
        """The runs whose base sessions were loaded, so that `seconds` are without a base session."""
        return list(dict.fromkeys(PurePath(result.base).name for result in self.results if result.base))

    def summary(self, pick: Callable[[Metrics], float | None]) -> Spread | None:
        """Summarise a number of a whole run over the seeds."""
        return Spread.of([pick(metrics) for metrics in self.metrics])

    def session(self, t: int, pick: Callable[[SessionMetrics], float | None]) -> Spread | None:
        """Summarise a number of session t over the seeds."""
        return Spread.of([pick(metrics.sessions[t]) for metrics in self.metrics])


def group_results(results: Sequence[Result]) -> list[Group]:
    """Gather runs that differ only in their seed, in the order of first appearance."""
    members = _gather(results, lambda result: result)
    return [Group(label, tuple(own)) for label, own in zip(_labels(members), members, strict=True)]


def _labels(members: Sequence[Sequence[Result]]) -> list[str]:
    """Name each group, told from those of its method on the same images; no two there share a name."""
    settings = [dict(flat(without_seed(own[0]))) for own in members]
    kinds = [(own[0].method, images_of(own[0])) for own in members]
    labels = [
        variant_name(
            method_title(kind[0]),
            mine,
            [s for s, other in zip(settings, kinds, strict=True) if other == kind],
        )
        for mine, kind in zip(settings, kinds, strict=True)
    ]
    named = [(label, images) for label, (_, images) in zip(labels, kinds, strict=True)]
    return [
        f"{label} #{named[: i + 1].count(named[i])}" if named.count(named[i]) > 1 else label
        for i, label in enumerate(labels)
    ]


def by_class_order(results: Sequence[Result]) -> list[list[Result]]:
    """Gather runs that differ only in their seed and in the order of classes."""
    return _gather(results, without_class_order)


def _gather(results: Sequence[Result], common: Callable[[Result], Result]) -> list[list[Result]]:
    gathered: dict[str, list[Result]] = {}
    for result in results:
        recipe = without_seed(common(result))
        identity = [result.method, images_of(result), result.sessions, recipe]
        gathered.setdefault(json.dumps(identity, sort_keys=True, default=str), []).append(result)
    return list(gathered.values())


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


def ranked(groups: Sequence[Group]) -> list[Group]:
    """Order the rows of a report: by average harmonic mean, the highest first.

    Frozen backbones come before all others: what was trained begins there.
    """

    def place(group: Group) -> tuple[bool, bool, float]:
        harmonic = group.summary(lambda metrics: metrics.harmonic_mean_avg)
        overall = group.summary(lambda metrics: metrics.overall_avg)
        return not group.results[0].untrained, harmonic is None, -(harmonic or overall or Spread(0.0)).mean

    return sorted(groups, key=place)


def in_main_order(results: Sequence[Result]) -> list[Result]:
    """Leave runs with shuffled classes to the table over class orders, where others keep the official order.

    Other base classes make another task, whose numbers do not belong in one table with those of the first.
    """
    official = {task_of(result) for result in results if result.class_order is None}
    aside = [
        result
        for family in by_class_order(results)
        if task_of(family[0]) in official and len({result.class_order for result in family}) > 1
        for result in family
        if result.class_order is not None
    ]
    return [result for result in results if not any(result is other for other in aside)]


def images_of(result: Result) -> tuple[str, str]:
    """Name the images of a result: the benchmark, and which of the folders with this name, if it is one.

    A result of an earlier version does not say which own pictures it is of; their classes then tell.
    """
    names = sorted(result.class_names) if result.of_own_pictures else ()
    return result.benchmark, result.pictures or "\n".join(names)


def task_of(result: Result) -> tuple[tuple[str, str], int]:
    """Name the images and the number of sessions of a result."""
    return images_of(result), len(result.sessions)


def without_seed(result: Result) -> dict[str, Any]:
    """Return the recipe of a result, as runs with other seeds have it too.

    An option that a run of an earlier version could not name counts as its default, which is how it ran.
    """
    complete = result.recipe
    if result.section("method").get("name") in methods():
        with suppress(UserError):  # of another version: taken as it was written
            complete = check_recipe(complete).as_dict()
    return {key: value for key, value in complete.items() if key != "seed"}


def without_class_order(result: Result) -> Result:
    """Return the result as if its recipe named no order of classes."""
    benchmark = {k: v for k, v in result.section("benchmark").items() if k != "class_order_seed"}
    return result.model_copy(update={"recipe": result.recipe | {"benchmark": benchmark}})


def backbone_of(group: Group) -> str | None:
    """Return the name of the backbone."""
    return group.results[0].section("model").get("backbone")


def is_baseline(method: str) -> bool:
    """Whether a method is the one that others add something to."""
    kind = methods().get(method)
    return kind is not None and kind.card.baseline


def parts_of(group: Group) -> frozenset[str] | None:
    """Find which parts of SSS were on; the baseline is SSS without any, others have no such parts."""
    if is_baseline(group.results[0].method):
        return frozenset()
    switches = group.results[0].section("method")
    return frozenset(part for part in PARTS if switches[part]) if PARTS.keys() <= switches.keys() else None


def decision_of(group: Group) -> str:
    """Return the decision rule by which a run of SSS combined the two kinds of features."""
    return str(group.results[0].section("method").get("decision", "separately"))
