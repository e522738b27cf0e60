"""Write the generated tables of README.md and results/README.md from the runs in results/.

A table stands between `<!-- table: BENCHMARK COLUMNS -->` and `<!-- end of table -->`; everything else on the
pages is written by hand. A row is the mean over the runs results/BENCHMARK/METHOD-seed*. With `--check`
nothing is written, and a page whose tables are not those of the runs is an error.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fairshot.evaluation.metrics import Metrics
from fairshot.evaluation.result import Result
from fairshot.reporting.groups import Spread, spread_text

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "results" / "README.md")
TABLE = re.compile(r"(<!-- table: (\w+) (\w+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)
FOLDER = re.compile(r"(\w+)-seed\d+")
TITLES = {"ncm": "NCM, the baseline", "bidist": "BiDist"}
UNLISTED = {"sss_bgmm"}  # another decision on trainings of SSS: it has tables of its own
COLUMNS = {  # by what a column is called: the property of the metrics, whether it has a deviation, its best
    "short": {
        "Overall": ("overall_avg", True, None),
        "Base": ("base_avg", False, max),
        "Novel (Inc)": ("inc_avg", False, max),
        "Base/Inc": ("base_inc", False, min),
        "Harmonic mean": ("harmonic_mean_avg", False, max),
    },
    "full": {
        "average": ("overall_avg", True, None),
        "last": ("last", True, None),
        "Base avg": ("base_avg", True, None),
        "Inc avg": ("inc_avg", True, None),
        "Base/Inc": ("base_inc", True, None),
        "harmonic mean": ("harmonic_mean_avg", True, None),
    },
    "balance": {
        "Overall avg": ("overall_avg", True, None),
        "Base avg": ("base_avg", True, None),
        "Inc avg": ("inc_avg", True, None),
        "Base/Inc": ("base_inc", True, None),
        "CInc/PInc": ("cinc_pinc", True, None),
        "BICP": ("bicp", True, None),
        "harmonic mean avg": ("harmonic_mean_avg", True, None),
    },
}


def table(benchmark: str, columns: str) -> str:
    """Return the table of all methods on a benchmark, the highest average overall accuracy first."""
    wanted = COLUMNS[columns]
    rows = sorted(runs(benchmark).items(), key=lambda row: -_spread(row[1], "overall_avg").mean)
    counted = columns == "full"
    lines = [["", *["seeds"] * counted, *wanted], ["---"] * (1 + counted + len(wanted))]
    best = {
        key: choose(_spread(each, key).mean for _, each in rows)
        for key, _, choose in wanted.values()
        if choose
    }
    for method, metrics in rows:
        cells = []
        for key, deviation, _ in wanted.values():
            spread = _spread(metrics, key)
            bold = "**" * (spread.mean == best.get(key))
            cells.append(spread_text(spread if deviation else Spread(spread.mean), bold=bold))
        lines.append([_title(method), *[str(len(metrics))] * counted, *cells])
    return (
        "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("|  |", "| |").replace(" --- ", "---")
    )


def runs(benchmark: str) -> dict[str, list[Metrics]]:
    """Return the metrics of the seeds of each method."""
    found: dict[str, list[Metrics]] = {}
    for folder in sorted((ROOT / "results" / benchmark).iterdir()):
        named = FOLDER.fullmatch(folder.name)
        if named and named[1] not in UNLISTED:
            found.setdefault(named[1], []).append(Result.read(folder).metrics)
    return found


def _spread(metrics: Sequence[Metrics], key: str) -> Spread:
    spread = Spread.of([getattr(each, key) for each in metrics])
    assert spread is not None, key
    return spread


def _title(method: str) -> str:
    return TITLES.get(method, method.replace("_", "-").upper())


def written(page: Path) -> str:
    """Return a page with its tables made anew."""
    return TABLE.sub(
        lambda found: f"{found[1]}\n{table(found[2], found[3])}\n{found[4]}", page.read_text(encoding="utf-8")
    )


def main() -> None:
    """Write the pages, or check them."""
    for page in PAGES:
        text = written(page)
        if "--check" not in sys.argv:
            page.write_text(text, encoding="utf-8")
        elif text != page.read_text(encoding="utf-8"):
            sys.exit(
                f"{page.relative_to(ROOT)} is not of the runs in results/: python scripts/results_tables.py"
            )


if __name__ == "__main__":
    main()
