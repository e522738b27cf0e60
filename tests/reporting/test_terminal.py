"""Tables in a terminal: each number is that of Result.metrics, the best is starred, 80 columns suffice."""

import io
import re

import pytest
from rich.console import Console

from fairshot.methods import method_title, methods
from fairshot.recipes import load_recipe
from fairshot.reporting.groups import Spread, group_results
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES
from fairshot.reporting.terminal import conditions_table, side_by_side
from support.results_factory import make_result


def rendered(shown, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    return console.file.getvalue()


def printed(results, width=80):
    return rendered(side_by_side(results, width), width)


def rows(text):
    """Split the cells of every line with numbers, the name of a measure dropped."""
    lines = [line for line in text.splitlines() if re.search(r"\d\.\d", line)]
    return [re.sub(f"^({'|'.join(m.title for m in SESSION_MEASURES)}) ", "", line).split() for line in lines]


def test_the_terminal_shows_the_metrics_of_the_results():
    ncm, sss = make_result("ncm", novel=0.1), make_result("sss", novel=0.5)
    lines = rows(printed([ncm, sss]))
    sessions, summary = lines[:-2], lines[-2:]
    for i, measure in enumerate(SESSION_MEASURES):
        for line, result in zip(sessions[2 * i : 2 * i + 2], (sss, ncm), strict=True):
            want = [measure.pick(session) for session in result.metrics.sessions]
            assert [cell.rstrip("*") for cell in line[1:]] == ["–" if v is None else f"{v:.1f}" for v in want]
    for line, result in zip(summary, (sss, ncm), strict=True):  # ranked by harmonic mean
        assert line[0] == method_title(result.method)
        want = [f"{measure.pick(result.metrics):.2f}" for measure in SUMMARY_MEASURES]
        assert [cell.rstrip("*") for cell in line[1:]] == [*want, f"{sum(result.seconds.values()):.0f}"]


def test_seconds_without_a_loaded_base_session_are_marked():
    def result(method, base, seed=0):
        made = make_result(method, seed, novel=0.5 if base else 0.1)
        return made.model_copy(update={"base": base, "seconds": {"base session": 50.0, "sessions": 3.0}})

    ncm, teen = result("ncm", None), result("teen", "../runs/ncm-seed0")
    text = printed([ncm, teen])
    assert [line[-1] for line in rows(text)[-2:]] == ["3†", "53"]
    assert re.search("^† .* ncm-seed0 *$", text, re.MULTILINE)
    assert "†" not in printed([ncm])
    (group,) = group_results([result("teen", None, seed=1), teen])
    assert group.seconds == {"sessions": Spread(3.0, 0.0)}
    assert group.total_seconds == Spread(3.0, 0.0)


def test_the_better_run_is_starred():
    lines = rows(printed([make_result("ncm", novel=0.1), make_result("sss", novel=0.5)]))
    assert "*" not in "".join(lines[5]), "Inc of the worse run"
    assert all(cell.endswith("*") for cell in lines[4][2:]), "Inc of the better run"
    base_inc = 1 + [measure.title for measure in SUMMARY_MEASURES].index("Base/Inc")
    assert lines[-2][base_inc].endswith("*")
    assert not lines[-1][base_inc].endswith("*")


def test_the_terminal_shows_the_deviation_over_seeds():
    results = [make_result("sss", seed=seed) for seed in range(3)]
    (group,) = group_results(results)
    average = group.summary(lambda m: m.overall_avg)
    text = printed([make_result("ncm", novel=0.1), *results])
    assert f"{average.mean:.2f}" in text
    assert f"±{average.deviation:.2f}" in text
    assert "3 seeds" in text


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
    assert {*words, "(margin", "0.25)"} <= set(text.split())
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


def test_conditions_are_told_once_where_all_share_them_and_compared_where_they_differ():
    recipes = {name: load_recipe(f"doodles/{name}").as_dict() for name in ("ncm", "sss")}
    novel = {"ncm": 0.1, "sss": 0.5}
    runs = [make_result(name, novel=novel[name], recipe=recipe) for name, recipe in recipes.items()]
    text = rendered(conditions_table(runs))
    alike, _, table = text.partition("\nmethod ")
    assert "backbone: tiny; " in alike
    assert "keeps pictures: no" in " ".join(alike.split())
    header, _, *lines = table.splitlines()
    assert header.split() == ["epochs", "passes", "stores"]
    assert [line.split()[:3] for line in lines] == [["SSS", "28", "2"], ["NCM", "40", "1"]]
    alone = rendered(conditions_table([make_result("ncm", recipe=recipes["ncm"])]))
    title, sentence = " ".join(alone.split()).split(" ", 1)
    assert title == "conditions"
    assert sentence.startswith("method: NCM; backbone: tiny; epochs: 40; budget: ")  # images are not known
    assert "─" not in alone
    same = [make_result("ncm", benchmark=name, recipe=recipes["ncm"]) for name in ("doodles", "photos")]
    twice = rendered(conditions_table(same))
    assert " ".join(twice.split()) == f"conditions alike for all: {sentence}"
