"""The report as a reader meets it: the real command, the files it leaves, the page in a real browser."""

import csv
import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairshot.cli import main
from fairshot.cli.advice import advice
from fairshot.errors import NoRunsFound
from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.reporting.figures import style, writer
from fairshot.reporting.figures.sections import SECTIONS
from fairshot.reporting.figures.style import render
from fairshot.reporting.groups import group_results, ranked
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES
from fairshot.reporting.names import PARTS
from fairshot.reporting.report import write_report
from fairshot.reporting.runs import find_collections, find_runs, read_run, without_repeats
from fairshot.studies.published import published
from support.commands import blank
from support.results_factory import make_result, write_run

SIZES = {"doodles": (6, 2, 2, 2), "cifar100": (60, *[5] * 8)}


def fairshot(*arguments):
    """Run the command line in this process; return its exit code and what it printed."""
    printed = io.StringIO()
    before, sys.argv = sys.argv, ["fairshot", *map(str, arguments)]
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            main()
    except SystemExit as end:
        return end.code or 0, printed.getvalue()
    finally:
        sys.argv = before
    return 0, printed.getvalue()


def drawn_for_the_page(figure, kinds):
    """Draw what the page shows; of the other kinds, those of the fixture `cifar` are drawn."""
    return blank(figure, kinds) | render(figure, ["svg"])


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's commands on fewer classes and for one epoch."""
    folder = tmp_path_factory.mktemp("demo") / "runs"
    less = (
        "training.epochs=1",
        "training.warmup_epochs=0",
        "benchmark.base_classes=4",
        "benchmark.way=1",
        "benchmark.sessions=3",
    )
    short = [word for key in less for word in ("--set", key)]
    with pytest.MonkeyPatch.context() as patch:
        for module in (style, writer):
            patch.setattr(module, "render", drawn_for_the_page)
        for command in (
            ["compare", "ncm", "sss", "--benchmark", "doodles", "--out", folder, *short],
            ["report", folder],
        ):
            code, printed = fairshot(*command)
            assert code == 0, printed
    results = [Result.read(folder / f"{name}-seed0") for name in ("ncm", "sss")]
    return SimpleNamespace(page=folder / "report" / "report.html", results=results)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """Runs in the shape of CIFAR-100, with everything a run can leave, beside published rows."""
    folder = tmp_path_factory.mktemp("cifar") / "runs"
    switches = {
        "method": {"name": "sss", **{part: part in ("intra", "inter", "sr") for part in PARTS}},
        "model": {"backbone": "resnet18"},
    }
    network = {"model": switches["model"]}
    results = [make_result("ncm", 0, "cifar100", SIZES["cifar100"], novel=0.15, recipe=network)]
    results += [
        make_result("sss", s, "cifar100", SIZES["cifar100"], novel=0.5, recipe=switches) for s in (0, 1)
    ]
    for index, result in enumerate(results):
        write_run(folder / f"{result.method}-{index}", result, trade_off=index == 1)
    return SimpleNamespace(
        page=write_report([folder], folder / "page", "fairshot report runs"), results=results
    )


@pytest.fixture(params=["demo", "cifar"])
def report(request):
    return request.getfixturevalue(request.param)


class Reader(HTMLParser):
    """Collects elements, and fails for tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_page_is_one_sound_file_that_asks_nothing_of_the_network(report):
    text = report.page.read_text()
    reader = Reader(text)
    ids = [attributes["id"] for _, attributes in reader.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    sources = [
        a.get("src") or a.get("xlink:href", "#")
        for tag in ("img", "script", "image")
        for a in reader.all(tag)
    ]
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert [a["href"] for a in reader.all("link")] == ["data:,"]
    assert "@import" not in text
    for link in (a["href"] for a in reader.all("a")):
        assert link[1:] in ids if link.startswith("#") else (report.page.parent / link).stat().st_size > 0, (
            link
        )


def test_each_section_of_figures_is_on_the_page_and_in_its_navigation(cifar):
    text = cifar.page.read_text()
    for section in SECTIONS:
        assert text.count(f'<a href="#cifar100-{section.key}">{section.link}</a>') == 1
        _, _, shown = text.partition(f'<section id="cifar100-{section.key}">')
        assert f"<h3>{section.title}</h3>" in shown.partition("</section>")[0]
        assert section.absent not in text


def test_the_speed_of_training_names_what_it_counts(cifar):
    assert "Source images per second in the median" in cifar.page.read_text()


def test_page_can_be_read_aloud(report):
    reader = Reader(report.page.read_text())
    assert all(len(a["alt"]) > 20 for a in reader.all("img"))
    drawings = [a for a in reader.all("svg") if "aria-hidden" not in a]  # keys stand beside names
    assert len(drawings) >= 9
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert all(a["scope"] in ("col", "row", "colgroup") for a in reader.all("th"))
    assert len(reader.all("caption")) == len(reader.all("table"))
    assert reader.all("html")[0]["lang"] == "en"


def test_page_says_what_made_it(report):
    text = report.page.read_text()
    for result in report.results:
        assert result.command.replace("&", "&amp;") in text
        assert f"seed {result.seed}" in text
        assert f"Python {result.environment.python}" in text
        assert f"fairshot {result.environment.packages['fairshot']}" in text
        assert result.environment.software in text
        assert result.environment.device in text
    for measure in (*SESSION_MEASURES, *SUMMARY_MEASURES):
        assert measure.meaning in text


def test_few_methods_are_shown_without_being_asked(report):
    folds = [a for a in Reader(report.page.read_text()).all("details") if a.get("class")]
    assert {"each", "origin"} <= {a["class"] for a in folds}
    assert all("open" in a for a in folds)


def test_page_says_under_which_conditions_each_method_ran(cifar):
    text = cifar.page.read_text()
    table = text.partition('data-table="conditions"')[2].partition("</table>")[0]
    assert "keeps pictures" in table.lower()
    assert escape(methods()["sss"].card.stores) in table
    assert table.count("<tr class=") == 2
    assert "Per class" not in table  # of earlier results nobody knows


@pytest.mark.usefixtures("blank_figures")
def test_classes_are_compared_with_the_baseline_wherever_it_stands(tmp_path):
    for method in ("alice", "ncm", "sss"):
        write_run(tmp_path / method, make_result(method, sizes=(5, 3)), features=False)
    text = write_report([tmp_path]).read_text()
    assert "all 3 runs: no features.safetensors" in text
    assert "ALICE instead of NCM" in text
    assert "SSS instead of NCM" in text
    assert "NCM: since the session that introduced the class" in text


@pytest.mark.usefixtures("blank_figures")
def test_classes_are_compared_with_the_baseline_on_the_same_network(tmp_path):
    networks = {"lite2": ("ncm", "sss"), "lite0": ("ncm", "sss"), "lite4": ("teen",)}
    for network, compared in networks.items():
        weights = {"model": {"backbone": f"efficientnet_{network}", "weights": f"efficientnet-{network}"}}
        for method in compared:
            result = make_result(method, sizes=(5, 3), recipe=weights)
            write_run(tmp_path / f"{method}-{network}", result, features=False)
    text = write_report([tmp_path]).read_text()
    pairs = re.findall(r"SSS \(([^)]*)\) instead of NCM \(([^)]*)\)", text)
    assert len(set(pairs)) == 2
    assert all(mine == baselines for mine, baselines in pairs)
    assert "TEEN: since the session that introduced the class" in text
    assert "TEEN instead of" not in text


def test_what_gates_chosen_on_pseudo_novel_classes_give_is_a_table(cifar):
    section = (
        cifar.page.read_text().partition("<h3>Trade-off of the gates</h3>")[2].partition("</section>")[0]
    )
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)</t", row) for row in section.split("<tr>")[1:]]
    assert cells[0] == ["Rule", "Setting", "Overall (%)", "Novel (%)", "Harmonic mean (%)"]
    assert cells[1:] == [["transferable scores + constant", "0.2", "58.40", "42.00", "47.40"]]


def test_figures_and_tables_lie_beside_the_page(cifar):
    folder = cifar.page.parent
    figures = {path.stem for path in (folder / "figures").iterdir()}
    assert figures == {
        *("accuracy", "overall", "imbalance", "trade-off", "confusion", "classes-0", "change-1"),
        *("gates-0", "tsne", "heat-map", "occupancy", "training"),
    }
    assert {path.suffix for path in (folder / "figures").glob("tsne.*")} == {".png", ".svg", ".pdf"}
    tables = {path.stem for path in (folder / "tables").glob("*.tex")}
    assert tables == {path.stem for path in (folder / "tables").glob("*.csv")}
    assert tables >= {"summary", "main", "overall", "incremental", "components", "features"}
    lines = list(csv.DictReader((folder / "tables" / "overall.csv").open()))
    ncm = next(line for line in lines if line["row"] == "NCM")
    assert float(ncm["Overall avg (%)"]) == pytest.approx(cifar.results[0].metrics.overall_avg)
    assert sum(line["source"] != "this report" for line in lines) == len(published().on("cifar100", 9))


@pytest.mark.usefixtures("blank_figures")
def test_missing_pieces_are_named(tmp_path):
    write_run(tmp_path / "bare", make_result("ncm", sizes=(5,)), features=False)
    (tmp_path / "bare" / "training.csv").unlink()
    broken = write_run(tmp_path / "broken", make_result("sss", sizes=(5,)))
    (broken / "features.safetensors").write_bytes(b"not safe")
    (broken / "training.csv").write_text("step,epoch,loss\n1,1,much\n")
    (broken / "tradeoff.json").write_text(json.dumps({"rules": [{"name": "x", "points": [{}]}]}))
    (tmp_path / "stopped" / "checkpoints").mkdir(parents=True)
    # A search for settings is not a run that was interrupted, neither at its end nor before its first trial.
    for folder, files in (
        ("tuning", ("recipe.yaml", "trials.json")),
        ("tuning-begun", ("search.json", "log.txt")),
    ):
        (tmp_path / folder).mkdir()
        for name in files:
            (tmp_path / folder / name).touch()
    text = write_report([tmp_path]).read_text()
    assert re.search(r"/stopped</code>: no result.json: the run was interrupted", text)
    assert "/bare: no features.safetensors" in text
    assert "/bare: no training.csv" in text
    assert "/broken: features.safetensors cannot be read" in text
    assert "/broken: training.csv cannot be read: could not convert" in text
    assert "/broken: tradeoff.json cannot be read" in text
    assert "t-SNE, heat map and FMO cannot be drawn" in text
    assert "shades are the deviation" not in text  # of a single seed each
    assert "fairshot tradeoff RUN" in text
    assert "/tuning" not in text


@pytest.mark.usefixtures("blank_figures")
def test_a_run_on_the_base_session_of_another_lacks_no_training_and_cores_are_told_once(tmp_path):
    runs = {"own": (None, "NVIDIA H200"), "loaded": ("runs/own", "x86_64 CPU, 2 cores, 2 threads")}
    for name, (base, device) in runs.items():
        result = make_result("sss", sizes=(5,), recipe={"name": name})
        result.base = base
        result.seconds = {"base session": 7.5, "sessions": 1.5}
        result.environment.device = device
        write_run(tmp_path / name, result, features=False)
    (tmp_path / "loaded" / "training.csv").write_text("step,epoch,loss,learning_rate\n")
    text = write_report([tmp_path]).read_text()
    assert "training.csv cannot be read" not in text
    assert text.count("no training of its own") == 1
    assert "session loaded from <code>runs/own</code>" in text
    assert [text.count(f"<dd>{took} (") for took in ("9.0 s", "1.5 s")] == [1, 1]
    assert text.count("base session 7.5 s") == 1
    assert "<dd>x86_64 CPU, 2 cores, 2 threads</dd>" in text
    assert "<dd>NVIDIA H200, 2 CPU cores</dd>" in text


@pytest.mark.parametrize(("base", "whose"), [("runs/b c", "runs/b c"), (None, "another run")])
def test_whose_base_session_was_loaded_is_in_the_result(tmp_path, base, whose):
    result = make_result("sss", sizes=(5,))
    folder = write_run(tmp_path / "run", result, features=False)
    assert read_run(folder).base_session_of == ""
    (folder / "training.csv").write_text("step,epoch,loss,learning_rate\n")
    result.model_copy(update={"base": base}).write(folder)
    assert read_run(folder).base_session_of == whose


@pytest.mark.usefixtures("blank_figures")
def test_of_a_frozen_network_the_page_says_that_nothing_was_trained(tmp_path):
    frozen = make_result("ncm", sizes=(5,)).model_copy(update={"epochs": 0, "images": 0})
    folder = write_run(tmp_path / "run", frozen, features=False)
    (folder / "training.csv").write_text("step,epoch,loss,learning_rate\n")
    text = write_report([tmp_path]).read_text()
    assert "<dd>nothing was trained</dd>" in text
    assert "session loaded from" not in text


def test_an_interrupted_run_alone_still_gives_a_page(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("seed: 0\n")
    page = write_report([tmp_path / "run"])
    assert page == tmp_path / "run" / "report" / "report.html"
    text = page.read_text()
    assert "No finished run yet" in text
    assert "the run was interrupted" in text


@pytest.mark.usefixtures("blank_figures")
def test_two_benchmarks_are_two_sections(tmp_path):
    write_run(tmp_path / "a", make_result("ncm", sizes=(5,)), features=False)
    write_run(tmp_path / "b", make_result("ncm", benchmark='<b>odd & "name"', sizes=(4,)), features=False)
    text = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "out").read_text()
    assert len(Reader(text).all("article")) == 2
    assert "<b>odd" not in text
    assert (tmp_path / "out" / "figures" / "1-accuracy.pdf").is_file()
    assert (tmp_path / "out" / "figures" / "2-accuracy.pdf").is_file()


@pytest.mark.usefixtures("blank_figures")
def test_folders_of_the_same_name_with_other_pictures_are_two_sections(tmp_path):
    for name, pictures, novel in (("a", "1f", 0.2), ("b", "2e", 0.9)):
        result = make_result("ncm", ord(name), "photos", (4,), novel=novel)
        write_run(tmp_path / name, result.model_copy(update={"pictures": pictures}), features=False)
    text = write_report([tmp_path]).read_text()
    assert re.findall("<h2>(.*)</h2>", text) == ["photos #1", "photos #2"]
    assert text.count("runs on other pictures in a folder of this name") == 2
    assert "Mean of seeds" not in text
    assert "<h1>NCM on photos</h1>" in text


def test_runs_are_found_in_a_folder_and_wrong_ones_refused(tmp_path):
    for name in ("b", "a"):
        write_run(tmp_path / "all" / name, make_result(name), features=False)
    (tmp_path / "all" / "report").mkdir()
    assert [path.name for path in find_runs([tmp_path / "all", tmp_path / "all" / "b"])] == ["a", "b"]
    for wrong in (tmp_path / "nowhere", tmp_path / "all" / "report"):
        with pytest.raises(NoRunsFound) as refused:
            find_runs([wrong])
        assert (refused.value.path, refused.value.collections) == (wrong, ())
    code, printed = fairshot("report", tmp_path / "nowhere")
    assert code == 2
    assert advice(NoRunsFound(tmp_path / "nowhere")) in printed.replace("\n", " ")


@pytest.mark.usefixtures("blank_figures")
def test_collections_are_named_and_reported_only_where_they_are_given(tmp_path):
    write_run(tmp_path / "all" / "ncm", make_result("ncm"), features=False)
    for name in ("a", "b"):
        result = make_result("sss", recipe={"training": {"epochs": ord(name)}})
        write_run(tmp_path / "all" / "short trainings" / name, result, features=False)
    write_run(tmp_path / "all" / "tuning" / "sss" / "trial", make_result("teen"), features=False)
    (tmp_path / "all" / "ncm" / "inner").mkdir()
    (tmp_path / "all" / "ncm" / "inner" / "log.txt").touch()  # within a run nothing is searched
    short, trials = tmp_path / "all" / "short trainings", tmp_path / "all" / "tuning" / "sss"
    assert find_collections([tmp_path / "all"]) == {short: 2, trials: 1}
    assert find_collections([tmp_path / "all", short]) == {trials: 1}
    assert find_collections([tmp_path / "all" / "ncm"]) == {}

    code, printed = fairshot("report", tmp_path / "all", "--out", tmp_path / "one")
    assert code == 0
    assert f"2 runs; to see them: fairshot report '{short}'\n" in printed
    assert f"1 run; to see it: fairshot report {trials}\n" in printed
    page = (tmp_path / "one" / "report.html").read_text()
    assert f"fairshot report {trials}</code> <small>1 run<" in page
    assert "<h1>NCM on Doodles (Quick, Draw!)</h1>" in page

    page = write_report([tmp_path / "all", short], tmp_path / "both").read_text()
    assert "<h1>NCM, SSS on Doodles (Quick, Draw!)</h1>" in page
    assert "SSS (epochs 97)" in page
    assert "short trainings&#39;</code>" not in page


def test_folders_that_may_not_be_read_are_passed_over(tmp_path, monkeypatch):
    write_run(tmp_path / "ncm", make_result("ncm"), features=False)
    private = tmp_path / "private"
    private.mkdir()
    for name in ("iterdir", "exists"):  # as they fail for everybody but root
        original = getattr(Path, name)

        def refuse(path, original=original):
            if private in (path, path.parent):
                raise PermissionError(13, "Permission denied", str(path))
            return original(path)

        monkeypatch.setattr(Path, name, refuse)
    assert find_runs([tmp_path]) == [tmp_path / "ncm"]
    assert find_collections([tmp_path]) == {}
    with pytest.raises(NoRunsFound):
        find_runs([private])


@pytest.mark.usefixtures("blank_figures")
def test_a_run_that_lies_in_two_folders_counts_once(tmp_path):
    for name, seed in (("a/first", 0), ("a/second", 1), ("b/copy", 0)):
        write_run(tmp_path / name, make_result("ncm", seed, sizes=(5, 2)), features=False)
    page = write_report([tmp_path / "a", tmp_path / "b"]).read_text()
    assert "Mean of seeds 0, 1." in page
    assert "a/first: b/copy has the same recipe, seed and answers, and is left out" in page


@pytest.mark.usefixtures("blank_figures")
def test_many_variants_of_one_method_have_a_short_heading(tmp_path):
    for method, seed in (("sss", 0), ("sss", 1), ("sss_bgmm", 0)):
        write_run(tmp_path / f"{method}-{seed}", make_result(method, seed, sizes=(5, 2)), features=False)
    page = write_report([tmp_path]).read_text()
    assert "<h1>SSS on Doodles (Quick, Draw!)</h1>" in page
    assert "Numbers of several seeds are their mean." in page
    page = write_report([tmp_path / "sss_bgmm-0"]).read_text()
    assert "<h1>SSS with mixtures on Doodles (Quick, Draw!)</h1>" in page


def test_runs_of_one_recipe_on_other_pictures_all_count(tmp_path):
    first = make_result("ncm", benchmark="photos", sizes=(5, 2))
    other_classes = first.model_copy(update={"class_names": [f"other {name}" for name in first.class_names]})
    other_answers = make_result("ncm", benchmark="photos", sizes=(5, 2), novel=0.6)
    for name, result in (("a", first), ("b", other_classes), ("c", other_answers)):
        write_run(tmp_path / name, result, features=False)
    kept = without_repeats([read_run(tmp_path / name) for name in ("a", "b", "c", "a")])
    assert [run.folder.name for run in kept] == ["a", "b", "c"]


def test_a_folder_of_collections_alone_is_refused_and_says_what_to_give(tmp_path):
    write_run(tmp_path / "results" / "doodles" / "ncm", make_result("ncm"), features=False)
    (tmp_path / "results" / "photos").mkdir()
    (tmp_path / "results" / "photos" / "log.txt").write_text("of another command\n")
    with pytest.raises(NoRunsFound) as refused:
        find_runs([tmp_path / "results"])
    assert refused.value.collections == (tmp_path / "results" / "doodles",)
    code, printed = fairshot("report", tmp_path / "results")
    assert code != 0
    assert str(tmp_path / "results" / "doodles") in printed
    assert not list(tmp_path.rglob("report.html"))


def test_a_result_of_another_version_is_named_not_raised(tmp_path):
    folder = write_run(tmp_path / "run", make_result("ncm"))
    (folder / "result.json").write_text('{"method": "ncm"}')
    assert "not a result this version can read" in read_run(folder).missing[0]


@pytest.fixture
def page(browser, report):
    """The report in the browser; whatever it complains about fails the test."""
    complaints = []
    tab = browser.new_page()
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on(
        "request",
        lambda request: (
            None if request.url.startswith(("file:", "data:")) else complaints.append(request.url)
        ),
    )
    tab.goto(report.page.as_uri())
    yield tab
    assert complaints == []
    tab.close()


def visible_rows(page, key):
    """Label and numbers of each row of ours in the visible table of this key."""
    rows = page.locator(f"table[data-table='{key}'] tr.ours:visible").all()
    return [
        (
            row.locator("th").inner_text(),
            [cell.get_attribute("data-value") for cell in row.locator("td:not(.tick)").all()],
            row.locator("td:not(.tick)").all_inner_texts(),
        )
        for row in rows
    ]


def choose_table(page, key):
    page.locator(f".tabs input[value='{key}']").check(force=True)


def assert_shows(rows, groups, values):
    assert len(rows) == len(groups)
    for (label, exact, shown), group in zip(rows, groups, strict=True):
        assert label.startswith(group.label)
        for number, text, value in zip(exact, shown, values(group), strict=True):
            if value is None:
                assert (number, text) == (None, "–")
            else:
                assert float(number) == pytest.approx(value.mean, abs=1e-9)
                assert text.split("±")[0].strip() == f"{value.mean:.2f}"
                assert ("±" in text) == (value.deviation is not None)


def test_browser_loads_every_picture(page, report):
    page.locator("[data-session]").first.wait_for(state="attached")
    loaded = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
    assert len(loaded) == len(report.results[0].sessions) * len(group_results(report.results))
    assert all(loaded)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.figure svg')].map(svg => svg.getBoundingClientRect().width)"
    )
    assert len(sizes) >= 9
    assert min(sizes) > 200
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_browser_tables_equal_result_json(page, report):
    groups = ranked(group_results(report.results))
    rows = visible_rows(page, "summary")
    assert all(float(a[1][-1]) >= float(b[1][-1]) for a, b in pairwise(rows))  # ranked by harmonic mean
    assert_shows(rows, groups, lambda group: [group.summary(measure.pick) for measure in SUMMARY_MEASURES])
    last = groups[0].session_count - 1
    choose_table(page, "overall")
    assert_shows(
        visible_rows(page, "overall"),
        groups,
        lambda group: [
            *(group.session(t, lambda s: s.overall) for t in range(last + 1)),
            group.summary(lambda m: m.overall_avg),
            group.summary(lambda m: m.bicp),
        ],
    )
    choose_table(page, "incremental")
    assert_shows(
        visible_rows(page, "incremental"),
        groups,
        lambda group: [
            *(group.session(t, lambda s: s.inc) for t in range(1, last + 1)),
            group.summary(lambda m: m.base_inc),
        ],
    )


@pytest.mark.usefixtures("blank_figures")
def test_browser_opens_the_measured_cifar100_results(browser, tmp_path):
    committed = Path(__file__).parents[2] / "results" / "cifar100" / "timm-initialisation"
    results = [Result.read(found.parent) for found in sorted(committed.glob("*/result.json"))]
    complaints = []
    tab = browser.new_page()
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    runs = [found.parent for found in sorted(committed.glob("*/result.json"))]
    tab.goto(write_report(runs, tmp_path / "page").as_uri())
    assert_shows(
        visible_rows(tab, "summary"),
        ranked(group_results(results)),
        lambda group: [group.summary(measure.pick) for measure in SUMMARY_MEASURES],
    )
    assert all(tab.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)"))
    assert tab.evaluate("document.documentElement.scrollHeight") < 10_000
    assert_labels_are_whole(tab)
    assert_charts_follow_what_is_shown(tab)
    assert_tables_follow_what_is_shown(tab)
    assert_comparison_comes_first(tab)
    assert_classes_are_named(tab)
    tab.locator("details.notice summary").click()
    assert "features.safetensors" in tab.inner_text("body")  # too large to commit: the page says so
    assert complaints == []


def assert_labels_are_whole(tab):
    """No label of a line reaches beyond its figure."""
    beyond = """[...document.querySelectorAll(".chart .end text")].map(text =>
        text.getBoundingClientRect().right - text.closest("svg").getBoundingClientRect().right)"""
    assert max(tab.evaluate(beyond)) <= 0


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("width", [620, 900, 1280])
def test_browser_shows_long_labels_whole_and_apart(browser, tmp_path, width):
    for number, weights in enumerate(("efficientnet-lite0", "efficientnet-lite2")):  # short with no value
        result = make_result("ncm", 0, "cifar100", SIZES["cifar100"], recipe={"weights": weights})
        write_run(tmp_path / "runs" / f"ncm-{number}", result, features=False)
    for novel, word in ((0.4, "chosen"), (0.5, "another")):
        setting = {
            "kind_of_classifier": f"{word} on pseudo-novel classes, with mirror images and corner crops"
        }
        result = make_result("sss", 0, "cifar100", SIZES["cifar100"], novel=novel, recipe=setting)
        write_run(tmp_path / "runs" / word, result, features=False)
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto(write_report([tmp_path / "runs"], tmp_path / "page").as_uri())
    long = tab.locator("[data-chart='trade-off'] .end text").all_text_contents()
    assert sorted(long)[2:] == [
        f"SSS (kind of classifier {word} on pseudo-novel classes, with mirror images and corner crops)"
        for word in ("another", "chosen")
    ]
    assert_labels_are_whole(tab)
    middles = """[...document.querySelectorAll("[data-chart='trade-off'] .end tspan")]
        .map(row => row.getBoundingClientRect()).map(box => (box.top + box.bottom) / 2)"""
    rows = sorted(tab.evaluate(middles))
    assert len(rows) > 4
    assert all(lower - upper > 12 for upper, lower in pairwise(rows))
    imbalance = tab.locator("[data-chart='imbalance']")
    assert imbalance.locator(".title").count() == 4
    assert "drops from the left panel to the right one" in imbalance.locator("figcaption").inner_text()
    curves = """[...document.querySelectorAll("[data-chart='overall'] clipPath rect")]
        .map(area => area.width.baseVal.value / area.ownerSVGElement.viewBox.baseVal.width)"""
    assert min(tab.evaluate(curves)) > 0.4


@pytest.mark.usefixtures("blank_figures")
def test_browser_marks_nothing_as_best_that_cannot_be_compared(browser, tmp_path):
    knowing = {"model": {"backbone": "tf_efficientnet_lite2", "weights": "efficientnet-lite2"}}
    for method, novel, recipe in (("ncm", 0.97, knowing), ("teen", 0.95, {}), ("sss", 0.3, {})):
        result = make_result(
            method, 0, "mini_imagenet", (60, *[5] * 8), base=0.98, novel=novel, recipe=recipe
        )
        write_run(tmp_path / "runs" / method, result, features=False)
    tab = browser.new_page()
    tab.goto(write_report([tmp_path / "runs"], tmp_path / "page").as_uri())
    assert "best among comparable rows in bold" in tab.locator("[id$='-tables'] .lead").inner_text()
    for _ in range(2):
        best = tab.locator("[data-table='overall'] tr:has(td.best) th").all_text_contents()
        assert any("TEEN" in label for label in best)
        assert not any("NCM" in label for label in best)
        tab.locator("[data-toggle^='method']").last.uncheck()  # after which the best are found anew
    assert "NCM" in tab.locator("[data-table='summary'] tr:has(td.best) th").first.text_content()


def assert_charts_follow_what_is_shown(tab):
    """A published line far below is cut off and marked; what is hidden leaves neither leader nor axis."""
    chart = tab.locator("[data-chart='overall']")
    marked = chart.locator("text.clipped").all_text_contents()
    assert marked == ["▾ TOPIC, published 29.4"]
    ends = chart.locator(".end").count()
    assert ends == chart.locator("g[clip-path]").count() > 20
    ticks = "[...document.querySelectorAll(\"[data-chart='trade-off'] text\")].map(text => text.textContent)"
    before = tab.evaluate(ticks)
    boxes = tab.locator("[data-toggle]").all()
    for box in boxes[3:]:
        box.uncheck()
    assert chart.locator(".end").count() == chart.locator("g[clip-path]").count() == 3
    assert chart.locator(".leader").count() <= 3
    assert tab.evaluate(ticks) != before  # the axis has another range
    for box in boxes:
        box.check()
    assert chart.locator(".end").count() == ends
    widths = tab.evaluate(
        """[...document.querySelectorAll(".chart")].map(svg =>
            [svg, svg.closest("section")].map(one => one.getBoundingClientRect().width))"""
    )
    assert all(drawn > 0.9 * room for drawn, room in widths)


def assert_tables_follow_what_is_shown(tab):
    """Bold and footnotes are those of the rows that are shown, and a click sorts."""
    best = """[...document.querySelectorAll("[data-table=summary] td:last-child.best")]
        .map(cell => cell.parentNode.dataset.method)"""
    (winner,) = tab.evaluate(best)
    tab.locator(f"[data-toggle='{winner}']").uncheck()
    (second,) = tab.evaluate(best)
    assert second != winner
    tab.locator(f"[data-toggle='{winner}']").check()
    assert tab.evaluate(best) == [winner]

    head = tab.locator("[data-table='summary'] th[data-goal]").first
    values = lambda: [float(row[1][0]) for row in visible_rows(tab, "summary")]  # noqa: E731
    head.locator("button").click()
    assert values() == sorted(values(), reverse=True)
    head.locator("button").click()
    assert values() == sorted(values())
    assert head.get_attribute("aria-sort") == "ascending"

    choose_table(tab, "main")
    notes = tab.locator(".table:has([data-table='main']) [data-remark]:visible")
    assert notes.count() > 2
    assert [text[0] for text in notes.all_inner_texts()] == list("abcdefgh"[: notes.count()])
    tab.locator("[data-toggle='published']").uncheck()
    assert notes.count() == 0  # ours have one backbone, and none is transductive
    tab.locator("[data-toggle='published']").check()
    choose_table(tab, "significance")
    assert "cannot give a p below 0.25" in tab.locator("[data-table='significance']").inner_text()


def assert_classes_are_named(tab):
    """The pointer over a confusion matrix shows which class was answered with which."""
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.locator(".matrix:visible").first.hover()
    assert re.fullmatch(r"\w+ → \w+: \d+ %", tab.locator(".tip:visible").inner_text())


def assert_comparison_comes_first(tab):
    """With many methods their own parts are folded up; unfolded for one session, they are for each."""
    assert tab.locator("details[open]").count() == 0
    tab.set_viewport_size({"width": 1280, "height": 900})
    assert all(one.bounding_box()["y"] < 900 for one in tab.locator(".balance").all()[:8])
    assert tab.locator(".bar").bounding_box()["height"] < 110  # methods are one line, which scrolls
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.locator(".balance").first.bounding_box()["y"] < 800
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator(".confusion:visible").count() == 0
    tab.locator(".session:visible details.each summary").click()
    shown = tab.locator(".confusion:visible").count()
    assert shown == tab.locator(".balance").count()
    tab.locator(".switch input[value='3']").check(force=True)
    assert tab.locator(".confusion:visible").count() == shown


def test_browser_switches_sessions(page, report):
    groups = ranked(group_results(report.results))
    for t in (groups[0].session_count - 1, 0, 1):
        page.locator(f".switch input[value='{t}']").check(force=True)
        assert page.locator("[data-session]:visible").count() == 1
        rows = visible_rows(page, f"session-{t}")
        assert_shows(rows, groups, lambda group, t=t: [group.session(t, m.pick) for m in SESSION_MEASURES])
        answers = page.locator(f"[data-answers='{t}']:visible").first.inner_text()
        assert f"{groups[0].session(t, lambda s: s.base).mean:.1f}" in answers


def test_browser_hides_and_shows_methods(page, report):
    everything = "document.querySelectorAll('[data-method=\"method-0\"]')"
    shown = f"[...{everything}].filter(e => e.getClientRects().length).length"
    before = page.evaluate(shown)
    drawn = page.evaluate(f"[...{everything}].filter(e => e.closest('svg')).length")
    assert drawn >= 6, "lines of the method inside the figures"
    page.locator("[data-toggle='method-0']").uncheck()
    assert page.evaluate(shown) == 0
    others = [group.label for group in ranked(group_results(report.results))][1:]
    assert [label.split()[0] for label, *_ in visible_rows(page, "summary")] == others
    nothing = page.locator("[data-nothing]")
    assert not nothing.is_visible()
    page.locator("[data-choose='none']").click()
    assert page.locator("[data-toggle]:checked").count() == len(visible_rows(page, "summary")) == 0
    assert nothing.is_visible()
    page.locator("[data-choose='all']").click()
    assert not nothing.is_visible()
    assert page.evaluate(shown) == before
    if page.locator("[data-toggle='published']").count():
        page.locator("[data-toggle='published']").uncheck()
        assert page.locator("tr.theirs:visible").count() == 0


def test_browser_is_dark_when_asked_and_white_on_paper(browser, cifar):
    tab = browser.new_page(color_scheme="dark")
    tab.goto(cifar.page.as_uri())
    ground = "getComputedStyle(document.querySelector('section')).backgroundColor"
    ink = "getComputedStyle(document.body).color"
    dark = tab.evaluate(ground), tab.evaluate(ink)
    tab.locator("#theme").click()
    light = tab.evaluate(ground), tab.evaluate(ink)
    assert light == ("rgb(255, 255, 255)", "rgb(28, 28, 30)")
    assert sum(map(int, re.findall(r"\d+", dark[0]))) < 150 < 600 < sum(map(int, re.findall(r"\d+", dark[1])))
    tab.locator("#theme").click()
    tab.emulate_media(media="print")
    assert tab.evaluate(ink) == "rgb(28, 28, 30)"
    assert not tab.locator(".bar").first.is_visible()
    assert len(tab.pdf()) > 50_000
    tab.close()
