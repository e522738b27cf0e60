"""`fairshot recipe`: what a recipe says, with all that it leaves to defaults."""

from __future__ import annotations

from typing import Annotated

import typer

from fairshot.cli.console import say
from fairshot.cli.options import Set, Trust
from fairshot.cli.trust import load_trusted

app = typer.Typer(name="recipe", help="Recipes: what they say, key by key.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `show` a command of a group, although it is the only one."""


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe by its name or path.")],
    set_: Set = [],
    trust: Trust = False,
) -> None:
    """Print a recipe with every default filled in and the meaning of each key: YAML that `run` takes.

    Example: fairshot recipe show doodles/sss
    """
    from fairshot.recipes import annotated_yaml

    say(annotated_yaml(load_trusted(name, set_, None, trust)).rstrip())
