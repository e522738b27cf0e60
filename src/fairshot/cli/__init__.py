"""The command line: the only room that knows all others. One file per group of commands."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fairshot.cli.advice import advice
from fairshot.cli.console import CONSOLE, MESSAGES
from fairshot.cli.overview import Overview, add_stand_ins
from fairshot.errors import TrainingStopped, UserError

# Exit codes: something given cannot be used; the same command goes on; Ctrl-C outside of training.
UNUSABLE, UNFINISHED, INTERRUPTED = 2, 75, 130
RESUMING = {"run", "compare", "tune", "ablate"}  # commands that find again what they had finished

app = typer.Typer(
    name="fairshot",
    cls=Overview,
    help="Give new classes a fair shot: learn them from five pictures each, without bias.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
add_stand_ins(app)


def _print_version(asked: bool) -> None:
    if asked:
        CONSOLE.print(version("fairshot"), highlight=False)
        raise typer.Exit


@app.callback()
def _before_any_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; what the user can mend is one message, not a traceback."""
    try:
        app()
    except UserError as problem:
        message = f"fairshot: {problem}{advice(problem)}"
        MESSAGES.print(message, style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(UNUSABLE)
    except TrainingStopped as stopped:
        MESSAGES.print(f"{stopped}; the same command goes on from there", highlight=False, soft_wrap=True)
        sys.exit(UNFINISHED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into this
            goes_on = ", and the same command goes on from there" if RESUMING & set(sys.argv[1:2]) else ""
            MESSAGES.print(f"interrupted; what was finished is kept{goes_on}", soft_wrap=True)
        raise
