"""Tables: ours are the metrics, theirs the shipped rows; LaTeX, Markdown and CSV carry both."""

import csv
import io
import re

import numpy as np
import pytest

from fairshot.reporting.ablations import ablation_tables, components_table, feature_tables
from fairshot.reporting.export import to_csv, to_latex, to_markdown, write_table
from fairshot.reporting.groups import group_results, in_main_order
from fairshot.reporting.measures import BASE_INC, HARMONIC_AVG, INC_AVG, LAST, OVERALL_AVG, best
from fairshot.reporting.names import PARTS
from fairshot.reporting.report import write_report
from fairshot.reporting.table import Row, Table
from fairshot.reporting.tables import (
    comparison_tables,
    diagnosis_table,
    gate_table,
    inc_table,
    main_table,
    orders_table,
    overall_table,
    summary_table,
)
from fairshot.studies.published import published
from fairshot.studies.tradeoff import CurvePoint, RuleCurve, TradeOff
from support.results_factory import make_result, write_run

CIFAR = (60, *[5] * 8)


def switches(*on, **extra):
    method = {"name": "sss", **{part: part in on for part in PARTS}, **extra}
    return {"method": method, "model": {"backbone": "resnet18"}}


@pytest.fixture(scope="module")
def groups():
    results = [
        make_result("ncm", 0, "cifar100", CIFAR, novel=0.1, recipe={"model": {"backbone": "resnet18"}})
    ]
    results += [
        make_result("sss", s, "cifar100", CIFAR, novel=0.5, recipe=switches("intra", "sr")) for s in (0, 1)
    ]
    return group_results(results)


@pytest.fixture(scope="module")
def rows():
    return published().on("cifar100", 9)


def by_label(table):
    return {row.label: row for row in table.rows if row.ours or row.source.startswith("SSS")}


def test_published_rows_are_complete_enough_to_stand_in_tables():
    for row in published().rows:
        assert len(row.overall) == {"cub200": 11}.get(row.benchmark, 9)
        assert row.inc is None or len(row.inc) == len(row.overall) - 1
        assert row.source
        assert row.backbone
    assert len(published().components) == 6
    assert {row.decision for row in published().features} >= {
        "separately",
        "transferable_only",
        "specific_only",
    }


def test_overall_table_is_table_6_and_the_metrics(groups, rows):
    table = overall_table(groups, rows)
    assert [column.title for column in table.columns] == [*map(str, range(9)), "Overall avg (%)", "BICP"]
    cec = by_label(table)["CEC, published"]
    assert [round(value.mean, 2) for value in cec.values[:9]] == [
        73.07, 68.88, 65.26, 61.19, 58.09, 55.57, 53.22, 51.34, 49.14,
    ]  # fmt: skip
    assert cec.values[10].mean == 2.12
    (ncm,) = (group.results[0].metrics for group in groups if group.label == "NCM")
    ours = by_label(table)["NCM"].values
    assert [value.mean for value in ours] == [*(s.overall for s in ncm.sessions), ncm.overall_avg, ncm.bicp]


def test_published_rows_and_ours_differ_in_more_than_capitals(rows):
    ours = group_results([make_result(method, 0, "cifar100", CIFAR) for method in ("cec", "teen", "topic")])
    for table in comparison_tables(ours, rows):
        labels = [{row.label.lower() for row in table.rows if row.ours is mine} for mine in (True, False)]
        assert len(labels[0]) == 3
        assert not labels[0] & labels[1]
        assert all("published" in label for label in labels[1])


def test_inc_table_leaves_out_rows_without_inc_and_marks_the_best(groups, rows):
    table = inc_table(groups, rows)
    assert [column.title for column in table.columns] == [*map(str, range(1, 9)), "Base/Inc"]
    assert all(row.values[0] is not None for row in table.rows)
    for i in range(8):
        top = max(row.values[i].mean for row in table.rows)
        assert {round(table.rows[w].values[i].mean, 2) for w in table.winners[i]} == {round(top, 2)}
    nearest = min(abs(row.values[8].mean - 1) for row in table.rows)
    assert {round(abs(table.rows[w].values[8].mean - 1), 2) for w in table.winners[8]} == {round(nearest, 2)}


def test_main_table_has_an_early_a_middle_and_the_last_session(groups, rows):
    titles = [column.title for column in main_table(groups, rows).columns]
    assert titles == ["2", "5", "8", "2", "5", "8", "Overall avg (%)", "BICP"]
    assert main_table(groups, rows).bands == [
        ("Inc accuracy (%) after session", 3),
        ("PInc accuracy (%) after session", 3),
        ("", 2),
    ]


@pytest.mark.parametrize(("sizes", "keys"), [((5,), 1), ((5, 1), 2), ((5, 1, 1), 3)])
def test_short_streams_have_as_many_tables_as_they_allow(sizes, keys):
    tables = comparison_tables(group_results([make_result(sizes=sizes)]), [])
    assert len({table.key for table in tables}) == keys


def test_after_z_letters_of_remarks_are_doubled():
    rows = tuple(Row(f"method {i}", (), remarks=(f"remark {i}",)) for i in range(28))
    letters = list(Table("many", "Many", "", (), rows).remarks.values())
    assert letters[:2] + letters[25:] == ["a", "b", "z", "aa", "bb"]


def test_rows_with_another_backbone_or_memory_are_remarked(groups, rows):
    remarks = {
        row.label: row.remarks for row in overall_table(groups, rows).rows if row.source.startswith("SSS")
    }
    assert "backbone ResNet-20 (0.27 M)" in remarks["CEC, published"]
    assert "keeps one mean activation a class" in remarks["C-FSCIL, published"]
    assert not any(remark.startswith("backbone") for remark in remarks["SSS (prototype), published"])
    assert any("transductive" in remark for remark in remarks["SSS (prototype), published"])


LITE2 = {"model": {"backbone": "tf_efficientnet_lite2", "weights": "efficientnet-lite2"}}


@pytest.mark.parametrize(
    ("benchmark", "sizes", "remarks"),
    [
        (
            "mini_imagenet",
            CIFAR,
            (
                "began with weights efficientnet-lite2, learnt from ImageNet, which has all classes of "
                "miniImageNet: none is new to it",
                "not comparable with the published rows, whose backbone was trained from scratch",
            ),
        ),
        ("cub200", (100, *[10] * 10), ("began with weights efficientnet-lite2, learnt from ImageNet",)),
    ],
)
def test_rows_say_what_their_weights_know_of_other_pictures(benchmark, sizes, remarks):
    ours = group_results([make_result("ncm", 0, benchmark, sizes, novel=0.78, recipe=LITE2)])
    theirs = published().on(benchmark, len(sizes))
    assert len(theirs) > 5
    for table in comparison_tables(ours, theirs):
        assert by_label(table)["NCM"].remarks == remarks
        began = {"began with ImageNet weights" in row.remarks for row in table.rows if not row.ours}
        assert began == {benchmark == "cub200"}
        ours_are_best = any(table.rows[index].ours for winners in table.winners for index in winners)
        assert ours_are_best == (benchmark == "cub200")
    assert summary_table(ours).rows[0].remarks == remarks[:1]
    scratch = group_results([make_result("ncm", 0, "mini_imagenet", CIFAR)])
    assert summary_table(scratch).rows[0].remarks == ()


def test_components_table_orders_parts_and_mixes_ours_with_table_2(groups):
    table = components_table(groups, published())
    assert [len(row.parts) for row in table.rows] == [0, 0, 1, 2, 2, 3, 4, 5]
    ours = {row.label: row for row in table.rows if row.ours}
    assert ours["NCM"].parts == frozenset()
    assert ours["SSS"].parts == {"intra", "sr"}
    assert table.rows[-1].values[0].mean == 63.80


def test_what_else_sets_runs_apart_is_said_beside_their_parts():
    def table(ncm_epochs, **extra):
        plain = make_result("ncm", recipe={"training": {"epochs": ncm_epochs, "batch": 8}})
        full = switches("intra", **({"gamma": 0.2} | extra)) | {"training": {"epochs": 3, "batch": 8}}
        fused = switches("intra", "inter", gamma=0.2) | {"training": {"epochs": 3, "batch": 8}}
        runs = [plain, make_result("sss", recipe=full), make_result("sss", recipe=fused)]
        return components_table(group_results(runs), published())

    alike = table(3)
    assert "differ in more" not in alike.caption
    assert alike.remarks == {}
    longer = table(40)
    assert "differ in more than their parts, epochs: what" in longer.caption
    expected = ("with epochs 40", "with epochs 3", "with epochs 3")
    assert tuple(row.remarks[0] for row in longer.rows) == expected
    several = table(40, gamma=0.4)
    assert "parts, epochs, gamma: what" in several.caption
    assert several.rows[0].remarks == ("with epochs 40",)  # it has no gamma
    assert several.rows[1].remarks == ("with epochs 3, gamma 0.4",)


def test_weights_are_told_apart_by_name_and_only_without_one_by_their_checksum():
    def labels_and_remarks(*weights):
        models = [{"weights": name, "weights_sha256": digit * 64} for name, digit in weights]
        runs = [make_result("ncm", recipe={"model": model}) for model in models]
        table = components_table(group_results(runs), published())
        return [(row.label, row.remarks[-1]) for row in table.rows]

    assert labels_and_remarks(("/home/me/one.pt", "a"), ("two.pt", "b")) == [
        ("NCM (weights one.pt)", "with weights one.pt"),
        ("NCM (weights two.pt)", "with weights two.pt"),
    ]
    assert labels_and_remarks(("one.pt", "a"), ("one.pt", "b")) == [
        (f"NCM (weights sha256 {digits})", f"with weights sha256 {digits}") for digits in ("a" * 8, "b" * 8)
    ]


def test_settings_of_calibration_say_nothing_of_a_run_without():
    recipes = [
        switches("intra", "sr", calibration_timing="before"),
        *(switches("sr", "calibration", calibration_timing=timing) for timing in ("before", "after")),
    ]
    table = components_table(group_results([make_result("sss", recipe=one) for one in recipes]), published())
    timings = [(f"with Calibration {timing} the answers",) for timing in ("before", "after")]
    assert [row.remarks for row in table.rows] == [(), *timings]


def test_many_differences_are_named_in_part():
    runs = [
        make_result("sss", recipe=switches("intra") | {"training": dict.fromkeys("abcdef", value)})
        for value in (1, 2)
    ]
    caption = components_table(group_results(runs), published()).caption
    assert "parts, a, b, c, d and 2 more: what" in caption


def test_feature_tables_take_runs_without_self_optimizing_alone(groups):
    averages, overall, inc = feature_tables(groups, published())
    assert [row.label for row in averages.rows if row.ours] == ["Ours: SSS"]
    assert len(overall.columns) == 9
    assert len(inc.columns) == 8
    joined = make_result("sss", 0, "cifar100", CIFAR, recipe=switches("intra", "sr", decision="pre"))
    averages, *_ = feature_tables(group_results([joined]), published())
    assert [row.label for row in averages.rows if row.ours] == ["Pre: SSS"]
    resisting = make_result("sss", 0, "cifar100", CIFAR, recipe=switches("intra", "sr", "resistance"))
    assert not [r for t in feature_tables(group_results([resisting]), published()) for r in t.rows if r.ours]


def test_ablations_of_a_report_leave_out_what_the_paper_has_not():
    def tables(*extras):
        recipes = [switches("intra", "inter", "sr", **extra) for extra in extras]
        runs = [make_result("sss", 0, "cifar100", CIFAR, recipe=recipe) for recipe in recipes]
        return ablation_tables(group_results(runs), published())

    beyond = ({"gate": "constant"}, {"whitening": True}, {"mirror": True}, {"corner_crops": True})
    assert tables(*beyond) == []
    components, averages, *_ = tables({}, *beyond)
    assert [row.label for row in components.rows if row.ours] == ["SSS"]
    assert components.remarks.keys() == {"transductive: unlabelled test images moved the classifiers"}
    assert "differ in more" not in components.caption
    assert [row.label for row in averages.rows if row.ours] == ["Ours: SSS"]


def test_other_benchmarks_have_no_published_ablation():
    only = group_results([make_result("sss", recipe=switches("intra"))])
    assert ablation_tables(only, published()) == []
    both = group_results([make_result("ncm"), make_result("sss", recipe=switches("intra"))])
    assert [table.key for table in ablation_tables(both, published())] == ["components"]
    baselines = [
        make_result("ncm", recipe={"model": {"backbone": name}}) for name in ("resnet18", "resnet20")
    ]
    assert ablation_tables(group_results(baselines), published()) == []


def test_csv_holds_every_number_in_full(groups, rows):
    table = overall_table(groups, rows)
    lines = list(csv.reader(io.StringIO(to_csv(table))))
    assert len(lines) == 1 + len(table.rows)
    for line, row in zip(lines[1:], table.rows, strict=True):
        cells = dict(zip(lines[0], line, strict=True))
        assert cells["source"] == (row.source or "this report")
        for column, value in zip(table.columns, row.values, strict=True):
            title = f"{column.band}: {column.title}" if column.band else column.title
            assert cells[title] == ("" if value is None else repr(value.mean))
            deviation = "" if value is None or value.deviation is None else repr(value.deviation)
            assert cells[f"{title} deviation"] == deviation


def test_latex_is_balanced_escaped_and_bold_where_best(groups, rows):
    table = overall_table(groups, rows)
    text = to_latex(table)
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == len(table.rows)
    columns = 1 + len(table.columns)
    assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {columns}
    assert len(re.findall(r"\\textbf", body)) == sum(len(winners) for winners in table.winners)
    assert re.sub(r"\\[{}]", "", text).count("{") == re.sub(r"\\[{}]", "", text).count("}")
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    assert not re.search(r"(?<!\\)%(?! needs)", text)
    assert r"\pm" in text


def test_odd_labels_survive_latex(tmp_path):
    groups = group_results([make_result("50%_of $a & b~c{}\\")])
    text = to_latex(overall_table(groups, []))
    assert r"50\%\_of \$a \& b\textasciitilde{}c\{\}\textbackslash{}" in text
    paths = write_table(overall_table(groups, []), tmp_path, "x-")
    assert [path.name for path in paths] == ["x-overall.tex", "x-overall.md", "x-overall.csv"]


def test_diagnosis_tells_bias_from_features(groups):
    ncm, _ = diagnosis_table(groups).rows
    (run,) = groups[0].results
    missed, total = zip(
        *((sum(map(sum, (row[:60] for row in m[60:]))), sum(map(sum, m[60:]))) for m in run.confusions[1:]),
        strict=True,
    )
    misroute = sum(100 * m / t for m, t in zip(missed, total, strict=True)) / 8
    metrics = run.metrics
    want = [
        metrics.last,
        metrics.sessions[0].overall - metrics.last,
        metrics.inc_weighted_avg,
        misroute,
        60.0,
    ]
    assert [value.mean for value in ncm.values] == pytest.approx(want)


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
    assert row.label == "SSS"
    assert row.remarks == ("3 class orders",)
    measures = (OVERALL_AVG, LAST, INC_AVG, BASE_INC, HARMONIC_AVG)
    for measure, value in zip(measures, row.values, strict=True):
        by_run = [measure.pick(result.metrics) for result in results]
        orders = [np.mean(by_run[:2]), by_run[2], by_run[3]]
        assert value.mean == pytest.approx(np.mean(orders))
        assert value.deviation == pytest.approx(np.std(orders, ddof=1))


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


@pytest.mark.usefixtures("blank_figures")
def test_a_row_of_orders_without_a_line_of_its_own_is_on_the_page(tmp_path):
    for index, result in enumerate([*runs()[:1], *runs("ncm")[2:]]):
        write_run(tmp_path / f"run-{index}", result, features=False)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "<h1>SSS on Doodles (Quick, Draw!)</h1>" in page
    (line,) = (tmp_path / "out" / "tables" / "class-orders.md").read_text().splitlines()[2:]
    assert line.startswith("| NCM (2 class orders) |")


@pytest.mark.usefixtures("blank_figures")
def test_the_page_and_its_files_hold_the_table(tmp_path):
    for index, result in enumerate([*runs(), *runs("ncm", novel=0.2)]):
        write_run(tmp_path / f"run-{index}", result, features=False)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "Over class orders" in page
    assert "class_order_seed=1" not in page
    markdown = (tmp_path / "out" / "tables" / "class-orders.md").read_text().splitlines()
    assert markdown[0].startswith("|  | Overall avg (%) | Last (%) |")
    assert [line.split(" |")[0] for line in markdown[2:]] == [
        "| SSS (3 class orders)",
        "| NCM (3 class orders)",
    ]


@pytest.mark.usefixtures("blank_figures")
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
    assert line.startswith("| SSS (epochs 3) (3 class orders) |")
    for order in (1, 2):  # where the numbers come from
        assert f"SSS · seed 0 · class order {order} <small>class-orders/sss-order{order}" in page

    alone = write_report([orders]).read_text()
    assert "SSS (class order seed 2)" in alone
    (line,) = (orders / "report" / "tables" / "class-orders.md").read_text().splitlines()[2:]
    assert line.startswith("| SSS (2 class orders) |")


def test_markdown_shows_mean_deviation_and_the_best():
    table = table_of([*runs(), *runs("ncm", novel=0.1)])
    assert table is not None
    first, second = (row.values[1] for row in table.rows)
    better, worse = to_markdown(table).splitlines()[2:]
    assert f"| **{first.mean:.2f}** ± {first.deviation:.2f} |" in better
    assert f"| {second.mean:.2f} ± {second.deviation:.2f} |" in worse


@pytest.mark.parametrize(
    ("values", "goal", "want"),
    [
        ([3.0, 1.2, 0.9], "one", {2}),
        ([0.8, 1.2], "one", {0, 1}),
        ([float("inf"), 2.0], "one", {1}),
        ([float("inf"), None], "one", set()),
        ([51.004, 51.001, 50.0], "high", {0, 1}),
        ([5.0, None, 2.0], "low", {2}),
        ([5.0, None], "high", set()),
    ],
)
def test_best(values, goal, want):
    assert best(values, goal) == want


def trade_off(overall, mirror=False):
    """A trade-off whose best rule on pseudo-novel classes is not the best on test images."""
    values = {"base_avg": 70, "inc_avg": 50, "harmonic_mean_avg": overall - 5, "both": 60, "method": {}}
    chosen = CurvePoint(rule="constant", setting=0.1, overall_avg=overall, tuned=True, **values)
    other = CurvePoint(rule="unbiased", setting=1, overall_avg=overall + 9, tuned=True, **values)
    rules = [RuleCurve(name=point.rule, points=[point]) for point in (other, chosen)]
    pseudo = [chosen.model_copy(update={"both": 70}), other]
    return TradeOff(mirror=mirror, rules=rules, chosen_on_pseudo_novel=pseudo)


def test_every_method_stands_by_its_own_decision_and_by_the_gates_chosen_for_it(groups):
    ncm, sss = groups
    gated = {
        id(ncm.results[0]): [trade_off(61)],
        id(sss.results[0]): [trade_off(62), trade_off(63, mirror=True)],
        id(sss.results[1]): [trade_off(64), trade_off(66, mirror=True)],
    }
    table = gate_table(groups, gated)
    assert table.bands == [
        (band, 4) for band in ("own decision", "with our gate", "with our gate, mirror images")
    ]
    first, second = table.rows
    assert [first.label, second.label] == [ncm.label, sss.label]
    own = [OVERALL_AVG.pick(result.metrics) for result in sss.results]
    overall = [second.values[i].mean for i in (0, 4, 8)]
    assert overall == pytest.approx([np.mean(own), 63, 64.5])
    assert [first.values[4].mean, first.values[8]] == [61, None]
    assert second.remarks == ("with our gate: constant 0.1", "with our gate, mirror images: constant 0.1")
    assert "mirror" not in to_markdown(gate_table(groups, {id(ncm.results[0]): [trade_off(61)]}))


def test_without_gates_there_is_no_table_of_them(groups):
    assert gate_table(groups, {}) is None
    assert gate_table(groups, {id(groups[0].results[0]): [TradeOff(rules=[])]}) is None
