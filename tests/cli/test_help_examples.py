"""The help of every command has an example, whose words the real command line takes."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer

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
