"""The help of every command has an example, whose words the real command line takes."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from fairshot.cli import app
from support.pages import parse


def helps(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield each command as it is called, and its help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from helps(command, (*path, name))
        else:
            yield " ".join((*path, name)), command.help


HELP = dict(helps(typer.main.get_command(app)))


@pytest.mark.parametrize("command", HELP)
def test_the_help_has_an_example_that_parses(command):
    examples = re.findall(r"^Example: fairshot (.*)$", HELP[command], re.MULTILINE)
    assert examples, f"the docstring of {command!r} lacks a line `Example: fairshot {command} ...`"
    for example in examples:
        assert parse(shlex.split(example)) == command


@pytest.mark.parametrize("command", HELP)
def test_paragraphs_of_the_help_break_where_the_terminal_ends(command):
    lines = [line for part in HELP[command].split("\n\n") for line in part.split("\n")[1:]]
    assert all(line.startswith(("fairshot ", "Example: ")) for line in lines)


def test_the_help_says_where_the_commands_of_extras_are_told():
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert "`fairshot doctor`" in shown
