"""The command line knows its commands without importing them, and what it says of them is what they say."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.cli.overview import COMMANDS, load_command

SLOW = ("torch", "timm", "lightning_fabric", "matplotlib", "sklearn")
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip()
    return done.stderr.split()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["report", "--help"], ["data", "list"]])
def test_quick_commands_import_no_torch(arguments):
    assert imported_by(*arguments) == []


def test_the_list_imports_nothing_that_trains_or_draws():
    assert imported_by("list") == ["torch"]


@pytest.mark.parametrize("heading", COMMANDS)
def test_the_overview_says_of_a_command_what_it_says_itself(heading):
    overview = typer.main.get_command(app)
    for name, line in COMMANDS[heading].items():
        assert load_command(name).help.partition("\n\n")[0].replace("\n", " ") == line
        assert overview.commands[name].help == line


def test_a_command_has_its_own_options_and_a_group_its_own_commands():
    of_run = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert "--max-minutes" in of_run
    of_data = CliRunner().invoke(app, ["data", "--help"], env={"COLUMNS": "200"}).output
    assert "Download a benchmark" in of_data
    assert "completion" not in of_data
    misspelt = CliRunner().invoke(app, ["reprot"], env={"COLUMNS": "200"})
    assert misspelt.exit_code == 2
    assert "Did you mean 'report'" in misspelt.output
