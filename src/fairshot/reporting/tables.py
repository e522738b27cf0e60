"""Tables of the report, independent of how they are written down: columns, rows, best values, remarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.methods.method import Method, MethodSettings
from fairshot.recipes import DEFAULT_METHOD
from fairshot.reporting import measures as m
from fairshot.reporting.groups import (
    Group,
    Spread,
    backbone_of,
    by_class_order,
    group_results,
    means,
    without_class_order,
    without_seed,
)
from fairshot.reporting.measures import Goal, SessionMeasure, SummaryMeasure, best
from fairshot.studies.published import PublishedRow, same_name
from fairshot.studies.significance import paired_test
from fairshot.studies.tradeoff import TradeOff

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
        values = zip(*(row.values for row in self.rows), strict=True)
        return [best(means(v), column.goal) for v, column in zip(values, self.columns, strict=True)]

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Each remark of a row, and the letter that stands for it."""
        texts = dict.fromkeys(text for row in self.rows for text in row.remarks)
        return {text: chr(ord("a") + index) for index, text in enumerate(texts)}

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


def summary_table(groups: Sequence[Group]) -> Table:
    """Return all summaries of our runs."""
    columns = [summary_column(measure) for measure in m.SUMMARY_MEASURES]
    return _table("summary", "Summary", "Averages over the sessions.", columns, groups)


def diagnosis_table(groups: Sequence[Group]) -> Table:
    """Return what distinguishes a biased decision from bad features."""

    def novel_only(group: Group) -> Spread | None:
        runs = [[value for value in result.novel_only if value is not None] for result in group.results]
        return Spread.of([sum(values) / len(values) if values else None for values in runs])

    meaning = (
        "accuracy of incremental classes if base classes may not be answered: what the features are worth"
    )
    columns = [summary_column(measure) for measure in m.DIAGNOSES]
    columns.append(Column("Novel-only avg (%)", meaning, "high", novel_only))
    caption = "What tells a biased decision from features that do not suffice."
    return _table("diagnosis", "Diagnosis", caption, columns, groups)


def session_table(groups: Sequence[Group], t: int) -> Table:
    """Return all accuracies of our runs after session t."""
    columns = [
        replace(session_column(measure, t), title=f"{measure.title} (%)", band="")
        for measure in m.SESSION_MEASURES
    ]
    return _table(f"session-{t}", f"After session {t}", "Accuracies after this session.", columns, groups)


def overall_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return overall accuracy in each session, and BICP (tables 5 to 7)."""
    columns = [session_column(m.OVERALL, t) for t in range(groups[0].session_count)]
    columns += [summary_column(m.OVERALL_AVG), summary_column(m.BICP)]
    caption = f"Overall: {m.OVERALL.meaning}. BICP: {m.BICP.meaning}."
    return _table("overall", "Overall accuracy in each session", caption, columns, groups, rows)


def inc_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return incremental accuracy in each session, and Base/Inc (tables 8 to 10)."""
    columns = [session_column(m.INC, t) for t in range(1, groups[0].session_count)]
    columns.append(summary_column(m.BASE_INC))
    caption = f"Inc: {m.INC.meaning}. Base/Inc: {m.BASE_INC.meaning}."
    known = [row for row in rows if row.inc]
    return _table("incremental", "Incremental accuracy in each session", caption, columns, groups, known)


def main_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return Inc and PInc in an early, a middle and the last session, overall average and BICP (table 1)."""
    last = groups[0].session_count - 1
    chosen = sorted({t for t in (2, (2 + last) // 2, last) if 2 <= t <= last})
    columns = [session_column(measure, t) for measure in (m.INC, m.PINC) for t in chosen]
    columns += [summary_column(m.OVERALL_AVG), summary_column(m.BICP)]
    caption = f"Inc: {m.INC.meaning}. PInc: {m.PINC.meaning}. BICP: {m.BICP.meaning}."
    known = [row for row in rows if row.inc]
    return _table("main", "Early, middle and last session", caption, columns, groups, known)


def comparison_tables(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> list[Table]:
    """Return the tables of a benchmark that hold published rows beside ours, as far as it has sessions."""
    makers = {3: main_table, 1: overall_table, 2: inc_table}  # by the number of sessions that they need
    return [make(groups, rows) for needed, make in makers.items() if groups[0].session_count >= needed]


def orders_table(results: Sequence[Result], groups: Sequence[Group]) -> Table | None:
    """Return mean and deviation over class orders; the seeds of one order are averaged first.

    `groups` are the other rows of the report: a row belongs to the one that holds some of its runs, if any.
    """
    families = by_class_order(results)
    labels = [group.label for group in group_results([without_class_order(own[0]) for own in families])]
    chosen = (m.OVERALL_AVG, m.LAST, m.INC_AVG, m.BASE_INC, m.HARMONIC_AVG)
    columns = tuple(summary_column(measure) for measure in chosen)
    rows = []
    for label, family in zip(labels, families, strict=True):
        orders: dict[int | None, list[Result]] = {}
        for result in family:
            orders.setdefault(result.class_order, []).append(result)
        if len(orders) > 1:
            seeds = [Group(label, tuple(own)) for own in orders.values()]
            values = tuple(Spread.of(means([column.ours(own) for own in seeds])) for column in columns)
            group = next((one.label for one in groups if any(map(one.holds, family))), "")
            rows.append(Row(label, values, group, remarks=(f"{len(orders)} class orders",)))
    caption = (
        "± is the sample deviation over class orders, each of which makes other classes base classes; "
        "the seeds of one order are averaged first."
    )
    return Table("class-orders", "Over class orders", caption, columns, tuple(rows)) if rows else None


def gate_table(groups: Sequence[Group], gated: Mapping[int, TradeOff]) -> Table | None:
    """Return every method with our gate: what its features reach, by its own decision and by the gate.

    `gated` has the trade-offs of runs by the id of their results. The gate and its strength were chosen on
    pseudo-novel classes, for each method on its own.
    """
    shown = (m.OVERALL_AVG, m.BASE_AVG, m.INC_AVG, m.HARMONIC_AVG)
    attributes = ("overall_avg", "base_avg", "inc_avg", "harmonic_mean_avg")
    rows = []
    for group in groups:
        known = [result for result in group.results if id(result) in gated]
        points = [point for result in known if (point := gated[id(result)].chosen_on_run) is not None]
        if not points:
            continue
        own = Group(group.label, tuple(known))
        values = [own.summary(measure.pick) for measure in shown]
        values += [Spread.of([getattr(point, name) for point in points]) for name in attributes]
        rules = dict.fromkeys(f"{point.rule} {point.setting:g}" for point in points)
        mirror = any(gated[id(result)].mirror for result in known)
        remark = f"gate: {', '.join(rules)}{'; with mirror images' if mirror else ''}"
        rows.append(Row(group.label, tuple(values), group.label, remarks=(remark,), seeds=len(points)))
    columns = [
        replace(summary_column(measure), band=band)
        for band in ("own decision", "with our gate")
        for measure in shown
    ]
    caption = (
        "The same features, decided by the method itself and by the gate of SSS, chosen for each on its "
        "pseudo-novel classes; where a method has no SR module, g~ is g."
    )
    return (
        Table("gates", "Every method with our gate", caption, tuple(columns), tuple(rows)) if rows else None
    )


def significance_table(groups: Sequence[Group], results: Sequence[Result]) -> Table | None:
    """Return SSS against each other method, over pairs of runs with the same seed and class order.

    Of several variants of SSS it is the one with the most runs, the first of them.
    """
    own = [group for group in groups if group.results[0].method == DEFAULT_METHOD]
    if not own or len(groups) < 2:
        return None
    sss = max(own, key=lambda group: len(group.results))
    chosen, rows, units = (m.HARMONIC_AVG, m.OVERALL_AVG), [], set()
    ours = _in_all_orders(sss, results)
    for group in groups:
        tests = [paired_test(ours, _in_all_orders(group, results), one.pick) for one in chosen]
        found = [test for test in tests if test is not None]
        if group is sss or len(found) < len(chosen):
            continue
        pairs = len(found[0].differences)
        units.add(f"{pairs} {found[0].unit}{'s' * (pairs > 1)} cannot give a p below {found[0].least_p:.2g}")
        values: list[Spread | None] = [Spread(float(pairs))]
        for test in found:
            values += [Spread(test.mean, test.half_width), Spread(test.p_exact), _spread(test.p_t)]
        rows.append(Row(group.label, tuple(values), group.label))
    if not rows:
        return None
    meaning = "runs of both methods with the same seed and class order"
    columns = [Column("Pairs", meaning, "none", digits=0)]
    columns += [
        Column(title, meaning, "none", band=measure.title, digits=3 if title.startswith("p ") else 2)
        for measure in chosen
        for title, meaning in TESTED.items()
    ]
    caption = (
        f"{sss.label} less each other method, paired. p exact flips the signs of the differences in every "
        f"way and assumes independent pairs alone: {'; '.join(sorted(units))}. p by t and ± (95 %) assume "
        "normal differences too; 0.000 is less than 0.0005. No p is corrected for the number of rows."
    )
    return Table("significance", f"Significance of {sss.label}", caption, tuple(columns), tuple(rows))


TESTED = {
    "Difference": "mean over the pairs in points, ± half its 95 % interval by t",
    "p exact": "two-sided, of the exact sign-flip test",
    "p by t": "two-sided, of the paired t test",
}


def _spread(value: float | None) -> Spread | None:
    return None if value is None else Spread(value)


def _in_all_orders(group: Group, results: Sequence[Result]) -> list[Result]:
    """Return the results of a group, and those of the same recipe in further class orders."""
    family = next((own for own in by_class_order(results) if any(map(group.holds, own))), [])
    return [*group.results, *(result for result in family if not group.holds(result))]


def _table(
    key: str,
    title: str,
    caption: str,
    columns: Sequence[Column],
    groups: Sequence[Group],
    rows: Sequence[PublishedRow] = (),
) -> Table:
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
    ours = [our_row(group, columns, backbones) for group in groups]
    return Table(key, title, caption, tuple(columns), (*theirs, *ours))


def our_row(group: Group, columns: Sequence[Column], backbones: Sequence[str | None] = ()) -> Row:
    """Return the row of a group; it names its backbone where the groups have different ones."""
    own = backbone_of(group)
    remarks = [f"backbone {own}"] if own and len(set(backbones)) > 1 else []
    if any(result.transductive for result in group.results):
        remarks.append(TRANSDUCTIVE)
    values = tuple(column.ours(group) for column in columns)
    return Row(group.label, values, group.label, remarks=tuple(remarks), seeds=len(group.results))


def _published_remarks(row: PublishedRow, ours: Sequence[str | None], with_ratio: bool) -> tuple[str, ...]:
    remarks = {
        f"backbone {row.backbone}": not any(own and same_name(own, row.backbone) for own in ours),
        f"keeps {row.memory}": bool(row.memory),
        TRANSDUCTIVE: row.transductive,
    }
    if with_ratio and row.base_inc_derived is not None:
        remarks[f"the printed accuracies give a Base/Inc of {row.base_inc_derived:.2f}"] = True
    return tuple(text for text, holds in remarks.items() if holds)


BUDGETS = {"epochs": "recipe's epochs", "images": "images", "authors": "authors' epochs"}
YES = {True: "yes", False: "no"}
UNKNOWN = "?"  # instead of what this version does not know of a method
CONDITIONS = {
    "method": "and where several runs share it, what sets this one apart",
    "backbone": "the network",
    "epochs": "of the base session, and of further phases of it",
    "images": "through the network in the base session, counted in the training loop: all views, fused and "
    "flipped ones included",
    "budget": "what decided for how long it was trained",
    "engine": "initialisation of the network, crops, average of the weights, further augmentation",
    "passes": "of the network for one test image",
    "knows future": "whether it must be told the number of classes to come",
    "keeps pictures": "of old classes",
    "unlabelled": "whether unlabelled test images move its classifiers",
    "stores": "what it keeps of each class",
}


@dataclass(frozen=True)
class Conditions:
    """What a reader must know of a method to compare it fairly; `values` by the titles in `CONDITIONS`."""

    summary: str  # what the method does
    values: dict[str, str]


def conditions(group: Group) -> Conditions:
    """Return what a method is told and keeps, what a test image costs, and what it was trained with."""
    result = group.results[0]
    values = dict.fromkeys(CONDITIONS, UNKNOWN) | {
        "method": group.label,
        "backbone": backbone_of(group) or UNKNOWN,
        "epochs": str(
            result.section("training").get("epochs", UNKNOWN) if result.epochs is None else result.epochs
        ),
        "images": UNKNOWN if result.images is None else f"{result.images:,}",
        "budget": BUDGETS[result.budget],
        "engine": _engine(result),
        "unlabelled": YES[result.transductive],
    }
    kind = methods().get(result.method)
    if kind is None:
        return Conditions(UNKNOWN, values)
    settings, card = _settings(kind, result.section("method")), kind.card
    if further := kind.further_epochs(settings):
        values["epochs"] += f" + {further}"
    values |= {
        "passes": str(kind.passes(settings)),
        "knows future": YES[card.knows_future],
        "keeps pictures": YES[card.keeps_exemplars],
        "stores": card.stores,
    }
    return Conditions(card.summary, values)


def _engine(result: Result) -> str:
    """Return the choices of training that are no method's own, which a comparison gives to all alike."""
    complete = result.model_copy(update={"recipe": without_seed(result)})
    model, views, training = (complete.section(name) for name in ("model", "views", "training"))
    if not {"initialisation", "crop_rule", "average_decay"} <= {*model, *views, *training}:
        return UNKNOWN
    pretrained = model["pretrained"] or model["weights"]
    begins = "pretrained" if pretrained else f"{model['initialisation']} initialisation"
    average = training["average_decay"]
    chosen = [begins, f"{views['crop_rule']} crops", f"average {average:g}" if average else "no average"]
    chosen += ["AutoAugment"] * bool(views["autoaugment"]) + ["Cutout"] * bool(views["cutout"])
    return ", ".join(chosen)


def _settings(kind: type[Method[Any]], given: Mapping[str, Any]) -> MethodSettings:
    """Read the method's own settings; the defaults where the result is of another version."""
    try:
        return kind.Settings.model_validate({k: v for k, v in given.items() if k != "name"})
    except ValidationError:
        return kind.Settings()
