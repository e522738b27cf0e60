"""Tables and figures from results. Nothing is recomputed here.

    from fairshot.reporting import report_tables, to_markdown

    for benchmark, tables in report_tables(["runs/demo"]).items():
        print(benchmark, to_markdown(tables[0]))

Paths are folders of runs, or folders that hold runs. `report_tables` returns the tables of a report, which
`to_csv`, `to_latex` and `to_markdown` turn into text; `write_report` writes the page, its figures and tables,
and returns the path of the page; so do `write_reproducibility`, whose page compares runs with what was
published, and `write_ablation`, for the runs of `fairshot.studies.ablate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairshot.lazy import lazy_names

if TYPE_CHECKING:
    from fairshot.reporting.ablations import write_ablation as write_ablation
    from fairshot.reporting.export import to_csv as to_csv
    from fairshot.reporting.export import to_latex as to_latex
    from fairshot.reporting.export import to_markdown as to_markdown
    from fairshot.reporting.report import report_tables as report_tables
    from fairshot.reporting.report import write_report as write_report
    from fairshot.reporting.reproducibility import write_reproducibility as write_reproducibility
    from fairshot.reporting.table import Table as Table

__getattr__ = lazy_names(__name__, __file__)
