"""One report from one or several runs: a page to look at, figures and tables for a paper."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.benchmark_section import write_chapter
from fairshot.reporting.groups import by_benchmark, group_results, sss_first
from fairshot.reporting.orders import in_main_order
from fairshot.reporting.page import render_page
from fairshot.reporting.report_figures import FigureWriter
from fairshot.reporting.runs import find_collections, find_runs, read_run, without_repeats

PAGE = "report.html"


def write_report(
    paths: Sequence[Path], out: Path | None = None, command: str = "", reporter: Reporter = SILENT
) -> Path:
    """Write the report of all runs found at the paths; return the page.

    Without `out` it goes to a folder `report` beside the runs, or into the run if there is but one. Folders
    below the paths that hold further runs are named, with the command that reports them.
    """
    folders = find_runs(paths)
    out = out or Path(os.path.commonpath([folder.absolute() for folder in folders])) / "report"
    runs = without_repeats([read_run(folder) for folder in folders])
    results = [run.result for run in runs if run.result is not None]
    comparable = by_benchmark(sss_first(group_results(in_main_order(results))))
    chapters = []
    for place, (name, groups) in enumerate(comparable.items()):
        studio = FigureWriter(out, f"{place + 1}-" if len(comparable) > 1 else "")
        chapters.append(write_chapter(name, groups, runs, studio, reporter))
    further = {
        shlex.join(["fairshot", "report", str(folder)]): count
        for folder, count in find_collections(paths).items()
    }
    write_atomically(out / PAGE, render_page(chapters, runs, command, further).encode())
    for line, count in further.items():
        reporter.say(
            f"not in this report: {f'{count} runs; to see them' if count > 1 else '1 run; to see it'}: {line}"
        )
    return out / PAGE
