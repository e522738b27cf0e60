"""One report from one or several runs: a page to look at, figures and tables for a paper."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.chapter import write_chapter
from fairshot.reporting.groups import by_benchmark, group_results
from fairshot.reporting.orders import in_main_order
from fairshot.reporting.page import render_page
from fairshot.reporting.plates import Studio
from fairshot.reporting.runs import find_runs, read_run

PAGE = "report.html"


def write_report(
    paths: Sequence[Path], out: Path | None = None, command: str = "", reporter: Reporter = SILENT
) -> Path:
    """Write the report of all runs found at the paths; return the page.

    Without `out` it goes to a folder `report` beside the runs, or into the run if there is but one.
    """
    folders = find_runs(paths)
    out = out or Path(os.path.commonpath([folder.absolute() for folder in folders])) / "report"
    runs = [read_run(folder) for folder in folders]
    results = [run.result for run in runs if run.result is not None]
    comparable = by_benchmark(group_results(in_main_order(results)))
    chapters = []
    for place, (name, groups) in enumerate(comparable.items()):
        studio = Studio(out, f"{place + 1}-" if len(comparable) > 1 else "")
        chapters.append(write_chapter(name, groups, runs, studio, reporter))
    write_atomically(out / PAGE, render_page(chapters, runs, command).encode())
    return out / PAGE
