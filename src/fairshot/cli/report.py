"""`fairshot report`: a page, figures and tables from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.console import CONSOLE, ConsoleReporter, this_command
from fairshot.reporting.report import write_report


def report_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or folders that hold runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; `report` beside the runs if not given.")
    ] = None,
) -> None:
    """Turn runs into one page to look at, figures and tables to publish.

    Runs that differ only in their seed are averaged. What a run does not hold, the report says is missing.
    """
    page = write_report(runs, out, this_command(), ConsoleReporter())
    CONSOLE.print(f"{page} (figures and tables beside it)", highlight=False)
