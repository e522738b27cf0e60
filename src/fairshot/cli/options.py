"""Options that several commands share: one name, one help, one meaning."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairshot.cli.console import this_command
from fairshot.progress import Reporter

if TYPE_CHECKING:
    from fairshot.evaluation.tracking import Tracking


class OnOff(StrEnum):
    """A switch of the command line."""

    ON = "on"
    OFF = "off"


class Tracker(StrEnum):
    """What runs can be logged to."""

    tensorboard = "tensorboard"
    wandb = "wandb"


Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the recipe; as often as needed: training.epochs=10",
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the Python code that a recipe file names; it can do all that you can."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random; the recipe's own if not given.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Fresh = Annotated[
    bool, typer.Option("--fresh/--resume", help="Forget what an earlier call left, or go on from it.")
]
Root = Annotated[
    Path | None,
    typer.Option(
        help="Folder in which benchmarks are looked for; if not given, FAIRSHOT_DATA or the platform's cache."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="PHOTOS", help="Own pictures instead of a benchmark: PHOTOS/<class>/*.jpg"),
]
Base = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Take the base session of a finished run instead of training."),
]
Minutes = Annotated[
    float, typer.Option("--max-minutes", min=0, help="Stop training after so long; the same command goes on.")
]
Parallel = Annotated[
    int,
    typer.Option(min=1, help="Runs at once, each in a process of its own; one GPU may be shared by several."),
]
Compile = Annotated[
    OnOff, typer.Option("--compile", help="Compile training steps for a GPU; off to debug them.")
]
Log = Annotated[
    list[Tracker],
    typer.Option(
        "--log",
        help="Log to a tracker too, while it trains; give it several times for several. "
        "Each is an extra, and `fairshot doctor` says how to install it.",
    ),
]
Novel = Annotated[
    int | None,
    typer.Option(min=1, help="Base classes that play novel ones; a third of them, at most 20, if not given."),
]
HeldOut = Annotated[
    int | None,
    typer.Option(
        min=1, help="Training images per class that play test images; a fifth, at most 50, if not given."
    ),
]


def tracking_of(log: list[Tracker]) -> Tracking:
    """Return what runs are logged to; a tracker that is not installed is refused."""
    from fairshot.evaluation.tracking import Tracking
    from fairshot.reporting.figures.accuracy import write_figures

    tracking = Tracking(tuple(each.value for each in log), write_figures)
    tracking.check()
    return tracking


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the others have their defaults where they are used."""
    return {name: value for name, value in options.items() if value is not None}


def common(reporter: Reporter, data: Path | None, root: Path | None) -> dict[str, Any]:
    """Return the options that every run and every study is given by its command."""
    return {"command": this_command(), "reporter": reporter, "photos": data, "root": root}
