"""The tables of the report: of our runs, and beside published rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairshot.evaluation.result import Result
from fairshot.recipes import DEFAULT_METHOD
from fairshot.reporting import measures as m
from fairshot.reporting.groups import Group, Spread, by_class_order, group_results, means, without_class_order
from fairshot.reporting.table import (
    TRANSDUCTIVE,
    Column,
    Row,
    Table,
    make_table,
    session_column,
    summary_column,
)
from fairshot.studies.published import PublishedRow
from fairshot.studies.significance import paired_test
from fairshot.studies.tradeoff import CurvePoint, TradeOff


def summary_table(groups: Sequence[Group]) -> Table:
    """Return all summaries of our runs."""
    columns = [summary_column(measure) for measure in m.SUMMARY_MEASURES]
    return make_table("summary", "Summary", "Averages over the sessions.", columns, groups)


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
    return make_table("diagnosis", "Diagnosis", caption, columns, groups)


def session_table(groups: Sequence[Group], t: int) -> Table:
    """Return all accuracies of our runs after session t."""
    columns = [
        replace(session_column(measure, t), title=f"{measure.title} (%)", band="")
        for measure in m.SESSION_MEASURES
    ]
    return make_table(f"session-{t}", f"After session {t}", "Accuracies after this session.", columns, groups)


def overall_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return overall accuracy in each session, and BICP (tables 5 to 7)."""
    columns = [session_column(m.OVERALL, t) for t in range(groups[0].session_count)]
    columns += [summary_column(m.OVERALL_AVG), summary_column(m.BICP)]
    caption = f"Overall: {m.OVERALL.meaning}. BICP: {m.BICP.meaning}."
    return make_table("overall", "Overall accuracy in each session", caption, columns, groups, rows)


def inc_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return incremental accuracy in each session, and Base/Inc (tables 8 to 10)."""
    columns = [session_column(m.INC, t) for t in range(1, groups[0].session_count)]
    columns.append(summary_column(m.BASE_INC))
    caption = f"Inc: {m.INC.meaning}. Base/Inc: {m.BASE_INC.meaning}."
    known = [row for row in rows if row.inc]
    return make_table("incremental", "Incremental accuracy in each session", caption, columns, groups, known)


def main_table(groups: Sequence[Group], rows: Sequence[PublishedRow]) -> Table:
    """Return Inc and PInc in an early, a middle and the last session, overall average and BICP (table 1)."""
    last = groups[0].session_count - 1
    chosen = sorted({t for t in (2, (2 + last) // 2, last) if 2 <= t <= last})
    columns = [session_column(measure, t) for measure in (m.INC, m.PINC) for t in chosen]
    columns += [summary_column(m.OVERALL_AVG), summary_column(m.BICP)]
    caption = f"Inc: {m.INC.meaning}. PInc: {m.PINC.meaning}. BICP: {m.BICP.meaning}."
    known = [row for row in rows if row.inc]
    return make_table("main", "Early, middle and last session", caption, columns, groups, known)


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


GATED = (  # the measures of `gate_table`, and what a point of a curve calls them
    (m.OVERALL_AVG, "overall_avg"),
    (m.BASE_AVG, "base_avg"),
    (m.INC_AVG, "inc_avg"),
    (m.HARMONIC_AVG, "harmonic_mean_avg"),
)
GATE_BANDS = {False: "with our gate", True: "with our gate, mirror images"}  # by whether images are mirrored


def gate_table(groups: Sequence[Group], gated: Mapping[int, Sequence[TradeOff]]) -> Table | None:
    """Return every method with our gate: what its features reach, by its own decision and by the gate.

    `gated` has the trade-offs of runs by the id of their results. The gate and its strength were chosen on
    pseudo-novel classes, for each method on its own, and without and with mirror images.
    """
    points = {
        (result, found.mirror): point
        for result, trade_offs in gated.items()
        for found in trade_offs
        if (point := found.chosen_on_run) is not None
    }
    if not points:
        return None
    shown = [mirror for mirror in GATE_BANDS if any(mirrored is mirror for _, mirrored in points)]
    bands = ["own decision", *(GATE_BANDS[mirror] for mirror in shown)]
    columns = tuple(replace(summary_column(measure), band=band) for band in bands for measure, _ in GATED)
    rows = tuple(row for group in groups if (row := _gate_row(group, points, shown)) is not None)
    caption = (
        "The same features, decided by the method itself and by the gate of SSS, chosen for each on its "
        "pseudo-novel classes; where a method has no SR module, g~ is g."
    )
    return Table("gates", "Every method with our gate", caption, columns, rows) if rows else None


def _gate_row(
    group: Group, points: Mapping[tuple[int, bool], CurvePoint], shown: Sequence[bool]
) -> Row | None:
    """Return a method by its own decision and by the gates chosen for it, over the runs that have gates."""
    known = [result for result in group.results if any((id(result), mirror) in points for mirror in shown)]
    if not known:
        return None
    own = Group(group.label, tuple(known))
    values, remarks = [own.summary(measure.pick) for measure, _ in GATED], []
    for mirror in shown:
        mine = [points[id(result), mirror] for result in known if (id(result), mirror) in points]
        values += [Spread.of([getattr(point, name) for point in mine]) for _, name in GATED]
        if rules := dict.fromkeys(f"{point.rule} {point.setting:g}" for point in mine):
            remarks.append(f"{GATE_BANDS[mirror]}: {', '.join(rules)}")
    return Row(group.label, tuple(values), group.label, remarks=tuple(remarks), seeds=len(known))


def significance_table(groups: Sequence[Group], results: Sequence[Result]) -> Table | None:
    """Return SSS against each other method, over pairs of runs with the same seed and class order.

    Of several variants of SSS it is the one with the most runs, the first of them; before that, one that
    reads no unlabelled test images, as the other methods do not.
    """
    own = [group for group in groups if group.results[0].method == DEFAULT_METHOD]
    if not own or len(groups) < 2:
        return None
    sss = max(own, key=lambda group: (not group.transductive, len(group.results)))
    chosen, rows, units = (m.HARMONIC_AVG, m.OVERALL_AVG), [], set()
    ours = _in_all_orders(sss, results)
    for group in groups:
        tests = [paired_test(ours, _in_all_orders(group, results), one.pick) for one in chosen]
        found = [test for test in tests if test is not None]
        if group is sss or len(found) < len(chosen):
            continue
        pairs = len(found[0].differences)
        if pairs < 2:  # whose p is 1, whatever the difference
            continue
        units.add(f"{pairs} {found[0].unit}{'s' * (pairs > 1)} cannot give a p below {found[0].least_p:.2g}")
        values: list[Spread | None] = [Spread(float(pairs))]
        for test in found:
            values += [Spread(test.mean, test.half_width), Spread(test.p_exact), _spread(test.p_t)]
        remarks = (TRANSDUCTIVE,) if group.transductive else ()
        rows.append(Row(group.label, tuple(values), group.label, remarks=remarks))
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
