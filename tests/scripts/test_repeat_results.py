"""The script that repeats results runs each command once, after those whose folders it names."""

import itertools
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fairshot.evaluation.result import Result
from fairshot.recipes import load_recipe
from support.pages import parse

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted((ROOT / "results").glob("*/commands.txt"))
PLANNED = sorted((ROOT / "results").glob("*/planned.txt"))
NOTHING_TRAINED = (
    "--set training.epochs=0 --set benchmark.base_classes=4 --set benchmark.way=1 --set benchmark.sessions=1"
    " --set model.size=12 --set method.sr_width=16"
)


def repeat(commands: Path, destination: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts/repeat_results.py"
    call = [sys.executable, script, commands, destination, "--jobs", "2", *options]
    return subprocess.run(call, capture_output=True, text=True, check=False)


def test_a_decision_waits_for_its_training_and_what_is_finished_is_not_repeated(tmp_path):
    commands, runs = tmp_path / "commands.txt", tmp_path / "runs"
    commands.write_text(
        f"fairshot run doodles/sss {NOTHING_TRAINED} --base sss --set method.gamma=0.1 --out decided\n"
        "# the training comes later in the file\n"
        f"fairshot run doodles/sss {NOTHING_TRAINED} --out sss\n"
    )
    first = repeat(commands, runs)
    assert first.stdout.splitlines() == ["sss: done", "decided: done"], first.stderr
    assert Result.read(runs / "decided").base == "sss"
    assert repeat(commands, runs).stdout == ""


def test_a_table_waits_for_the_rows_that_lie_in_its_folder(tmp_path):
    commands, runs = tmp_path / "commands.txt", tmp_path / "runs"
    commands.write_text(
        "fairshot ablate components doodles/sss --out table\n"
        "fairshot run doodles/no_such_method --out table/baseline\n"
    )
    assert repeat(commands, runs).stderr.strip() == "not finished: table/baseline, table"


def test_a_command_that_fails_is_named_with_those_that_needed_it(tmp_path):
    commands, runs = tmp_path / "commands.txt", tmp_path / "runs"
    commands.write_text(
        "fairshot run doodles/no_such_method --out wrong\n"
        "fairshot run doodles/sss --base wrong --out decided\n"
    )
    failed = repeat(commands, runs)
    assert failed.returncode == 1
    assert failed.stderr.strip() == "not finished: wrong, decided"
    assert "no_such_method" in (runs / "wrong.log").read_text()


def test_curves_of_runs_are_drawn_one_after_the_other_when_the_runs_are_there(tmp_path):
    commands, runs = tmp_path / "commands.txt", tmp_path / "runs"
    commands.write_text(
        "fairshot tradeoff compared --novel 5 --held-out 5\n"
        "fairshot tradeoff compared --mirror\n"
        "fairshot compare no_such_method --out compared\n"
    )
    names = ("compared", "compared-novel-5-held-out-5-tradeoff", "compared-mirror-tradeoff")
    assert repeat(commands, runs).stderr.strip() == f"not finished: {', '.join(names)}"


def test_some_lines_are_run_with_those_that_they_need(tmp_path):
    commands, runs = tmp_path / "commands.txt", tmp_path / "runs"
    commands.write_text(
        "fairshot run doodles/no_such_method --out sss-seed0\n"
        "fairshot run doodles/sss --base sss-seed0 --out gate-seed0\n"
        "fairshot run doodles/sss --base gate-seed0 --out further-seed0\n"
        "fairshot run doodles/no_such_method --out sss-seed1\n"
    )
    assert repeat(commands, runs, "--only", "gate-*").stderr.strip() == "not finished: sss-seed0, gate-seed0"
    assert not (runs / "sss-seed1.log").exists()
    nothing = repeat(commands, runs, "--only", "teen-*")
    assert nothing.returncode == 1
    assert nothing.stderr.strip().endswith("no --out is called like teen-*")


def test_a_line_that_is_no_command_is_refused(tmp_path):
    commands = tmp_path / "commands.txt"
    commands.write_text("rm -r runs\n")
    refused = repeat(commands, tmp_path / "runs")
    assert refused.returncode == 1
    assert "'rm -r runs': expected a command of fairshot" in refused.stderr


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda path: path.parent.name)
def test_the_commands_of_committed_results_are_those_that_their_runs_recorded(listed):
    lines = listed.read_text().splitlines()
    runs = [found.parent for found in listed.parent.glob("*/result.json")]
    assert runs
    for run in runs:
        assert Result.read(run).command.split(" --out ")[0] in [line.split(" --out ")[0] for line in lines]


@pytest.mark.parametrize("listed", [*COMMANDS, *PLANNED], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_listed_command_is_one_that_the_command_line_takes(listed):
    for line in listed.read_text().splitlines():
        if line and not line.startswith("#"):
            words = shlex.split(line)[1:]
            parse(words)
            changes = [value for key, value in itertools.pairwise(words) if key == "--set"]
            for recipe in (word for word in words[:3] if "/" in word):  # `compare` and `tradeoff` name none
                load_recipe(recipe, changes)
