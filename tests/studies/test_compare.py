"""Comparisons: runs are planned once, skipped when finished, continued when not, here or through Ray."""

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from fairshot.benchmarks import UnknownBenchmark
from fairshot.errors import FolderOccupied, FolderUnusable, TrainingStopped, UserError
from fairshot.evaluation.experiment import run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import lock_run
from fairshot.methods import methods, plugins
from fairshot.progress import Reporter
from fairshot.recipes import load_recipe
from fairshot.reporting.conditions import CONDITIONS, UNKNOWN, conditions
from fairshot.reporting.groups import group_results
from fairshot.studies import ablate, cluster, execute, tune
from fairshot.studies.comparison import Comparison, compare
from fairshot.studies.execute import BaseRunFailed, RunStatus, StudyOptions
from fairshot.studies.plan import PlannedRun, plan, share_trainings
from support.commands import fairshot
from support.pickling import pickled
from support.results_factory import make_result

SMALL = [
    "benchmark.base_classes=4",
    "benchmark.way=2",
    "benchmark.sessions=1",
    "model.size=14",
    "training.epochs=1",
]
SETS = [part for key in SMALL for part in ("--set", key)]


def names(planned) -> list[str]:
    return [each.out.name for each in planned]


def test_every_combination_is_a_run_of_its_own(tmp_path):
    planned = plan(["ncm", "teen"], ["doodles"], [0, 1], [None, 3], [], tmp_path)
    assert names(planned) == [
        f"{method}-seed{seed}{order}"
        for method in ("ncm", "teen")
        for seed in (0, 1)
        for order in ("", "-order3")
    ]
    recipe = planned[-1].recipe
    assert (recipe.method_name, recipe.seed, recipe.benchmark.class_order_seed) == ("teen", 1, 3)
    assert planned[-1].title == "teen doodles seed 1 order 3"
    assert names(plan(["ncm", "ncm"], ["doodles"], [0, 0], [None], [], tmp_path)) == ["ncm-seed0"]
    several = plan(["ncm"], ["doodles", "cifar100"], [0], [None], [], tmp_path)
    assert names(several) == ["doodles-ncm-seed0", "cifar100-ncm-seed0"]
    with pytest.raises(UserError, match="'doodles/scn' is neither"):
        plan(["scn"], ["doodles"], [0], [None], [], tmp_path)


@pytest.mark.parametrize("method", ["ncm", "file.py:Class"])
def test_an_unknown_benchmark_is_named_not_a_recipe_of_it(tmp_path, method):
    with pytest.raises(UnknownBenchmark, match="did you mean cifar100") as refused:
        plan([method], ["doodles", "cifar10"], [0], [None], [], tmp_path)
    assert refused.value.name == "cifar10"
    assert "cub200" in refused.value.names


def test_a_run_is_found_by_its_recipe_whatever_its_folder_is_called(tmp_path):
    recipe = load_recipe("doodles/ncm", ["training.epochs=3"], 0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.yaml").write_text(recipe.as_yaml())
    (found,) = plan(["ncm"], ["doodles"], [0], [None], ["training.epochs=3"], tmp_path)
    assert (found.out.name, found.finished) == ("mine", False)
    (tmp_path / "mine" / "result.json").write_text("{}")
    assert found.finished
    older = {**recipe.as_dict(), "views": {}}  # of a version that had no such settings yet
    (tmp_path / "mine" / "recipe.yaml").write_text(yaml.safe_dump(older))
    (found,) = plan(["ncm"], ["doodles"], [0], [None], ["training.epochs=3", "views={}"], tmp_path)
    assert (found.out.name, found.finished) == ("mine", True)
    (other,) = plan(["ncm"], ["doodles"], [0], [None], ["training.epochs=4"], tmp_path)
    assert (other.out.name, other.finished) == ("ncm-seed0", False)


def test_runs_that_are_trained_alike_share_the_first_training(tmp_path):
    names_of = ["ce_delta", "ncm", "sss", "sss_bgmm", "sss_gate", "teen", "topic"]

    def bases(*changes: str) -> dict[str, str]:
        planned = plan(names_of, ["cifar100"], [0, 1], [None], changes, tmp_path)
        return {each.out.name: each.base.name for each in planned if each.base is not None}

    shared = {"sss_bgmm": "sss", "sss_gate": "sss", "topic": "ncm"}
    expected = {
        f"{name}-seed{seed}": f"{base}-seed{seed}" for name, base in shared.items() for seed in (0, 1)
    }
    assert bases() == bases("training.images=1000000") == expected  # TEEN has epochs of its own, its authors'
    alike = bases("training.images=1000000", "training.authors_epochs=null")
    assert alike == expected | {"teen-seed0": "ncm-seed0", "teen-seed1": "ncm-seed1"}
    kept = tmp_path / "sss-seed0"
    kept.mkdir()
    (kept / "recipe.yaml").write_text(load_recipe("cifar100/sss", [], 0).as_yaml())
    assert bases() == expected  # it goes on
    (kept / "result.json").write_text("{}")
    without = {**expected, "sss_gate-seed0": "sss_bgmm-seed0"}
    del without["sss_bgmm-seed0"]
    assert bases() == without  # it has not kept its weights
    (kept / "model.safetensors").touch()
    assert bases() == expected


def test_on_a_shared_training_a_method_answers_as_on_its_own(tmp_path):
    options, changes = StudyOptions("cpu"), [*SMALL, "training.learning_rate=0.1"]
    compare(["ncm", "topic"], tmp_path / "both", overrides=changes, options=options).check()
    compare(["topic"], tmp_path / "one", overrides=changes, options=options).check()
    shared, alone = (Result.read(tmp_path / folder / "topic-seed0") for folder in ("both", "one"))
    assert (shared.base, alone.base) == ("ncm-seed0", None)
    assert shared.confusions == alone.confusions
    assert (shared.images, shared.epochs, shared.budget) == (alone.images, alone.epochs, alone.budget)


def test_a_run_that_has_its_network_gives_it_to_those_before_it(tmp_path):
    def bases(fresh: bool = False) -> list[str | None]:
        planned = plan(["teen", "topic"], ["doodles"], [0], [None], [], tmp_path, fresh)
        return [each.base and each.base.name for each in planned]

    assert bases() == [None, "teen-seed0"]
    finished = tmp_path / "topic-seed0"
    finished.mkdir()
    (finished / "recipe.yaml").write_text(load_recipe("doodles/topic", [], 0).as_yaml())
    (finished / "result.json").write_text("{}")
    assert bases() == [None, None]  # its weights were not kept, and it needs none itself
    (finished / "model.safetensors").touch()
    assert bases() == ["topic-seed0", None]
    assert bases(fresh=True) == [None, "teen-seed0"]


def test_trainings_on_other_pictures_are_not_shared(tmp_path):
    recipe = load_recipe("folder/ncm")
    for name in ("birds", "birds-again", "cars"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "split.json").write_text(name.partition("-")[0])
    planned = [PlannedRun(recipe, tmp_path / f"out-{each.name}", split=each) for each in tmp_path.iterdir()]
    planned.sort(key=lambda each: each.out)
    assert [each.base and each.base.name for each in share_trainings(planned)] == [None, "out-birds", None]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_run_whose_base_session_failed_is_not_begun(tmp_path, parallel):
    recipe = load_recipe("doodles/ncm", SMALL)
    (tmp_path / "ncm").mkdir()
    (tmp_path / "ncm" / "recipe.yaml").write_text(
        load_recipe("doodles/ncm", [], 7).as_yaml()
    )  # another run's
    planned = [PlannedRun(recipe, tmp_path / name) for name in ("ncm", "teen")]
    planned[1] = replace(planned[1], base=tmp_path / "ncm")
    first, second = execute.execute(planned, StudyOptions("cpu", parallel=parallel))
    assert isinstance(first.problem, FolderOccupied)
    assert isinstance(second.problem, BaseRunFailed)
    assert not (tmp_path / "teen").exists()


def test_a_run_whose_base_session_was_stopped_is_stopped_too(tmp_path):
    recipe, out = load_recipe("doodles/ncm", SMALL), tmp_path / "ncm"
    planned = [PlannedRun(recipe, out), PlannedRun(recipe, tmp_path / "teen", base=out)]
    for status in execute.execute(planned, StudyOptions("cpu", parallel=2, max_minutes=0)):
        assert status.unfinished


def test_a_method_of_ones_own_trains_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_loaded", {})  # other tests ask for all methods
    (tmp_path / "own.py").write_text(
        "from fairshot.methods.teen import TEEN\n\n\nclass Own(TEEN):\n    name = 'own'\n"
    )
    own = f"{tmp_path / 'own.py'}:Own"
    planned = plan(["teen", own, "topic"], ["doodles"], [0], [None], SMALL, tmp_path)
    assert [each.base and each.base.name for each in planned] == [None, None, "teen-seed0"]
    teen, mine, topic = (each.recipe.training_part() for each in planned)
    assert teen == topic != mine  # nor is the training of another method taken by --base


def test_a_comparison_stops_goes_on_and_grows(tmp_path):
    first = ("compare", "ncm", "teen", *SETS, "--out", "grid")
    stopped = fairshot(tmp_path, *first, "--max-minutes", "0")
    assert stopped.process.exitcode == 75
    assert "the same command goes on" in stopped.stderr
    done = fairshot(tmp_path, *first)
    assert done.process.exitcode == 0, done.stderr
    to_come = re.findall(r"finished; runs still to come: (\d)", done.stderr)
    assert to_come == ["1", "0"]  # where there is no terminal to draw bars on
    assert "going on from step" in (tmp_path / "grid" / "ncm-seed0" / "log.txt").read_text()
    assert (tmp_path / "grid" / "ncm-seed0" / "figures").is_dir()
    before = (tmp_path / "grid" / "ncm-seed0" / "result.json").stat().st_mtime_ns
    late = fairshot(tmp_path, *first, "--seed", "0", "--seed", "1", "--max-minutes", "0")
    assert late.process.exitcode == 75
    assert late.stdout.splitlines()[-1] == "as a page: fairshot report grid"  # what has finished is shown
    assert "the same command goes on" in late.stderr
    assert not (tmp_path / "grid" / "teen-seed1").exists()  # none begins after one was stopped
    more = fairshot(tmp_path, *first, "--class-order", "5")
    assert more.process.exitcode == 0, more.stderr
    shuffled = Result.read(tmp_path / "grid" / "teen-seed0-order5")
    assert shuffled.class_names != Result.read(tmp_path / "grid" / "teen-seed0").class_names
    assert (tmp_path / "grid" / "ncm-seed0" / "result.json").stat().st_mtime_ns == before
    alike = " ".join(done.stdout.partition("alike for all:")[2].split())
    assert alike.startswith("backbone: tiny; ")
    assert done.stdout.splitlines()[-2:] == ["written to grid", "as a page: fairshot report grid"]


def test_where_some_failed_and_some_were_stopped_both_are_named():
    recipe = load_recipe("doodles/ncm")
    planned = [PlannedRun(replace(recipe, seed=seed), Path()) for seed in (0, 1)]
    refused = RunStatus(planned[0], UserError("its folder is busy"))
    stopped = RunStatus(planned[1], TrainingStopped("stopped after 3 of 9 steps"))
    with pytest.raises(UserError) as message:
        Comparison(planned, [refused, stopped]).check()
    assert "reasons above: ncm doodles seed 0\n" in str(message.value)
    assert str(message.value).endswith("ncm doodles seed 1: stopped after 3 of 9 steps")
    with pytest.raises(TrainingStopped, match=r"^ncm doodles seed 1: stopped after 3 of 9 steps$"):
        Comparison(planned, [stopped]).check()
    Comparison(planned, [RunStatus(planned[0])]).check()


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    folder = tmp_path / "runs" / "compare-doodles"  # what it is called when no other is asked for
    busy = folder / "ncm-seed0"
    busy.mkdir(parents=True)
    (busy / "recipe.yaml").write_text("another: recipe\n")
    command = fairshot(tmp_path, "compare", "ncm", "teen", *SETS)
    assert command.process.exitcode == 2
    assert "holds a run of another recipe" in command.stderr
    assert "Traceback" not in command.stderr
    assert Result.read(folder / "teen-seed0").method == "teen"
    assert "TEEN" in command.stdout


def test_through_ray_a_run_ends_as_it_does_here(tmp_path):
    pytest.importorskip("ray")
    arguments = ("compare", "ncm", *SETS, "--device", "cpu", "--ray", "--out", "grid")
    command = fairshot(tmp_path, *arguments)
    assert command.process.exitcode == 0, command.stderr
    here = fairshot(tmp_path, "compare", "ncm", *SETS, "--device", "cpu", "--out", "here")
    assert here.process.exitcode == 0, here.stderr
    through, beside = (Result.read(tmp_path / out / "ncm-seed0") for out in ("grid", "here"))
    assert through.confusions == beside.confusions
    assert "training: done" in (tmp_path / "grid" / "ncm-seed0" / "log.txt").read_text()
    again = fairshot(tmp_path, *arguments)
    assert again.stdout == command.stdout
    assert again.stderr.count("finished already") == 1


def test_runs_at_once_end_as_they_do_one_after_the_other(tmp_path):
    shared = {"overrides": [*SMALL, "training.batch=60"], "seeds": (0,)}
    at_once = compare(["ncm", "teen"], tmp_path / "a", **shared, options=StudyOptions("cpu", parallel=2))
    at_once.check()
    alone = compare(["teen"], tmp_path / "b", **shared, options=StudyOptions("cpu"))
    (teen,) = alone.results.values()
    assert at_once.results[tmp_path / "a" / "teen-seed0"].confusions == teen.confusions
    assert "training: done" in (tmp_path / "a" / "ncm-seed0" / "log.txt").read_text()


class OneMachine:
    """Stands in for Ray where it begins runs, and calls `begin` to do so."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, begin):
        self.begin, self.ended = begin, {}

    def remote(self, **_):
        return lambda function: SimpleNamespace(remote=lambda task: self.start(function, task))

    def start(self, function, task):
        self.ended[task.out] = pickled(self.begin(function, pickled(task)))
        return task.out

    def wait(self, references, timeout):
        return references, []

    def get(self, reference):
        return self.ended[reference]

    def shutdown(self):
        pass


def on_one_machine(planned, begin=lambda function, task: function(task), **options):
    """Run on a Ray that is one machine, and return how each run ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "_connect", lambda: OneMachine(begin))
        return list(cluster.run_on_ray(planned, StudyOptions("cpu", **options)))


def test_a_search_on_ray_is_on_pseudo_novel_classes_and_trains_once_as_it_does_here(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_connect", lambda: OneMachine(lambda function, task: function(task)))
    small = [*SMALL, "benchmark.base_classes=6", "method.sr_width=16"]
    grid, there, here = {"method.gamma": [0.0, 0.9]}, tmp_path / "there", tmp_path / "here"
    on_ray = tune("doodles/sss", grid, there, small, options=StudyOptions("cpu", on_ray=True))
    beside = tune("doodles/sss", grid, here, small, options=StudyOptions("cpu"))
    for number in ("1", "2"):
        sent, expected = (Result.read(folder / "trials" / number) for folder in (there, here))
        assert sent.benchmark == expected.benchmark == "doodles (pseudo-novel)"
        assert sent.confusions == expected.confusions
        assert (there / "trials" / number / "checkpoints").is_dir() == (number == "1")
    assert on_ray.recipe == beside.recipe


def test_rows_of_an_ablation_on_ray_share_one_training(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_connect", lambda: OneMachine(lambda function, task: function(task)))
    small = [*SMALL, "method.sr_width=16"]
    ablate("features", "doodles/sss", tmp_path, small, options=StudyOptions("cpu", on_ray=True))
    assert [path.parts[-2] for path in tmp_path.glob("*/checkpoints")] == ["separately"]


def test_a_machine_that_is_lost_costs_a_fresh_run_no_checkpoint(tmp_path, monkeypatch):
    planned = plan(["ncm"], ["doodles"], [0], [None], [*SMALL, "training.epochs=2"], tmp_path)
    earlier = planned[0].out / "checkpoints" / "base" / "step-00000007.safetensors"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("what --fresh is to forget")

    def lost_once(function, task):
        with monkeypatch.context() as patch:
            stopped = lambda recipe, options: run(recipe, replace(options, max_minutes=0))  # noqa: E731
            patch.setattr(execute, "run", stopped)
            assert isinstance(function(task), TrainingStopped)
        assert not earlier.exists()
        return function(task)

    (ended,) = on_one_machine(planned, lost_once, fresh=True)
    assert ended.problem is None
    assert "going on from step 1\n" in (planned[0].out / "log.txt").read_text()
    with lock_run(planned[0].out):
        (ended,) = on_one_machine(planned, fresh=True)
    assert isinstance(ended.problem, FolderUnusable)
    assert planned[0].finished


def test_a_run_begins_on_ray_when_the_run_whose_base_session_or_split_it_reads_has_ended(tmp_path):
    recipe = load_recipe("doodles/ncm", SMALL)
    folder = {name: tmp_path / name for name in ("alone", "first", "second", "third", "other")}
    planned = [
        PlannedRun(recipe, folder["alone"], base=tmp_path / "of before"),
        PlannedRun(recipe, folder["first"]),
        PlannedRun(recipe, folder["second"], base=folder["first"]),
        PlannedRun(recipe, folder["third"], base=folder["second"], split=folder["first"]),
        PlannedRun(recipe, folder["other"], split=folder["first"]),
    ]

    def ready(left, running):
        return [each.out.name for each in cluster.ready(left, running)]

    assert ready(planned, []) == ["alone", "first"]
    assert ready(planned[2:], planned[1:2]) == []
    assert ready(planned[2:], planned[:1]) == ["second", "other"]
    assert ready(planned[3:4], planned[4:]) == ["third"]


def test_what_a_machine_refuses_or_has_no_time_for_is_not_cleared(tmp_path):
    (planned,) = plan(["ncm"], ["cifar100"], [0], [None], [], tmp_path)
    planned.out.mkdir()
    (planned.out / "recipe.yaml").write_text(planned.recipe.as_yaml())
    (planned.out / "result.json").write_text("{}")
    nowhere = tmp_path / "nothing here"
    (refused,) = on_one_machine([planned], root=nowhere, fresh=True)
    assert "CIFAR-100 was not found" in str(refused.problem)
    assert planned.finished
    (late,) = on_one_machine([planned], root=nowhere, fresh=True, max_minutes=0)
    assert (late.unfinished, str(late.problem)) == (True, "the time was up before it began")
    assert planned.finished


def test_no_time_at_all_is_refused_on_ray_where_the_same_command_would_never_get_anywhere(tmp_path):
    refused = fairshot(tmp_path, "compare", "ncm", *SETS, "--ray", "--max-minutes", "0")
    assert refused.process.exitcode == 2
    assert "--max-minutes 0 leaves a run on Ray no time to begin" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_time_limit_is_that_of_all_runs_together_through_ray_too(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0, time=lambda: clock.now)
    limits = []

    def run_two_minutes(recipe, options):
        limits.append(options.max_minutes)
        clock.now += 120

    monkeypatch.setattr(cluster, "time", clock, raising=False)
    monkeypatch.setattr(execute, "run", run_two_minutes)
    planned = plan(["ncm"], ["doodles"], [0, 1, 2], [None], [], tmp_path)
    ended = on_one_machine(planned, max_minutes=3)
    assert [each.unfinished for each in ended] == [False, False, True]
    assert limits == [3, 1]


class Listener(Reporter):
    """Keeps the names of what is shown, and the notes about it."""

    def __init__(self):
        self.shown = {}

    @contextmanager
    def track(self, what, total, done=0):
        notes = self.shown.setdefault(what, [])
        yield lambda units=1, note="": notes.append(note)
        notes.append("closed")


def test_of_runs_on_other_machines_the_last_line_of_the_log_is_shown(tmp_path):
    (planned,) = plan(["ncm"], ["doodles"], [0], [None], [], tmp_path)
    listener = Listener()
    with cluster.LogView(listener) as view:
        view.refresh([planned])
        assert not listener.shown
        planned.out.mkdir()
        (planned.out / "log.txt").write_text("2026-01-01 00:00:00 began\n2026-01-01 00:00:01 half done\n")
        view.refresh([planned])
        assert listener.shown == {planned.title: ["half done"]}
        view.hide(planned)
        assert listener.shown == {planned.title: ["half done", "closed"]}


def test_conditions_say_what_sets_rows_apart():
    settings = {"name": "cec", "episode_epochs": 7}
    recipe = {"training": {"epochs": 20}, "model": {"backbone": "resnet18"}, "method": settings}
    groups = group_results([make_result("cec", recipe=recipe), make_result("of_tomorrow")])
    ours, unknown = map(conditions, groups)
    assert list(ours.values) == list(CONDITIONS)
    expected = {"backbone": "resnet18", "epochs": "20 + 7", "passes": "1", "knows future": "no"}
    assert ours.values == ours.values | expected
    assert (unknown.summary, unknown.values["passes"]) == (UNKNOWN, UNKNOWN)
    card = methods()["fact"].card
    (row,) = map(conditions, group_results([make_result("fact")]))
    assert (row.values["knows future"], row.values["stores"]) == ("yes", card.stores)
    twelve = {"method": {"name": "savc", "fantasy": "turns_and_colours"}}
    (row,) = map(conditions, group_results([make_result("savc", recipe=twelve)]))
    assert row.values["passes"] == "12"
