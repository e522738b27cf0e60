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


def test_no_help_imports_anything_slow():
    """All commands in one process: what the help of a command needs is there once it is loaded."""
    names = [name for commands in COMMANDS.values() for name in commands]
    program = f"""
import sys
from fairshot.cli.overview import load_command
for name in {names}:
    load_command(name)
    slow = [each for each in {SLOW} if each in sys.modules]
    assert not slow, (name, slow)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=ENVIRONMENT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
