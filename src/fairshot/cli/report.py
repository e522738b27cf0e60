"""`fairshot report` and `fairshot reproducibility`: pages, figures and tables from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.console import ConsoleReporter, say, this_command


def report_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or folders that hold runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; `report` beside the runs if not given.")
    ] = None,
) -> None:
    """Turn runs into one page to look at, figures and tables to publish.

    Runs that differ only in their seed are averaged. What a run does not hold, the report says is missing.

    Example: fairshot report runs/demo
    """
    from fairshot.reporting.report import write_report

    page = write_report(runs, out, this_command(), ConsoleReporter())
    say(f"{page} (figures and tables beside it)")


def reproducibility_command(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="The folder that holds the runs.")],
    out: Annotated[Path | None, typer.Option(help="The page; RUNS/REPRODUCIBILITY.md if not given.")] = None,
) -> None:
    """Say of each method whether our runs reach what was published, with commands, seeds and times.

    Why something is not reached is written by hand into RUNS/verdicts.yaml, a line `method: reason` each.

    Example: fairshot reproducibility runs/cifar100
    """
    from fairshot.reporting.reproducibility import write_reproducibility

    say(str(write_reproducibility(folder, out, this_command())))
