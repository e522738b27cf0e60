"""The command line: the only room that knows all others. One file per group of commands.

In all of them functions import what needs torch when they are called: that takes seconds, and --help needs
none of it.
"""

from __future__ import annotations

import errno
import inspect
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from fairshot.cli import (
    ablate,
    bench,
    compare,
    data,
    doctor,
    evaluate,
    hub,
    listing,
    new,
    poison,
    recipe,
    report,
    run,
    serve,
    store_files,
    teach,
    tradeoff,
    tune,
    watch,
)
from fairshot.cli.advice import AdvisedCommand, with_advice
from fairshot.cli.console import print_message, say
from fairshot.errors import TrainingStopped, UserError

# Exit codes: something given cannot be used; the same command goes on; Ctrl-C outside of training.
UNUSABLE, UNFINISHED, INTERRUPTED = 2, 75, 130
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # a disk that is full or read-only
RESUMING = {"run", "compare", "tune", "ablate", "teach"}  # commands that find again what they had finished

COMMANDS: dict[str, list[Callable[..., None] | typer.Typer]] = {
    "Experiments": [
        run.run_command,
        compare.compare_command,
        listing.list_command,
        recipe.app,
        data.app,
        doctor.doctor_command,
    ],
    "Reports": [report.report_command, report.reproducibility_command],
    "Studies": [
        *(tune.tune_command, tradeoff.tradeoff_command, ablate.ablate_command, poison.poison_command),
        bench.app,
    ],
    "Stores of taught classes": [
        *(new.new_command, teach.teach_command, teach.predict_command, teach.forget_command),
        *(teach.rename_command, teach.merge_command, teach.undo_command, teach.history_command),
        *(teach.classes_command, teach.adapt_command, evaluate.evaluate_command),
        *(store_files.export_command, store_files.import_command, store_files.import_photos_command),
        *(store_files.doodles_command, serve.serve_command, watch.watch_command),
    ],
    "Sharing": [hub.push_command, hub.pull_command],
}

app = typer.Typer(
    name="fairshot",
    help="Give new classes a fair shot: learn them from five pictures each, without bias.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _help(command: Callable[..., None]) -> str:
    """Return the docstring, each paragraph and each command in one line, which a terminal breaks."""
    return re.sub(r"(?<!\n)\n(?!\n|fairshot |Example: )", " ", inspect.getdoc(command) or "")


for heading, commands in COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            for each in command.registered_commands:
                each.cls = AdvisedCommand
                if each.callback:
                    each.help = _help(each.callback)
            app.add_typer(command, rich_help_panel=heading)
        else:
            name = command.__name__.removesuffix("_command").replace("_", "-")
            app.command(name, cls=AdvisedCommand, help=_help(command), rich_help_panel=heading)(command)


def _print_version(asked: bool) -> None:
    if asked:
        say(version("fairshot"))
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
        print_message(f"fairshot: {with_advice(problem)}", "red")
        sys.exit(UNUSABLE)
    except OSError as problem:
        if problem.errno not in UNWRITABLE:
            raise
        what = problem.filename or "a file"
        print_message(f"fairshot: {what} cannot be written ({problem.strerror})", "red")
        sys.exit(UNUSABLE)
    except TrainingStopped as stopped:
        print_message(f"{stopped}; the same command goes on from there")
        sys.exit(UNFINISHED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer turns Ctrl-C into this
            goes_on = ", and the same command goes on from there" if RESUMING & set(sys.argv[1:2]) else ""
            print_message(f"interrupted; what was finished is kept{goes_on}")
        raise
