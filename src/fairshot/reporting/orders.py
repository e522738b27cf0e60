"""How much the order of the classes decides: runs that differ in it are one line, with a deviation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from fairshot.evaluation.metrics import Metrics
from fairshot.evaluation.result import Result
from fairshot.reporting.groups import Group, Spread, group_results, images_of
from fairshot.reporting.measures import BASE_INC, HARMONIC_AVG, INC_AVG, LAST, OVERALL_AVG
from fairshot.reporting.papertables import PaperTable, Row, summary_source
from fairshot.reporting.settings import section, without_seed

MEASURES = (OVERALL_AVG, LAST, INC_AVG, BASE_INC, HARMONIC_AVG)


def in_main_order(results: Sequence[Result]) -> list[Result]:
    """Leave runs with shuffled classes to the table over orders, where others keep to the official one.

    Other base classes make another task, whose numbers do not stand in one table with those of the first.
    """
    official = {_task(result) for result in results if class_order(result) is None}
    aside = {
        name
        for name, family in _families(results).items()
        if _task(family[0]) in official and _orders(family)
    }
    return [result for result in results if class_order(result) is None or _family(result) not in aside]


def orders_table(results: Sequence[Result], groups: Sequence[Group]) -> PaperTable | None:
    """Mean and deviation over class orders; the seeds of one order are averaged first.

    `groups` are the other lines of the report: a row belongs to the one that holds some of its runs, if any.
    """
    families = _families(results).values()
    labels = [one.label for one in group_results([_in_no_order(family[0]) for family in families])]
    rows = [
        _row(label, next((one.label for one in groups if any(map(one.holds, family))), ""), _orders(family))
        for label, family in zip(labels, families, strict=True)
        if _orders(family)
    ]
    if not rows:
        return None
    caption = (
        "± is the sample deviation over class orders, each of which makes other classes base classes; "
        "the seeds of one order are averaged first."
    )
    heads = tuple(summary_source(measure).column for measure in MEASURES)
    return PaperTable("class-orders", "Over class orders", caption, heads, tuple(rows))


def _families(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Gather runs that differ in the order of classes and in the seed alone."""
    families: dict[str, list[Result]] = {}
    for result in results:
        families.setdefault(_family(result), []).append(result)
    return families


def _orders(family: Sequence[Result]) -> list[list[Result]]:
    """Part a family by the order of classes; nothing where it has but one."""
    orders: dict[int | None, list[Result]] = {}
    for result in family:
        orders.setdefault(class_order(result), []).append(result)
    return list(orders.values()) if len(orders) > 1 else []


def _row(label: str, group: str, orders: Sequence[Sequence[Result]]) -> Row:
    means = [Group(label, tuple(results)) for results in orders]
    values = tuple(_over(means, measure.pick) for measure in MEASURES)
    return Row(label, values, group, remarks=(f"{len(orders)} class orders",))


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


def _task(result: Result) -> tuple[tuple[str, str], int]:
    return images_of(result), len(result.sessions)


def _family(result: Result) -> str:
    """Name what runs in different class orders have in common."""
    recipe = without_seed(_in_no_order(result).recipe)
    return json.dumps(
        [result.method, images_of(result), result.sessions, recipe], sort_keys=True, default=str
    )
