"""A table of the report, independent of how it is written down: columns, rows, best values, remarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from string import ascii_lowercase

from fairshot.benchmarks import DATASETS
from fairshot.evaluation.starting_weights import StartingWeights, starting_weights
from fairshot.reporting import measures as m
from fairshot.reporting.groups import Group, Spread, backbone_of, means
from fairshot.reporting.measures import Goal, SessionMeasure, SummaryMeasure, best
from fairshot.studies.published import PublishedRow, same_name
from fairshot.studies.reproducibility import NOT_COMPARABLE, begins_alike

TRANSDUCTIVE = "transductive: unlabelled test images moved the classifiers"
Theirs = Callable[[PublishedRow], float | None]


@dataclass(frozen=True)
class Column:
    """A column of numbers; neighbours of one `band` share a heading above theirs.

    `ours` and `theirs` give its number for a group of our runs and for a published row.
    """

    title: str
    meaning: str
    goal: Goal
    ours: Callable[[Group], Spread | None] = lambda _: None
    theirs: Theirs | None = None
    band: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Row:
    """A row; a published one has a source, and remarks on what set it apart from ours."""

    label: str
    values: tuple[Spread | None, ...]
    group: str = ""  # the label of our group behind it
    source: str = ""
    remarks: tuple[str, ...] = ()
    parts: frozenset[str] = frozenset()  # of SSS that were on, in an ablation
    seeds: int = 1
    comparable: bool = True  # with the published rows of its table; if not, no value of it is best

    @property
    def name(self) -> str:
        """The label; a published number that is not in the paper of SSS names its source."""
        return self.label if self.ours or self.source.startswith("SSS") else f"{self.label} ({self.source})"

    @property
    def ours(self) -> bool:
        """Whether this row comes from the runs of the report."""
        return not self.source


@dataclass(frozen=True)
class Table:
    """A table with a key for its file, a title, and a caption that says how to read it."""

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    parts: tuple[str, ...] = ()  # the columns of ticks before the numbers, in an ablation

    @cached_property
    def winners(self) -> list[set[int]]:
        """For each column the indices of the rows with the best value."""
        rows = [row.values if row.comparable else [None] * len(row.values) for row in self.rows]
        values = zip(*rows, strict=True)
        return [best(means(v), column.goal) for v, column in zip(values, self.columns, strict=True)]

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Each remark of a row, and the letter that stands for it: a to z, then aa to zz."""
        texts = dict.fromkeys(text for row in self.rows for text in row.remarks)
        return {text: ascii_lowercase[i % 26] * (1 + i // 26) for i, text in enumerate(texts)}

    @property
    def column_titles(self) -> list[str]:
        """The titles of the columns, with the heading above them where another column has the same."""
        titles = [column.title for column in self.columns]
        return [
            f"{column.band}: {column.title}"
            if column.band and titles.count(column.title) > 1
            else column.title
            for column in self.columns
        ]

    @cached_property
    def bands(self) -> list[tuple[str, int]]:
        """The headings above the column titles, and how many columns each spans."""
        return [(band, len(list(own))) for band, own in groupby(column.band for column in self.columns)]


def session_column(measure: SessionMeasure, t: int) -> Column:
    """Return the column of a measure in session t."""
    theirs: dict[str, Theirs] = {
        m.OVERALL.title: lambda row: row.overall[t],
        m.INC.title: lambda row: row.inc[t - 1] if row.inc else None,
        m.PINC.title: lambda row: row.pinc.get(t),
    }
    return Column(
        str(t),
        measure.meaning,
        measure.goal,
        lambda group: group.session(t, measure.pick),
        theirs.get(measure.title),
        f"{measure.title} accuracy (%) after session",
    )


def summary_column(measure: SummaryMeasure) -> Column:
    """Return the column of a measure of the whole run."""
    theirs: dict[str, Theirs] = {
        m.OVERALL_AVG.title: lambda row: row.average,
        m.BICP.title: lambda row: row.bicp,
        m.BASE_INC.title: lambda row: row.base_inc,
    }
    title = f"{measure.title} (%)" if measure.unit else measure.title
    pick = theirs.get(measure.title)
    return Column(title, measure.meaning, measure.goal, lambda group: group.summary(measure.pick), pick)


def make_table(
    key: str,
    title: str,
    caption: str,
    columns: Sequence[Column],
    groups: Sequence[Group],
    rows: Sequence[PublishedRow] = (),
) -> Table:
    """Return a table of published rows, the best average first, and of our groups below them."""
    backbones = [backbone_of(group) for group in groups]
    with_ratio = any(column.title == m.BASE_INC.title for column in columns)
    rows = sorted(rows, key=lambda row: -row.average)
    theirs = [
        Row(
            row.label,
            tuple(Spread.of([column.theirs(row) if column.theirs else None]) for column in columns),
            source=row.source,
            remarks=_published_remarks(row, backbones, with_ratio),
        )
        for row in rows
    ]
    ours = [our_row(group, columns, backbones, rows) for group in groups]
    return Table(key, title, caption, tuple(columns), (*theirs, *ours))


def our_row(
    group: Group,
    columns: Sequence[Column],
    backbones: Sequence[str | None] = (),
    published: Sequence[PublishedRow] = (),
) -> Row:
    """Return the row of a group.

    It names its backbone where the groups have different ones, and what that had learnt before.
    """
    own, weights = backbone_of(group), starting_weights(group.results[0])
    comparable = not published or any(begins_alike(weights, row) for row in published)
    remarks = [f"backbone {own}"] if own and len(set(backbones)) > 1 else []
    if weights is not None:
        remarks.append(_what_it_knows(weights, group))
    if not comparable:
        theirs = " or ".join(sorted({row.start for row in published}))
        remarks.append(f"{NOT_COMPARABLE} with the published rows, whose backbone {theirs}")
    if group.transductive:
        remarks.append(TRANSDUCTIVE)
    return Row(
        group.label,
        tuple(column.ours(group) for column in columns),
        group.label,
        remarks=tuple(remarks),
        seeds=len(group.results),
        comparable=comparable,
    )


def _what_it_knows(weights: StartingWeights, group: Group) -> str:
    """Return what a backbone had learnt before, and whether the classes of the benchmark were among it."""
    dataset = DATASETS.get(group.official)
    known = dataset is not None and dataset.part_of == weights.trained_on
    inside = f", which has all classes of {group.benchmark_title}: none is new to it" if known else ""
    return f"began with {weights}{inside}"


def _published_remarks(row: PublishedRow, ours: Sequence[str | None], with_ratio: bool) -> tuple[str, ...]:
    remarks = {
        f"backbone {row.backbone}": not any(own and same_name(own, row.backbone) for own in ours),
        row.start: row.pretrained_on is not None,
        f"keeps {row.memory}": bool(row.memory),
        TRANSDUCTIVE: row.transductive,
    }
    if with_ratio and row.base_inc_derived is not None:
        remarks[f"the printed accuracies give a Base/Inc of {row.base_inc_derived:.2f}"] = True
    return tuple(text for text, holds in remarks.items() if holds)
