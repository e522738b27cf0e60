"""Tables: every number is the one of Result.metrics, the best is marked, 80 columns suffice."""

import io
import re

import pytest
from rich.console import Console

from fairshot.methods import methods
from fairshot.reporting.groups import Spread, by_benchmark, group_results
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES, best
from fairshot.reporting.tables import side_by_side
from fairshot.studies.published import published
from support.results_factory import make_result


def printed(results, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(side_by_side(results, width))
    return console.file.getvalue()


def rows(text):
    """Split the cells of every line with numbers, the name of a measure dropped."""
    lines = [line for line in text.splitlines() if re.search(r"\d\.\d", line)]
    return [re.sub(f"^({'|'.join(m.title for m in SESSION_MEASURES)}) ", "", line).split() for line in lines]


def test_the_terminal_shows_the_metrics_of_the_results():
    ncm, sss = make_result("ncm", novel=0.1), make_result("sss", novel=0.5)
    lines = rows(printed([ncm, sss]))
    sessions, summary = lines[:-2], lines[-2:]
    for i, measure in enumerate(SESSION_MEASURES):
        for line, result in zip(sessions[2 * i : 2 * i + 2], (ncm, sss), strict=True):
            want = [measure.pick(session) for session in result.metrics.sessions]
            assert [cell.rstrip("*") for cell in line[1:]] == ["–" if v is None else f"{v:.1f}" for v in want]
    for line, result in zip(summary, (ncm, sss), strict=True):
        assert line[0] == result.method
        want = [f"{measure.pick(result.metrics):.2f}" for measure in SUMMARY_MEASURES]
        assert [cell.rstrip("*") for cell in line[1:]] == [*want, f"{sum(result.seconds.values()):.0f}"]


def test_the_better_run_is_starred():
    lines = rows(printed([make_result("ncm", novel=0.1), make_result("sss", novel=0.5)]))
    assert "*" not in "".join(lines[4]), "Inc of the worse run"
    assert all(cell.endswith("*") for cell in lines[5][2:]), "Inc of the better run"
    base_inc = 1 + [measure.title for measure in SUMMARY_MEASURES].index("Base/Inc")
    assert lines[-1][base_inc].endswith("*")
    assert not lines[-2][base_inc].endswith("*")


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


def test_seeds_are_averaged_with_their_sample_deviation():
    results = [make_result("sss", seed=seed) for seed in range(3)]
    text = printed([make_result("ncm", novel=0.1), *results])
    values = [result.metrics.overall_avg for result in results]
    mean = sum(values) / 3
    deviation = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    (group,) = group_results(results)
    assert group.summary(lambda m: m.overall_avg) == Spread(pytest.approx(mean), pytest.approx(deviation))
    assert f"{mean:.2f}" in text
    assert f"±{deviation:.2f}" in text
    assert "3 seeds" in text
    assert Spread.of([1.0, None]) is None
    assert Spread.of([1.0, float("inf")]).deviation is None


def test_runs_of_one_method_are_told_apart_by_their_settings():
    recipes = [
        {"method": {"sr": True, "resistance": False, "gamma": 0.2}},
        {"method": {"sr": True, "resistance": True, "gamma": 0.2}},
        {"method": {"sr": False, "resistance": False, "gamma": 0.5}},
    ]

    def labels(method, recipes):
        return [group.label for group in group_results([make_result(method, recipe=r) for r in recipes])]

    assert labels("sss", recipes) == [
        "sss (SR, gamma=0.2)",
        "sss (SR+R, gamma=0.2)",
        "sss (plain, gamma=0.5)",
    ]
    assert labels("sss", recipes[:2]) == ["sss (SR)", "sss (SR+R)"]
    flags = [{"small_stem": flag} for flag in (True, False)]
    assert labels("ncm", flags) == ["ncm (small_stem=on)", "ncm (small_stem=off)"]
    many = [dict.fromkeys("abcd", i) for i in range(2)]
    assert labels("ncm", many) == ["ncm #1 (a=0, b=0, ...)", "ncm #2 (a=1, b=1, ...)"]


def test_benchmarks_are_never_mixed():
    groups = group_results([make_result(), make_result(sizes=(4, 1)), make_result(benchmark="cifar100")])
    assert list(by_benchmark(groups)) == ["doodles (4 sessions)", "doodles (2 sessions)", "cifar100"]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("sessions", [0, 8, 10, 14])
def test_a_terminal_holds_every_number_and_title(sessions, width):
    results = [
        make_result(method, seed, sizes=(12, *[2] * sessions), recipe={"shots": 5, "margin": margin})
        for method, margin in (("ncm", 0.0), ("sss", 0.0), ("sss", 0.25))
        for seed in (0, 1)
    ]
    text = printed(results, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    words = [*(word for measure in SUMMARY_MEASURES for word in measure.title.split()), "session", "Seconds"]
    assert {*words, "(margin=0.25)"} <= set(text.split())
    headers = [line.split()[1:] for line in text.splitlines() if line.split()[:1] == ["session"]]
    assert [int(t) for header in headers for t in header] == list(range(sessions + 1))
    assert len(re.findall(r"^doodles: .*, (in|accuracies in) % *$", text, re.MULTILINE)) == len(headers) + 1
    for group in group_results(results):
        for t in range(sessions + 1):
            assert f"{group.session(t, lambda s: s.base).mean:.1f}" in text
    assert len(re.findall(r"±", text)) >= 6 * len(headers)


def test_nine_sessions_fit_into_80_columns_with_the_longest_name_of_a_method():
    results = [make_result(method, sizes=(12, *[2] * 8)) for method in (max(methods(), key=len), "sss")]
    lines = printed(results).splitlines()
    assert [line.split() for line in lines if line.split()[:1] == ["session"]] == [["session", *"012345678"]]


def test_own_pictures_of_earlier_versions_are_told_apart_by_their_classes():
    recipe = {"benchmark": {"name": "folder"}}
    first, second = (make_result("ncm", seed, "photos", recipe=recipe) for seed in (0, 1))
    second.class_names.reverse()  # each seed draws which classes are base classes
    other = make_result("ncm", 2, "photos", recipe=recipe)
    other.class_names[0] = "another"
    grouped = by_benchmark(group_results([first, second, other]))
    assert {name: [g.results for g in groups] for name, groups in grouped.items()} == {
        "photos #1": [(first, second)],
        "photos #2": [(other,)],
    }
    longer = make_result("ncm", 3, "photos", (6, 2, 2, 1, 1), recipe=recipe)
    assert list(by_benchmark(group_results([first, longer, other]))) == [
        "photos #1 (4 sessions)",
        "photos #1 (5 sessions)",
        "photos #2",
    ]


def test_a_folder_that_is_called_like_a_benchmark_has_no_published_rows():
    sizes = (60, *[5] * 8)
    (ours,) = group_results([make_result("ncm", benchmark="cifar100", sizes=sizes)])
    (own,) = group_results(
        [make_result("ncm", benchmark="cifar100", sizes=sizes, recipe={"benchmark": {"name": "folder"}})]
    )
    assert (ours.official, own.official) == ("cifar100", "")
    assert published().on("cifar100", 9)
    assert not published().on(own.official, 9)
