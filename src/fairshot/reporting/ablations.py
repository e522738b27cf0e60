"""The ablations: what each part of SSS adds (table 2), and ways to use two kinds of features (3 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairshot.reporting.groups import Group, Spread
from fairshot.reporting.measures import BASE_INC, INC, INC_AVG, OVERALL, OVERALL_AVG
from fairshot.reporting.papertables import (
    TRANSDUCTIVE,
    Column,
    PaperTable,
    Row,
    Source,
    our_row,
    session_source,
    summary_source,
)
from fairshot.reporting.published import FeaturesRow, Published
from fairshot.reporting.settings import PARTS, feature_way_of, parts_of

BENCHMARK = "cifar100"  # on which the paper printed its ablations
OPTIMIZING = {"resistance", "calibration"}


def ablation_tables(groups: Sequence[Group], published: Published) -> list[PaperTable]:
    """Build those ablations that have at least two lines, one of them ours."""
    tables = [components_table(groups, published), *feature_tables(groups, published)]
    return [t for t in tables if len(t.rows) > 1 and any(row.ours for row in t.rows)]


def components_table(groups: Sequence[Group], published: Published) -> PaperTable:
    """Incremental accuracy and Base/Inc with the parts of SSS switched on one after the other (table 2)."""
    last = groups[0].session_count
    sources = [*(session_source(INC, t) for t in range(1, last)), summary_source(BASE_INC)]
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
    ours = []
    for group in groups:
        parts = parts_of(group.results[0].method, group.results[0].recipe)
        if parts is not None:
            ours.append(replace(our_row(group, sources), parts=parts))
    rows = sorted([*theirs, *ours], key=lambda row: len(row.parts))
    legend = "; ".join(f"{title}: {meaning}" for title, meaning in PARTS.values())
    caption = f"{legend}. Inc: {INC.meaning}."
    return PaperTable(
        "components", "What each part adds", caption, _heads(sources), tuple(rows), parts=tuple(PARTS)
    )


def feature_tables(groups: Sequence[Group], published: Published) -> list[PaperTable]:
    """Averages (table 3) and sessions (table 11) of the ways to use both kinds of features."""
    count = groups[0].session_count
    kinds = (
        (
            "features",
            "Ways to use two kinds of features",
            [summary_source(m) for m in (INC_AVG, OVERALL_AVG)],
        ),
        ("features-overall", "The same in each session", [session_source(OVERALL, t) for t in range(count)]),
        (
            "features-incremental",
            "The same for novel classes",
            [session_source(INC, t) for t in range(1, count)],
        ),
    )
    ours = [(way, group) for group in groups if (way := _way_without_self_optimizing(group)) is not None]
    tables = []
    for key, title, sources in kinds:
        rows = []
        for row in published.features:  # ours beside the paper's, way by way
            rows += [_published_way(row, key)] if _printed(groups) else []
            own = [our_row(group, sources) for way, group in ours if way == row.way]
            rows += [replace(one, label=f"{row.printed_as}: {one.label}") for one in own]
        caption = "Without Resistance and Calibration."
        tables.append(PaperTable(key, title, caption, _heads(sources), tuple(rows)))
    return tables


def _published_way(row: FeaturesRow, key: str) -> Row:
    values = {
        "features": (row.inc_avg, row.overall_avg),
        "features-overall": row.overall,
        "features-incremental": row.inc,
    }[key]
    source = "SSS, table 3" if key == "features" else "SSS, table 11"
    return Row(f"{row.printed_as}: SSS, paper", tuple(map(Spread, values)), source=source)


def _way_without_self_optimizing(group: Group) -> str | None:
    parts = parts_of(group.results[0].method, group.results[0].recipe)
    if not parts or "sr" not in parts or parts & OPTIMIZING:
        return None
    return feature_way_of(group.results[0].recipe)


def _printed(groups: Sequence[Group]) -> bool:
    return groups[0].official == BENCHMARK and groups[0].session_count == 9


def _heads(sources: Sequence[Source]) -> tuple[Column, ...]:
    return tuple(source.column for source in sources)
