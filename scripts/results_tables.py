"""Write the generated tables of README.md and results/README.md from the runs in results/.

A table stands between `<!-- table: FOLDER COLUMNS -->` and `<!-- end of table -->`; everything else on the
pages is written by hand. A row is the mean over the runs results/FOLDER/METHOD-seed*; with the columns
`paper`, SSS as the paper prints it stands above ours, below frozen backbones and the baseline; with `gates`,
methods that were given our gate stand by their own decision and by the gate. With `--check` nothing is
written, and a page whose tables are not those of the runs is an error.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from fairshot.evaluation.result import Result
from fairshot.reporting.ablations import BENCHMARK
from fairshot.reporting.conditions import UNKNOWN, conditions
from fairshot.reporting.groups import Group, Spread, group_results, is_baseline, ranked, spread_text
from fairshot.reporting.measures import HARMONIC_AVG, OVERALL_AVG
from fairshot.reporting.runs import read_run
from fairshot.reporting.table import summary_column
from fairshot.reporting.tables import gate_table
from fairshot.studies.published import (
    FeaturesRow,
    PublishedRow,
    harmonic_means,
    implied_base,
    published,
)
from fairshot.studies.reproducibility import judge

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "results" / "README.md")
TABLE = re.compile(r"(<!-- table: ([\w/-]+) (\w+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)
FOLDER = re.compile(r"(\w+)-(?:seed\d+|lite\d-frozen)")
UNLISTED = {"sss_bgmm"}  # another decision on trainings of SSS: it has tables of its own
SHORT = {  # by what a column is called: the property of the metrics, and which of its values is bold
    "Overall": ("overall_avg", max),
    "Base": ("base_avg", max),
    "Novel (Inc)": ("inc_avg", max),
    "Base/Inc": ("base_inc", min),
    "Harmonic mean": ("harmonic_mean_avg", max),
}
BESIDE_PAPER = {  # by what a reader knows them as: the runs of all seeds, where a benchmark has some
    "NCM, the baseline, on a frozen EfficientNet-Lite0": "ncm-lite0-frozen",
    "NCM, the baseline, on a frozen EfficientNet-Lite2": "ncm-lite2-frozen",
    "our gate, mirror images, on a frozen EfficientNet-Lite0": "sss_gate-lite0-frozen",
    "our gate, mirror images, on a frozen EfficientNet-Lite2": "sss_gate-lite2-frozen",
    "NCM, the baseline": "ncm-seed*",
    "dual features alone": "ablation-features-seed*/separately",
    "with Resistance": "sss-seed*",
    "with Resistance, mirror images": "sss-mirror-seed*",
    "with Resistance and Calibration": "sss-calibration-seed*",
    "with our gate, mirror images": "sss_gate-seed*",
    "with our gate, mirror images, corner crops": "sss_gate-crops-seed*",
    "with our gate, mirror images, Calibration": "sss_gate-calibration-seed*",
    "mixtures": "sss_bgmm-seed*",
    "mixtures with our gate, mirror images": "sss_bgmm_gate-seed*",
    "mixtures with Resistance and Calibration": "sss_bgmm-calibration-seed*",
}
GATED = {  # what is shown of each decision, by the title of the column that a report has for it
    summary_column(OVERALL_AVG).title: "overall",
    summary_column(HARMONIC_AVG).title: "harmonic",
}
COLUMNS = {
    "short": SHORT,
    "terms": SHORT,
    "full": {
        "average": ("overall_avg", None),
        "last": ("last", None),
        "Base avg": ("base_avg", None),
        "Inc avg": ("inc_avg", None),
        "Base/Inc": ("base_inc", None),
        "harmonic mean": ("harmonic_mean_avg", None),
    },
    "balance": {
        "Overall avg": ("overall_avg", None),
        "Base avg": ("base_avg", None),
        "Inc avg": ("inc_avg", None),
        "Base/Inc": ("base_inc", None),
        "CInc/PInc": ("cinc_pinc", None),
        "BICP": ("bicp", None),
        "harmonic mean avg": ("harmonic_mean_avg", None),
    },
}
TERMS = {
    "Images": "images",
    "Budget": "budget",
    "Passes": "passes",
    "Keeps": "stores",
    "Per class": "per class",
}  # as a report has them


def table(benchmark: str, columns: str) -> str:
    """Return the table of all methods on a benchmark, the highest harmonic mean first."""
    if columns == "paper":
        return _markdown(["", "Seeds", *SHORT], paper_rows(ROOT / "results" / benchmark))
    if columns == "gates":
        return gates(benchmark)
    groups, wanted = ranked(runs(benchmark)), COLUMNS[columns]
    further = _terms(groups) if columns == "terms" else {}
    if columns == "full":
        further = {"seeds": [str(len(group.results)) for group in groups]}
    cells = {title: _cells(groups, key, best) for title, (key, best) in wanted.items()}
    shown = further | cells if columns == "full" else cells | further
    rows = [[_title(group), *(shown[title][i] for title in shown)] for i, group in enumerate(groups)]
    return _markdown(["", *shown], rows)


def paper_rows(folder: Path) -> list[list[str]]:
    """Return the rows of SSS: as the paper prints it, where it does, and ours, where there are runs."""
    found = {name: sorted(folder.glob(pattern)) for name, pattern in BESIDE_PAPER.items()}
    ours = {name: [Result.read(run) for run in runs] for name, runs in found.items() if runs}
    first = next(iter(ours.values()))
    printed = _printed(first[0].benchmark, judge(first).images)
    rows = []
    for name in BESIDE_PAPER:
        if name in printed:
            rows.append([f"{name}: paper", "?", *(f"{value:.2f}" for value in printed[name])])
        if name in ours:
            (group,) = group_results(ours[name])
            cells = [spread_text(_spread(group, key)) for key, _ in SHORT.values()]
            rows.append([f"{name}: ours", str(len(group.results)), *cells])
    return rows


def gates(benchmark: str) -> str:
    """Return the table of methods that were given our gate, the highest harmonic mean with it first."""
    read = [run for folder in run_folders(benchmark) if (run := read_run(folder)).result is not None]
    groups = group_results([run.result for run in read if run.result is not None])
    found = gate_table(groups, {id(run.result): run.trade_offs for run in read})
    assert found is not None, benchmark
    titles = {group.label: _title(group) for group in groups}
    kept = [i for i, column in enumerate(found.columns) if column.title in GATED]
    bold = [max(spread.mean for row in found.rows if (spread := row.values[i])) for i in kept]
    rows = []
    for row in sorted(found.rows, key=lambda row: _mean(row.values[kept[-1]]), reverse=True):
        spreads = [row.values[i] for i in kept]
        marks = ["**" * (_mean(spread) == best) for spread, best in zip(spreads, bold, strict=True)]
        cells = [spread_text(spread, bold=mark) for spread, mark in zip(spreads, marks, strict=True)]
        rows.append([titles[row.label], *cells])
    columns = [found.columns[i] for i in kept]
    return _markdown(["", *(f"{column.band}: {GATED[column.title]}" for column in columns)], rows)


def _mean(spread: Spread | None) -> float:
    return float("-inf") if spread is None else spread.mean


def _printed(benchmark: str, images: Sequence[int]) -> dict[str, list[float]]:
    """Return what the paper prints for SSS, and what follows from it, in the order of `SHORT`.

    `images` are the test images of the classes of each session.
    """
    rows = published()
    prototypes, mixtures = (
        next(row for row in rows.on(benchmark, len(images)) if row.method == f"SSS ({kind})")
        for kind in ("prototype", "BGMM")
    )
    named: dict[str, PublishedRow | FeaturesRow] = {
        "with Resistance and Calibration": prototypes,
        "mixtures with Resistance and Calibration": mixtures,
    }
    if benchmark == BENCHMARK:
        (dual,) = (row for row in rows.features if row.decision == "separately")
        named["dual features alone"] = dual
    return {name: _derived(row.overall, row.inc or (), images) for name, row in named.items()}


def _derived(overall: Sequence[float], inc: Sequence[float], images: Sequence[int]) -> list[float]:
    """Return the columns of `SHORT` from the accuracies of each session: overall from 0, novel from 1 on."""
    base = implied_base(overall, inc, images)
    harmonic = harmonic_means(base, inc)
    return [fmean(overall), fmean(base), fmean(inc), fmean(base) / fmean(inc), fmean(harmonic)]


def _markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("|  |", "| |").replace(" --- ", "---")
    )


def runs(benchmark: str) -> list[Group]:
    """Return the seeds of each method."""
    return group_results([Result.read(folder) for folder in run_folders(benchmark)])


def run_folders(benchmark: str) -> list[Path]:
    """Return the folders of all runs that tables list."""
    folders = sorted((ROOT / "results" / benchmark).iterdir())
    named = {folder: found[1] for folder in folders if (found := FOLDER.fullmatch(folder.name))}
    return [folder for folder, name in named.items() if name not in UNLISTED]


def _cells(groups: Sequence[Group], key: str, best: Callable[[Iterable[float]], float] | None) -> list[str]:
    """Return a column of accuracies, means with their deviations, the best in bold."""
    spreads = [_spread(group, key) for group in groups]
    bold = best(spread.mean for spread in spreads) if best else None
    return [spread_text(spread, bold="**" * (spread.mean == bold)) for spread in spreads]


def _terms(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return on what terms the methods were run; without columns that no run has recorded."""
    known = [conditions(group).values for group in groups]
    columns = {title: [values[key] for values in known] for title, key in TERMS.items()}
    if set(columns["Images"]) == {UNKNOWN}:  # runs of an earlier version
        del columns["Images"], columns["Budget"]
    if set(columns["Per class"]) == {UNKNOWN}:
        del columns["Per class"]
    return columns


def _spread(group: Group, key: str) -> Spread:
    spread = group.summary(lambda metrics: getattr(metrics, key))
    assert spread is not None, key
    return spread


def _title(group: Group) -> str:
    return f"{group.label}, the baseline" if is_baseline(group.results[0].method) else group.label


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
