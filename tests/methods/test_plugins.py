"""Methods from a user's file: the example of the guide, run by the commands of the page."""

import re
import shlex
from pathlib import Path

import pytest

from fairshot.errors import BadSetting, CodeNotTrusted, MethodNotLoaded, PathUnusable, UserError
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import recipe_of, recorded_recipe
from fairshot.methods import plugins
from fairshot.methods.plugins import load_plugin
from fairshot.recipes import load_recipe
from fairshot.studies.plan import plan
from fairshot.teaching import from_run
from support.commands import fairshot
from support.results_factory import make_result

GUIDE = Path(__file__).parents[2] / "docs" / "add-your-method.md"
SMALL = {"benchmark.base_classes": 4, "benchmark.way": 2, "benchmark.sessions": 1, "model.size": 14}
SETS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
BRIEF = [*SETS, "--set", "training.epochs=1"]


def example() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return code


def commands() -> list[list[str]]:
    return [
        shlex.split(line)[1:] for line in re.findall(r"^    (fairshot .*)$", GUIDE.read_text(), re.MULTILINE)
    ]


def test_a_benchmark_is_named_with_it():
    with pytest.raises(BadSetting) as refused:
        load_recipe("gentle.py:Gentle")
    assert (refused.value.key, refused.value.given) == ("recipe", "gentle.py:Gentle")
    with pytest.raises(BadSetting, match=r"names no benchmark; did you mean doodles\?"):
        load_recipe("doodle/gentle.py:Gentle")


def test_a_file_without_its_class_is_answered_with_its_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gentle.py").write_text(example())
    Path("broken.py").write_text("class (")
    for source in ("doodles/gentle.py", "gentle.py", "./gentle.py"):
        with pytest.raises(UserError, match=r"name its class: (\./)?gentle\.py:Gentle$"):
            load_recipe(source)
    with pytest.raises(UserError, match=r"name its class: broken\.py:Class$"):
        load_recipe("doodles/broken.py")


def test_the_guide_is_one_page_and_its_example_at_most_sixty_lines():
    assert len(GUIDE.read_text().splitlines()) < 100
    assert len(example().splitlines()) <= 60


def test_the_example_runs_by_the_commands_of_the_page(tmp_path):
    (tmp_path / "gentle.py").write_text(example())
    for arguments in commands():
        brief = BRIEF if arguments[0] in ("run", "compare") else []
        command = fairshot(tmp_path, *arguments, *brief)
        assert command.process.exitcode == 0, command.stderr
        if arguments[0] == "compare":
            assert "gentle" in command.stdout
            assert "?" not in command.stdout  # its conditions are known
    first = Result.read(tmp_path / "runs" / "doodles-gentle-seed0")
    stronger = Result.read(tmp_path / "runs" / "stronger")
    beside = Result.read(tmp_path / "runs" / "compare-doodles" / "gentle-seed0")
    assert first.method == beside.method == "gentle"
    assert first.confusions == beside.confusions
    assert stronger.metrics.sessions[-1].misroute < first.metrics.sessions[-1].misroute
    assert (tmp_path / "runs" / "compare-doodles" / "report" / "report.html").is_file()


@pytest.mark.parametrize(
    ("code", "wanted", "complaint"),
    [
        (None, "Gentle", "is no file"),
        ("import nothing_of_this_name", "Gentle", "cannot be imported: ModuleNotFoundError"),
        ("class Gentle: pass", "Gentle", "no class 'Gentle' that derives from"),
        (
            "from fairshot.methods.prototype_method import PrototypeMethod as Gentle",
            "Gentle",
            "lacks name",
        ),
        (example(), "Mild", "no class 'Mild'"),
        (example(), "Gentel", r"no class 'Gentel' .*; did you mean Gentle\?"),
        (example(), "PrototypeMethd", "derives from fairshot's Method$"),  # and none that it imports is meant
        (example().replace('"gentle"', '"ncm"'), "Gentle", "the name 'ncm' of another method"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, code, wanted, complaint):
    if code is not None:
        (tmp_path / "gentle.py").write_text(code)
    with pytest.raises(PathUnusable, match=complaint) as refused:
        load_plugin(f"{tmp_path / 'gentle.py'}:{wanted}")
    assert refused.value.path == (tmp_path / "gentle.py").resolve()


def test_a_run_of_a_file_that_has_changed_since_is_not_taken_for_one_of_the_new_code(tmp_path):
    file, run = tmp_path / "gentle.py", ("run", "doodles/gentle.py:Gentle", *BRIEF)
    file.write_text(example())
    assert fairshot(tmp_path, *run).process.exitcode == 0
    file.write_text(example().replace("self.settings.bonus", "(100 * self.settings.bonus)"))
    refused = fairshot(tmp_path, *run)
    assert refused.process.exitcode == 2
    assert "gentle.py has changed since the run in" in refused.stderr
    earlier = Result.read(tmp_path / "runs" / "doodles-gentle-seed0")
    assert fairshot(tmp_path, *run, "--fresh").process.exitcode == 0
    assert Result.read(tmp_path / "runs" / "doodles-gentle-seed0").confusions != earlier.confusions


def test_a_comparison_shows_no_run_of_a_file_that_has_changed_since(tmp_path):
    file, compare = tmp_path / "gentle.py", ("compare", "ncm", "gentle.py:Gentle", *BRIEF, "--out", "grid")
    file.write_text(example())
    assert fairshot(tmp_path, *compare).process.exitcode == 0
    assert fairshot(tmp_path, *compare).stderr.count("finished already") == 2
    file.write_text(example().replace("self.settings.bonus", "(100 * self.settings.bonus)"))
    refused = fairshot(tmp_path, *compare)
    assert refused.process.exitcode == 2
    assert "gentle.py has changed since the run in grid/gentle-seed0 began" in refused.stderr
    assert refused.stderr.count("finished already") == 1
    assert "NCM" in refused.stdout
    assert "gentle" not in refused.stdout.lower()
    earlier = Result.read(tmp_path / "grid" / "gentle-seed0")
    assert fairshot(tmp_path, *compare, "--fresh").process.exitcode == 0
    assert Result.read(tmp_path / "grid" / "gentle-seed0").confusions != earlier.confusions


def test_the_recipe_that_a_run_left_is_run_with_the_file_it_kept(tmp_path):
    (tmp_path / "gentle.py").write_text(example())
    assert fairshot(tmp_path, "run", "doodles/gentle.py:Gentle", "--out", "one", *BRIEF).process.exitcode == 0
    (tmp_path / "gentle.py").unlink()
    refused = fairshot(tmp_path, "run", "one/recipe.yaml", "--out", "two")
    assert refused.process.exitcode == 2
    assert refused.stderr.strip().endswith("run it only if you trust it: --trust")
    own_word = ["--set", "method.name=one/method.py:Gentle"]
    for extra in (
        ["--trust", "--out", "two"],
        ["--out", "one", *own_word],
        ["--out", "one", "--fresh", "--trust"],
    ):
        again = fairshot(tmp_path, "run", "one/recipe.yaml", *extra)
        assert again.process.exitcode == 0, again.stderr
    recipe = tmp_path / "one" / "mine.yaml"
    text = (tmp_path / "one" / "recipe.yaml").read_text().partition("\n")[2]  # without its checksum
    recipe.write_text(text.replace("name: gentle", "name: method.py:Gentle"))
    (tmp_path / "elsewhere").mkdir()
    named = fairshot(tmp_path / "elsewhere", "run", "../one/mine.yaml", "--trust", "--out", "three")
    assert named.process.exitcode == 0, named.stderr
    runs = [tmp_path / "one", tmp_path / "two", tmp_path / "elsewhere" / "three"]
    assert all((run / "method.py").read_text() == example() for run in runs)
    assert (
        Result.read(runs[0]).confusions == Result.read(runs[1]).confusions == Result.read(runs[2]).confusions
    )


def leave_recipe(run: Path, name: str) -> Path:
    """Leave the recipe of a run whose method has this name."""
    run.mkdir(exist_ok=True)
    text = load_recipe("doodles/ncm").as_yaml()
    (run / "recipe.yaml").write_text(text.replace("name: ncm", f"name: {name}"))
    return run


def test_whoever_reads_a_run_runs_no_code_that_its_recipe_names(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_loaded", {})
    run = leave_recipe(tmp_path / "runs", "ncm")
    run = leave_recipe(run / "got", "method.py:Gentle")
    (run / "method.py").write_text(f"{example()}\nopen({str(tmp_path / 'trace')!r}, 'w').close()\n")
    make_result("gentle").write(run)
    for reader in (recipe_of, from_run):
        with pytest.raises(MethodNotLoaded):
            reader(run)
    assert recorded_recipe(run) is None
    assert plan(["ncm"], ["doodles"], [0], [None], [], run.parent)
    assert not (tmp_path / "trace").exists()
    with pytest.raises(CodeNotTrusted):
        load_recipe(str(run / "recipe.yaml"))
    assert not (tmp_path / "trace").exists()
    asked = load_recipe(str(run / "recipe.yaml"), trust=True)
    assert (tmp_path / "trace").exists()
    assert recipe_of(run) == asked  # which this process has been given meanwhile


def test_of_several_classes_the_one_of_that_name_is_told_and_a_slip_is_no_method_of_ones_own(tmp_path):
    run = leave_recipe(tmp_path / "my run", "mild")
    (run / "method.py").write_text("class A:\n    name: str = 'mild'\nclass B:\n    name = 'gentle'\n")
    source = str(run / "recipe.yaml")
    with pytest.raises(CodeNotTrusted) as refused:
        load_recipe(source)
    assert (refused.value.recipe, refused.value.code) == (source, run / "method.py")
    with pytest.raises(MethodNotLoaded) as unread:
        recipe_of(run)
    assert (unread.value.recipe, unread.value.name) == (Path(source), "mild")
    for slip, answer in (("nmc", r"did you mean ncm\?"), ("[method.py:A]", "method.name: missing")):
        with pytest.raises(UserError, match=answer):
            load_recipe(str(leave_recipe(run, slip) / "recipe.yaml"))
