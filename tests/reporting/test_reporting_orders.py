"""Runs in several class orders: one line each, the deviation taken over the orders."""

import numpy as np
import pytest

from fairshot.recipes import load_recipe
from fairshot.reporting.export import to_markdown
from fairshot.reporting.groups import group_results
from fairshot.reporting.orders import MEASURES, in_main_order, orders_table
from fairshot.reporting.report import write_report
from support.results_factory import make_result, write_run


def runs(method="sss", novel=0.4):
    """Two seeds of the official order, one of each of two shuffled ones."""
    official = [
        make_result(method, seed, novel=novel, recipe={"benchmark": {"class_order_seed": None}})
        for seed in (0, 1)
    ]
    shuffled = [
        make_result(method, 0, novel=novel + 0.1 * order, recipe={"benchmark": {"class_order_seed": order}})
        for order in (1, 2)
    ]
    return [*official, *shuffled]


def table_of(results):
    return orders_table(results, group_results(in_main_order(results)))


def test_seeds_of_an_order_count_once():
    results = runs()
    table = table_of(results)
    assert table is not None
    (row,) = table.rows
    assert row.label == "sss"
    assert row.remarks == ("3 class orders",)
    for measure, value in zip(MEASURES, row.values, strict=True):
        by_run = [measure.pick(result.metrics) for result in results]
        orders = [np.mean(by_run[:2]), by_run[2], by_run[3]]
        assert value.mean == pytest.approx(np.mean(orders))
        assert value.deviation == pytest.approx(np.std(orders, ddof=1))


def test_an_option_that_an_earlier_version_did_not_know_counts_as_its_default():
    recipe = load_recipe("doodles/sss").as_dict()
    earlier = {**recipe, "method": {key: value for key, value in recipe["method"].items() if key != "mirror"}}
    mirrored = {**recipe, "method": recipe["method"] | {"mirror": True}}
    assert len(group_results([make_result(recipe=one) for one in (recipe, earlier)])) == 1
    assert len(group_results([make_result(recipe=one) for one in (recipe, earlier, mirrored)])) == 2


def test_one_order_makes_no_table():
    assert table_of(runs()[:2]) is None
    assert table_of(runs()[3:]) is None


def test_shuffled_runs_stand_aside_where_others_keep_the_official_order():
    results = runs()
    assert in_main_order(results) == results[:2]
    assert in_main_order([*results, *runs("ncm")[2:]]) == results[:2]  # the table over orders has them
    once = runs("ncm")[2:3]
    assert in_main_order([*results, *once]) == [*results[:2], *once]  # it has not this one
    assert in_main_order(results[2:]) == results[2:]


def test_a_row_of_orders_without_a_line_of_its_own_is_on_the_page(tmp_path):
    for place, result in enumerate([*runs()[:1], *runs("ncm")[2:]]):
        write_run(tmp_path / f"run-{place}", result, features=False)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "<h1>sss on doodles</h1>" in page
    (line,) = (tmp_path / "out" / "tables" / "class-orders.md").read_text().splitlines()[2:]
    assert line.startswith("| ncm (2 class orders) |")


def test_the_page_and_its_files_hold_the_table(tmp_path):
    for place, result in enumerate([*runs(), *runs("ncm", novel=0.2)]):
        write_run(tmp_path / f"run-{place}", result, features=False)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "Over class orders" in page
    assert "class_order_seed=1" not in page
    markdown = (tmp_path / "out" / "tables" / "class-orders.md").read_text().splitlines()
    assert markdown[0].startswith("| | Overall avg (%) | Last (%) |")
    assert [line.split(" |")[0] for line in markdown[2:]] == [
        "| sss (3 class orders)",
        "| ncm (3 class orders)",
    ]


def test_a_collection_of_class_orders_given_as_a_further_folder_fills_the_table(tmp_path):
    official, _, *shuffled = runs()
    other = make_result(recipe={"benchmark": {"class_order_seed": None}, "training": {"epochs": 9}})
    for name, result in (("sss-seed0", official), ("sss-long", other)):
        write_run(tmp_path / "all" / name, result, features=False)
    for order, result in enumerate(shuffled, 1):
        write_run(tmp_path / "all" / "class-orders" / f"sss-order{order}", result, features=False)
    orders = tmp_path / "all" / "class-orders"

    page = write_report([tmp_path / "all", orders], tmp_path / "out").read_text()
    (line,) = (tmp_path / "out" / "tables" / "class-orders.md").read_text().splitlines()[2:]
    assert line.startswith("| sss (epochs=3) (3 class orders) |")
    for order in (1, 2):  # where the numbers come from
        assert f"sss · seed 0 · class order {order} <small>class-orders/sss-order{order}" in page

    alone = write_report([orders]).read_text()
    assert "sss (class_order_seed=2)" in alone
    (line,) = (orders / "report" / "tables" / "class-orders.md").read_text().splitlines()[2:]
    assert line.startswith("| sss (2 class orders) |")


def test_markdown_shows_mean_deviation_and_the_best():
    table = table_of([*runs(), *runs("ncm", novel=0.1)])
    assert table is not None
    first, second = (row.values[1] for row in table.rows)
    better, worse = to_markdown(table).splitlines()[2:]
    assert f"| **{first.mean:.2f}** ± {first.deviation:.2f} |" in better
    assert f"| {second.mean:.2f} ± {second.deviation:.2f} |" in worse
