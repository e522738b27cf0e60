"""Tables in the layout of the paper, independent of how they are written down: rows, columns, best values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fairshot.reporting.groups import Group, Spread, means
from fairshot.reporting.measures import (
    BASE_INC,
    BICP,
    DIAGNOSES,
    INC,
    OVERALL,
    OVERALL_AVG,
    PINC,
    SESSION_MEASURES,
    SUMMARY_MEASURES,
    Goal,
    SessionMeasure,
    SummaryMeasure,
    best,
)
from fairshot.reporting.settings import backbone_of
from fairshot.studies.published import PublishedRow, same_name

TRANSDUCTIVE = "transductive: unlabelled test images moved the classifiers"


@dataclass(frozen=True)
class Column:
    """A column of numbers; neighbours of one `band` share a heading above theirs."""

    title: str
    meaning: str
    goal: Goal
    band: str = ""


@dataclass(frozen=True)
class Row:
    """A line; a published one has a source, and remarks on what set it apart from ours."""

    label: str
    values: tuple[Spread | None, ...]
    group: str = ""  # the label of our group behind it
    source: str = ""
    remarks: tuple[str, ...] = ()
    parts: frozenset[str] = frozenset()  # of SSS that were on, in an ablation
    seeds: int = 1

    @property
    def name(self) -> str:
        """The label; a published figure that does not stand in the paper of SSS says where it does."""
        return self.label if self.ours or self.source.startswith("SSS") else f"{self.label} ({self.source})"

    @property
    def ours(self) -> bool:
        """Whether this line comes from the runs of the report."""
        return not self.source


@dataclass(frozen=True)
class PaperTable:
    """A table with a key for its file, a title, and a caption that says how to read it."""

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    parts: tuple[str, ...] = ()  # the columns of ticks before the numbers, in an ablation

    @cached_property
    def winners(self) -> list[set[int]]:
        """For each column the places of the rows with the best value."""
        columns = zip(*(row.values for row in self.rows), strict=True)
        return [best(means(list(c)), head.goal) for c, head in zip(columns, self.columns, strict=True)]

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Each remark of a row, and the letter that stands for it."""
        texts = dict.fromkeys(text for row in self.rows for text in row.remarks)
        return {text: chr(ord("a") + place) for place, text in enumerate(texts)}

    @cached_property
    def bands(self) -> list[tuple[str, int]]:
        """The headings above the column titles, and how many columns each spans."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.band:
                spans[-1] = (column.band, spans[-1][1] + 1)
            else:
                spans.append((column.band, 1))
        return spans


Theirs = Callable[[PublishedRow], float | None]


@dataclass(frozen=True)
class Source:
    """A column, and where its numbers come from in a group of ours and in a published row."""

    column: Column
    ours: Callable[[Group], Spread | None]
    theirs: Theirs | None = None


def session_source(measure: SessionMeasure, t: int, theirs: Theirs | None = None) -> Source:
    """Build the column of a measure in session t."""
    column = Column(str(t), measure.meaning, measure.goal, f"{measure.title} accuracy (%) after session")
    return Source(column, lambda group: group.session(t, measure.pick), theirs)


def summary_source(measure: SummaryMeasure, theirs: Theirs | None = None) -> Source:
    """Build the column of a measure of the whole run."""
    title = f"{measure.title} (%)" if measure.unit else measure.title
    return Source(
        Column(title, measure.meaning, measure.goal), lambda group: group.summary(measure.pick), theirs
    )


def summary_table(groups: Sequence[Group]) -> PaperTable:
    """All summaries of our runs."""
    sources = [summary_source(measure) for measure in SUMMARY_MEASURES]
    return _table("summary", "Summary", "Averages over the sessions.", sources, groups, [])


def diagnosis_table(groups: Sequence[Group]) -> PaperTable:
    """What tells a biased decision from bad features."""
    sources = [summary_source(measure) for measure in DIAGNOSES]
    meaning = (
        "accuracy of incremental classes if base classes may not be answered: what the features are worth"
    )
    sources.append(Source(Column("Novel-only avg (%)", meaning, "high"), _novel_only))
    caption = "What tells a biased decision from features that do not suffice."
    return _table("diagnosis", "Diagnosis", caption, sources, groups, [])


def _novel_only(group: Group) -> Spread | None:
    runs = [[value for value in result.novel_only if value is not None] for result in group.results]
    return Spread.of([sum(values) / len(values) if values else None for values in runs])


def session_table(groups: Sequence[Group], t: int) -> PaperTable:
    """All accuracies of our runs after session t."""
    sources = [
        replace(source, column=replace(source.column, title=f"{measure.title} (%)", band=""))
        for measure in SESSION_MEASURES
        for source in [session_source(measure, t)]
    ]
    return _table(f"session-{t}", f"After session {t}", "Accuracies after this session.", sources, groups, [])


def overall_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> PaperTable:
    """Overall accuracy in each session, and BICP (tables 5 to 7)."""
    sources = [session_source(OVERALL, t, _their_overall(t)) for t in range(groups[0].session_count)]
    sources.append(summary_source(OVERALL_AVG, lambda row: row.average))
    sources.append(summary_source(BICP, lambda row: row.bicp))
    caption = f"Overall: {OVERALL.meaning}. BICP: {BICP.meaning}."
    return _table("overall", "Overall accuracy in each session", caption, sources, groups, rows)


def inc_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> PaperTable:
    """Incremental accuracy in each session, and Base/Inc (tables 8 to 10)."""
    sources = [session_source(INC, t, _their_inc(t)) for t in range(1, groups[0].session_count)]
    sources.append(summary_source(BASE_INC, lambda row: row.base_inc))
    caption = f"Inc: {INC.meaning}. Base/Inc: {BASE_INC.meaning}."
    known = [row for row in rows if row.inc]
    return _table("incremental", "Incremental accuracy in each session", caption, sources, groups, known)


def main_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> PaperTable:
    """Inc and PInc in an early, a middle and the last session, average overall accuracy, BICP (table 1)."""
    last = groups[0].session_count - 1
    chosen = sorted({t for t in (2, (2 + last) // 2, last) if 2 <= t <= last})
    sources = [session_source(INC, t, _their_inc(t)) for t in chosen]
    sources += [session_source(PINC, t, _their_pinc(t)) for t in chosen]
    sources.append(summary_source(OVERALL_AVG, lambda row: row.average))
    sources.append(summary_source(BICP, lambda row: row.bicp))
    caption = f"Inc: {INC.meaning}. PInc: {PINC.meaning}. BICP: {BICP.meaning}."
    known = [row for row in rows if row.inc]
    return _table("main", "Early, middle and last session", caption, sources, groups, known)


def _their_overall(t: int) -> Theirs:
    return lambda row: row.overall[t]


def _their_inc(t: int) -> Theirs:
    return lambda row: row.inc[t - 1] if row.inc else None


def _their_pinc(t: int) -> Theirs:
    return lambda row: row.pinc.get(t)


def comparison_tables(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> list[PaperTable]:
    """Build the tables of a benchmark that stand beside published rows, as far as it has sessions."""
    tables = [overall_table(groups, rows)]
    if groups[0].session_count > 1:
        tables.append(inc_table(groups, rows))
    if groups[0].session_count > 2:
        tables.insert(0, main_table(groups, rows))
    return tables


def _table(
    key: str,
    title: str,
    caption: str,
    sources: Sequence[Source],
    groups: Sequence[Group],
    rows: Sequence[PublishedRow],
) -> PaperTable:
    backbones = [backbone_of(group.results[0].recipe) for group in groups]
    titles = [source.column.title for source in sources]
    theirs = [
        Row(
            row.label,
            tuple(Spread.of([s.theirs(row) if s.theirs else None]) for s in sources),
            source=row.source,
            remarks=_published_remarks(row, backbones, "Base/Inc" in titles),
        )
        for row in rows
    ]
    ours = [our_row(group, sources, backbones) for group in groups]
    return PaperTable(key, title, caption, tuple(s.column for s in sources), (*theirs, *ours))


def our_row(group: Group, sources: Sequence[Source], backbones: Sequence[str | None] = ()) -> Row:
    """Build the line of a group; it names its backbone where the groups have different ones."""
    own = backbone_of(group.results[0].recipe)
    remarks = [f"backbone {own}"] if own and len(set(backbones)) > 1 else []
    if any(result.transductive for result in group.results):
        remarks.append(TRANSDUCTIVE)
    values = tuple(source.ours(group) for source in sources)
    return Row(group.label, values, group.label, remarks=tuple(remarks), seeds=len(group.results))


def _published_remarks(row: PublishedRow, ours: Sequence[str | None], with_ratio: bool) -> tuple[str, ...]:
    remarks = []
    if not any(own and same_name(own, row.backbone) for own in ours):
        remarks.append(f"backbone {row.backbone}")
    if row.memory:
        remarks.append(f"keeps {row.memory}")
    if row.transductive:
        remarks.append(TRANSDUCTIVE)
    if with_ratio and row.base_inc_derived is not None:
        remarks.append(f"the printed accuracies give a Base/Inc of {row.base_inc_derived:.2f}")
    return tuple(remarks)
