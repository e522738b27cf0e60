"""The help of every command is there without torch, whose import takes seconds."""

import os
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fairshot import benchmarks
from fairshot.cli import app
from fairshot.methods import methods
from fairshot.recipes import recipe_names

SLOW = ("torch", "timm", "lightning_fabric", "matplotlib", "sklearn")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PROGRAM = f"""
import sys
from fairshot.cli import main
try:
    main()
finally:
    print(*(name for name in {SLOW} if name in sys.modules), file=sys.stderr)
"""


def imported_by(*arguments):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert done.stdout.strip()
    return done.stderr.split()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["predict", "--help"], ["data", "list"]])
def test_quick_commands_import_no_torch(arguments):
    assert imported_by(*arguments) == []


def test_the_list_imports_nothing_that_trains_or_draws():
    assert imported_by("list") == ["torch"]


def test_the_list_explains_what_is_neither_benchmark_nor_method_in_names_of_recipes():
    parts = set()
    for benchmark, _, name in (each.partition("/") for each in recipe_names()):
        method = max((each for each in methods() if name.startswith(each)), key=len)
        parts |= {benchmark} - set(benchmarks.names())
        parts |= set(re.findall(r"[-_][^-_]+", name.removeprefix(method)))
    lines = CliRunner().invoke(app, ["list"], env={"COLUMNS": "80"}).output.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.split()[:2] == ["in", "names"])
    assert parts == {first for first, *words in map(str.split, lines[start + 1 :]) if words}


def test_every_command_says_in_a_line_what_it_does():
    overview = typer.main.get_command(app)
    assert len(overview.commands) > 25
    for name, command in overview.commands.items():
        assert command.get_short_help_str(200).endswith("."), name


def test_a_command_has_its_own_options_and_a_group_its_own_commands():
    of_run = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert "--max-minutes" in of_run
    of_data = CliRunner().invoke(app, ["data", "--help"], env={"COLUMNS": "200"}).output
    assert "Download a benchmark" in of_data
    assert "completion" not in of_data
    misspelt = CliRunner().invoke(app, ["reprot"], env={"COLUMNS": "200"})
    assert misspelt.exit_code == 2
    assert "Did you mean 'report'" in misspelt.output
