"""The ablations: what each part of SSS adds (table 2), and ways to use two kinds of features (3 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairshot.errors import first_of
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
from fairshot.reporting.settings import PARTS, decision_of, parts_of, without_seed
from fairshot.settings import flat
from fairshot.studies.published import FeaturesRow, Published

BENCHMARK = "cifar100"  # on which the paper printed its ablations
NOT_ALONE = "what lies between two of them is not owed to the parts alone"
MOST_NAMED = 4  # settings that rows differ in; of more it is said how many
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
    known = [(group, parts) for group in groups if (parts := _parts(group)) is not None]
    settings = _further_settings([group for group, _ in known])
    ours = []
    for (group, parts), own in zip(known, settings, strict=True):
        row = our_row(group, sources)
        ours.append(replace(row, parts=parts, remarks=(*row.remarks, *_named(own))))
    rows = sorted([*theirs, *ours], key=lambda row: len(row.parts))
    legend = "; ".join(f"{title}: {meaning}" for title, meaning in PARTS.values())
    caption = f"{legend}. Inc: {INC.meaning}."
    if any(settings):
        caption += f" Our rows differ in more than their parts, {_keys(settings)}: {NOT_ALONE}."
    return PaperTable(
        "components", "What each part adds", caption, _heads(sources), tuple(rows), parts=tuple(PARTS)
    )


def _parts(group: Group) -> frozenset[str] | None:
    return parts_of(group.results[0].method, group.results[0].recipe)


def _further_settings(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The settings of each group, parts apart, in which it differs from another that has them too."""
    recipes = [dict(flat(without_seed(group.results[0].recipe))) for group in groups]
    values: dict[str, set[str]] = {}
    for recipe in recipes:
        for key, value in recipe.items():
            values.setdefault(key, set()).add(repr(value))
    parts = {"method", "method.name", *(f"method.{part}" for part in PARTS)}
    differing = [key for key, seen in values.items() if len(seen) > 1 and key not in parts]
    return [{key: recipe[key] for key in differing if key in recipe} for recipe in recipes]


def _named(settings: Mapping[str, Any]) -> list[str]:
    """A remark that tells the settings of a row."""
    told = [f"{key}={value}" for key, value in settings.items()]
    return [f"with {first_of(told, MOST_NAMED)}"] if told else []


def _keys(settings: Sequence[Mapping[str, Any]]) -> str:
    return first_of(list(dict.fromkeys(key for own in settings for key in own)), MOST_NAMED)


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
            own = [our_row(group, sources) for way, group in ours if way == row.decision]
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
    parts = _parts(group)
    if not parts or "sr" not in parts or parts & OPTIMIZING:
        return None
    return decision_of(group.results[0].recipe)


def _printed(groups: Sequence[Group]) -> bool:
    return groups[0].official == BENCHMARK and groups[0].session_count == 9


def _heads(sources: Sequence[Source]) -> tuple[Column, ...]:
    return tuple(source.column for source in sources)
