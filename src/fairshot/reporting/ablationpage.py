"""What `fairshot ablate` writes: its tables beside the paper's, and what lies behind the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors.torch import load_file

from fairshot.evaluation.diagnostics import base_occupancy, losses
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FEATURES
from fairshot.reporting.ablations import components_table, feature_tables
from fairshot.reporting.export import to_markdown
from fairshot.reporting.groups import group_results
from fairshot.reporting.papertables import PaperTable
from fairshot.studies.published import published

GREATEST_LOSSES = 10


def components_page(runs: Mapping[str, Path], command: str) -> str:
    """Table 2 of the paper, then FMO, novel-only accuracy and misroute rate of every row, then losses."""
    results = {name: Result.read(folder) for name, folder in runs.items()}
    tables = [components_table(group_results(list(results.values())), published())]
    behind = ["## Behind the numbers", "", *_diagnoses(results, runs)]
    last = next(reversed(results))
    lost = [f"## What base classes lost ({last})", "", *_losses(results[last])]
    return "\n".join([f"`{command}`", "", *_sections(tables), *behind, "", *lost, ""])


def features_page(runs: Mapping[str, Path], command: str) -> str:
    """Tables 3 and 11 of the paper."""
    groups = group_results([Result.read(folder) for folder in runs.values()])
    return "\n".join([f"`{command}`", "", *_sections(feature_tables(groups, published()))])


def _sections(tables: Sequence[PaperTable]) -> list[str]:
    return [line for t in tables for line in (f"## {t.title}", "", t.caption, "", to_markdown(t))]


def _diagnoses(results: Mapping[str, Result], runs: Mapping[str, Path]) -> list[str]:
    """FMO is definition 3, over test images of base classes; the others are of the last session."""
    lines = [
        "FMO: occupied feature mappings of base test images (definition 3). After the last session, in %:",
        "novel-only: accuracy when base classes may not be answered; misroute: novel images answered with a",
        "base class.",
        "",
        "| | FMO | novel-only | misroute | base | inc |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        tensors = load_file(runs[name] / FEATURES)
        fmo = base_occupancy(tensors["g"].float(), tensors["labels"], len(result.sessions[0]))
        last = result.metrics.sessions[-1]
        values = (fmo, result.novel_only[-1], last.misroute, last.base, last.inc)
        cells = ["-" if value is None else f"{value:.2f}" for value in values]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines


def _losses(result: Result) -> list[str]:
    """The base classes that lost most from the first session to the last, and to which novel class."""
    first, *_, last = result.confusion_arrays
    found, names = losses(first, last), result.class_names
    mean = sum(one.points for one in found) / len(found)
    lines = [
        f"From the base session to the last one a base class lost {mean:.2f} points on average; most lost:",
        "",
        "| base class | points lost | most of its images went to | of its images (%) |",
        "|---|---|---|---|",
    ]
    for one in found[:GREATEST_LOSSES]:
        cells = (names[one.base_class], f"{one.points:.2f}", names[one.confused_with], f"{one.share:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
