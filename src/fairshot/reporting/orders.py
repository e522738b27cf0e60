"""How much the order of the classes decides: runs that differ in it are one line, with a deviation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from fairshot.evaluation.metrics import Metrics
from fairshot.evaluation.result import Result
from fairshot.reporting.groups import Group, Spread, group_results
from fairshot.reporting.measures import BASE_INC, HARMONIC_AVG, INC_AVG, LAST, OVERALL_AVG
from fairshot.reporting.papertables import PaperTable, Row, summary_source
from fairshot.reporting.settings import section, without_seed

MEASURES = (OVERALL_AVG, LAST, INC_AVG, BASE_INC, HARMONIC_AVG)


def in_main_order(results: Sequence[Result]) -> list[Result]:
    """Leave out runs with shuffled classes where the same was run in the official order."""
    official = {_family(result) for result in results if class_order(result) is None}
    return [result for result in results if class_order(result) is None or _family(result) not in official]


def orders_table(results: Sequence[Result], groups: Sequence[Group]) -> PaperTable | None:
    """Mean and deviation over class orders; the seeds of one order are averaged first.

    `groups` are the lines of the report, which hold at least one order of each of the results.
    """
    families: dict[str, list[Result]] = {}
    for result in results:
        families.setdefault(_family(result), []).append(result)
    labels = [one.label for one in group_results([_in_no_order(family[0]) for family in families.values()])]
    rows = [
        _row(label, next(group for group in groups if any(map(group.holds, family))), family)
        for label, family in zip(labels, families.values(), strict=True)
        if len({class_order(one) for one in family}) > 1
    ]
    if not rows:
        return None
    caption = "± is the sample deviation over class orders, each of which makes other classes base classes."
    heads = tuple(summary_source(measure).column for measure in MEASURES)
    return PaperTable("class-orders", "Over class orders", caption, heads, tuple(rows))


def _row(label: str, shown: Group, family: Sequence[Result]) -> Row:
    orders: dict[int | None, list[Result]] = {}
    for result in family:
        orders.setdefault(class_order(result), []).append(result)
    groups = [Group(label, tuple(results)) for results in orders.values()]
    values = tuple(_over(groups, measure.pick) for measure in MEASURES)
    return Row(label, values, shown.label, remarks=(f"{len(groups)} class orders",))


def _over(groups: Sequence[Group], pick: Callable[[Metrics], float | None]) -> Spread | None:
    summaries = [group.summary(pick) for group in groups]
    return Spread.of([None if summary is None else summary.mean for summary in summaries])


def class_order(result: Result) -> int | None:
    """Return the seed by which the classes were shuffled; None for the official order."""
    order: int | None = section(result.recipe, "benchmark").get("class_order_seed")
    return order


def _in_no_order(result: Result) -> Result:
    benchmark = dict(section(result.recipe, "benchmark"))
    benchmark.pop("class_order_seed", None)
    return result.model_copy(update={"recipe": result.recipe | {"benchmark": benchmark}})


def _family(result: Result) -> str:
    """Name what runs in different class orders have in common."""
    recipe = without_seed(_in_no_order(result).recipe)
    return json.dumps([result.method, result.benchmark, result.sessions, recipe], sort_keys=True, default=str)
