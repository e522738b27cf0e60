"""`fairshot poison`: what hostile unlabelled images do to Calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.console import CONSOLE, ConsoleReporter, print_table
from fairshot.cli.options import Data, Device, Root, common


def poison_command(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a finished run of SSS whose network is used."),
    ],
    device: Device = "auto",
    data: Data = None,
    root: Root = None,
) -> None:
    """Attack Calibration with images of wrong classes, noise and copies; tell what they cost at worst.

    Writes `poisoning.json` and `poisoning.md` into the run.

    Example: fairshot poison runs/demo/sss-seed0
    """
    from fairshot.evaluation.run_folder import LOG
    from fairshot.studies import StudyOptions
    from fairshot.studies.poisoning import HEAD, LOST, poison

    reporter = ConsoleReporter("poison", run / LOG)
    found = poison(run, StudyOptions(device, **common(reporter, data, root)))
    CONSOLE.print(found.summary, highlight=False)
    print_table(f"{LOST}:", HEAD, found.rows)
