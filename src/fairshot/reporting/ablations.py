"""The ablations: what each part of SSS adds (table 2), and decisions by two kinds of features (3 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fairshot import markdown
from fairshot.errors import first_of
from fairshot.evaluation.diagnostics import base_occupancy, losses
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FEATURES
from fairshot.files import write_atomically
from fairshot.reporting.export import to_markdown
from fairshot.reporting.groups import Group, Spread, decision_of, group_results, parts_of, without_seed
from fairshot.reporting.measures import BASE_INC, INC, INC_AVG, OVERALL, OVERALL_AVG
from fairshot.reporting.names import (
    PARTS,
    is_as_published,
    key_text,
    setting_text,
    without_checksum,
    without_idle,
)
from fairshot.reporting.table import TRANSDUCTIVE, Row, Table, our_row, session_column, summary_column
from fairshot.settings import flat
from fairshot.studies.published import Published, published
from fairshot.tensor_files import read_tensors

PAGE = "ablation.md"
BENCHMARK = "cifar100"  # on which the paper printed its ablations
NOT_ALONE = "what lies between two of them is not owed to the parts alone"
MOST_NAMED = 4  # settings that rows differ in; of more it is said how many
GREATEST_LOSSES = 10
SELF_OPTIMIZING = {"resistance", "calibration"}


def ablation_tables(groups: Sequence[Group], published: Published) -> list[Table]:
    """Return those ablations that have at least two rows, one of them ours.

    Ours are the runs that can stand beside the paper's: those without gate, mirror images and corner crops.
    Runs that all have the same parts tell nothing of these.
    """
    groups = [group for group in groups if is_as_published(_settings(group))]
    if not groups:
        return []
    components = components_table(groups, published)
    tables = [components] if len({row.parts for row in components.rows}) > 1 else []
    tables += feature_tables(groups, published)
    return [t for t in tables if len(t.rows) > 1 and any(row.ours for row in t.rows)]


def components_table(groups: Sequence[Group], published: Published) -> Table:
    """Return incremental accuracy and Base/Inc with the parts of SSS switched on one by one (table 2)."""
    sessions = range(1, groups[0].session_count)
    columns = (*(session_column(INC, t) for t in sessions), summary_column(BASE_INC))
    theirs = [
        Row(
            "SSS, paper",
            tuple(Spread(value) for value in (*row.inc, row.base_inc)),
            source="SSS, table 2",
            remarks=(TRANSDUCTIVE,) if "calibration" in row.parts else (),
            parts=frozenset(row.parts),
        )
        for row in (published.components if _printed(groups) else ())
    ]
    known = [(group, parts) for group in groups if (parts := parts_of(group)) is not None]
    settings = _further_settings([group for group, _ in known])
    ours = []
    for (group, parts), own in zip(known, settings, strict=True):
        row = our_row(group, columns)
        texts = [setting_text(*one, alone=True) for one in own.items() if one[1] is not None]
        named = [f"with {first_of(texts, MOST_NAMED)}"] if texts else ()
        ours.append(replace(row, parts=parts, remarks=(*row.remarks, *named)))
    rows = sorted([*theirs, *ours], key=lambda row: len(row.parts))
    caption = "; ".join(f"{title}: {meaning}" for title, meaning in PARTS.values()) + f". Inc: {INC.meaning}."
    if any(settings):
        keys = first_of(list(dict.fromkeys(key_text(key) for own in settings for key in own)), MOST_NAMED)
        caption += f" Our rows differ in more than their parts, {keys}: {NOT_ALONE}."
    return Table("components", "What each part adds", caption, columns, tuple(rows), parts=tuple(PARTS))


def _further_settings(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the settings of each group, parts apart, in which it differs from another that has them too."""
    recipes = [without_idle(settings, settings) for settings in map(_settings, groups)]
    values: dict[str, set[str]] = {}
    for recipe in recipes:
        for key, value in recipe.items():
            values.setdefault(key, set()).add(repr(value))
    parts = {"method", "method.name", *(f"method.{part}" for part in PARTS)}
    differing = without_checksum(key for key, seen in values.items() if len(seen) > 1 and key not in parts)
    return [{key: recipe[key] for key in differing if key in recipe} for recipe in recipes]


def _settings(group: Group) -> dict[str, Any]:
    return dict(flat(without_seed(group.results[0])))


def feature_tables(groups: Sequence[Group], published: Published) -> list[Table]:
    """Return averages (table 3) and sessions (table 11) of the decisions by both kinds of features."""
    count = groups[0].session_count
    columns_of = {
        "features": [summary_column(m) for m in (INC_AVG, OVERALL_AVG)],
        "features-overall": [session_column(OVERALL, t) for t in range(count)],
        "features-incremental": [session_column(INC, t) for t in range(1, count)],
    }
    titles = ("Decisions by two kinds of features", "The same in each session", "The same for novel classes")
    ours = [group for group in groups if _is_plain_dual(group)]
    tables: list[Table] = []
    for title, (key, columns) in zip(titles, columns_of.items(), strict=True):
        rows = []
        for row in published.features:  # ours beside the paper's, decision by decision
            if _printed(groups):
                values = ((row.inc_avg, row.overall_avg), row.overall, row.inc)[len(tables)]
                source = "SSS, table 3" if key == "features" else "SSS, table 11"
                rows.append(Row(f"{row.printed_as}: SSS, paper", tuple(map(Spread, values)), source=source))
            own = [group for group in ours if decision_of(group) == row.decision]
            named = group_results([result for group in own for result in group.results])  # the decision apart
            rows += [
                replace(our_row(group, columns), label=f"{row.printed_as}: {one.label}")
                for group, one in zip(own, named, strict=True)
            ]
        caption = "Without Resistance and Calibration."
        tables.append(Table(key, title, caption, tuple(columns), tuple(rows)))
    return tables


def _is_plain_dual(group: Group) -> bool:
    """Whether a group has both kinds of features and neither Resistance nor Calibration."""
    parts = parts_of(group)
    return parts is not None and "sr" in parts and not parts & SELF_OPTIMIZING


def _printed(groups: Sequence[Group]) -> bool:
    return groups[0].official == BENCHMARK and groups[0].session_count == 9


def write_ablation(
    kind: Literal["components", "features"], runs: Sequence[Path], out: Path, command: str = ""
) -> Path:
    """Write the page of an ablation, whose rows are runs, into a folder; return where it is.

    Components: table 2 of the paper; then FMO, novel-only accuracy and misroute rate per row; then losses.
    Features: tables 3 and 11 of the paper.
    """
    results = [Result.read(folder) for folder in runs]
    groups = group_results(results)
    if kind == "components":
        table = components_table(groups, published())
        labels = [next(group.label for group in groups if group.holds(result)) for result in results]
        diagnoses = _diagnoses(labels, results, runs)
        sections = [_section(table), diagnoses, _losses(labels[-1], results[-1])]
    else:
        sections = [_section(table) for table in feature_tables(groups, published())]
    write_atomically(out / PAGE, ("\n\n".join([f"`{command}`", *sections]) + "\n").encode())
    return out / PAGE


def _section(table: Table) -> str:
    return f"## {table.title}\n\n{table.caption}\n\n{to_markdown(table)}"


def _diagnoses(labels: Sequence[str], results: Sequence[Result], runs: Sequence[Path]) -> str:
    """FMO is definition 3, over test images of base classes; the others are of the last session."""
    rows = []
    for label, result, run in zip(labels, results, runs, strict=True):
        tensors = read_tensors(run / FEATURES)
        fmo = base_occupancy(tensors["g"].float(), tensors["labels"], len(result.sessions[0]))
        last = result.metrics.sessions[-1]
        values = (fmo, result.novel_only[-1], last.misroute, last.base, last.inc)
        rows.append([label, *("-" if value is None else f"{value:.2f}" for value in values)])
    return (
        "## Behind the numbers\n\n"
        "FMO: occupied feature mappings of base test images (definition 3). After the last session, in %:\n"
        "novel-only: accuracy when base classes may not be answered; misroute: novel images answered with a\n"
        f"base class.\n\n{markdown.table(['', 'FMO', 'novel-only', 'misroute', 'base', 'inc'], rows)}"
    )


def _losses(label: str, result: Result) -> str:
    """Return the base classes that lost most from the first session to the last, and to which novel class."""
    first, *_, last = result.confusion_arrays
    found, names = losses(first, last), result.class_names
    mean = sum(one.points for one in found) / len(found)
    rows = [
        (names[one.base_class], f"{one.points:.2f}", names[one.confused_with], f"{one.share:.2f}")
        for one in found[:GREATEST_LOSSES]
    ]
    head = ("base class", "points lost", "most of its images went to", "of its images (%)")
    return (
        f"## What base classes lost ({label})\n\nFrom the base session to the last one a base class lost "
        f"{mean:.2f} points on average; most lost:\n\n{markdown.table(head, rows)}"
    )
