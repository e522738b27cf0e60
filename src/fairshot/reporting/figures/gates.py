"""Figures of gates: what rules that favour novel classes gain and cost over their settings."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from fairshot.reporting.figures.style import MUTED, WIDE, method_style, report_style
from fairshot.reporting.figures.writer import FigureInput, FigureSection, FigureWriter, ReportFigure
from fairshot.studies.tradeoff import TradeOff

TITLES = ("Rule", "Setting", "Overall (%)", "Novel (%)", "Harmonic mean (%)")


@report_style()
def gates(trade_off: TradeOff, label: str) -> Figure:
    """Draw each rule over its settings: overall accuracy and harmonic mean against novel accuracy."""
    figure = Figure(figsize=(WIDE, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, rule in enumerate(trade_off.rules):
        points = sorted(rule.points, key=lambda point: point.inc_avg)
        style = method_style(index) | {"gid": None}
        novel = [point.inc_avg for point in points]
        left.plot(novel, [point.overall_avg for point in points], label=rule.name, **style)
        right.plot(novel, [point.harmonic_mean_avg for point in points], label=rule.name, **style)
        for point in points:
            if point.tuned:
                at = (point.inc_avg, point.harmonic_mean_avg)
                right.plot(*at, "o", markersize=12, fillstyle="none", color=MUTED)
    left.set(ylabel="average overall accuracy (%)", title=f"{label}: overall accuracy")
    right.set(ylabel="average harmonic mean (%)", title="Harmonic mean, chosen setting ringed")
    for axes in (left, right):
        axes.set_xlabel("average novel accuracy (%)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def chosen_gates(trade_off: TradeOff) -> list[tuple[str, ...]]:
    """Return the setting of each rule that pseudo-novel classes chose, and what it gives on test images."""
    return [
        (
            point.rule,
            f"{point.setting:g}",
            *(f"{value:.2f}" for value in (point.overall_avg, point.inc_avg, point.harmonic_mean_avg)),
        )
        for point in trade_off.points
        if point.tuned
    ]


def _draw(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Draw the trade-off of each run that compared gates."""
    figures = []
    compared = [
        (f"{run.name}, mirror images" if found.mirror else run.name, found)
        for run in given.runs
        for found in run.trade_offs
    ]
    for index, (name, trade_off) in enumerate(compared):
        chosen = chosen_gates(trade_off)
        caption = "Each mark is one setting of a rule on the same features, measured on test images. "
        if chosen:
            caption += "The settings of the table were chosen on pseudo-novel classes."
        alt = "Two line charts against novel accuracy: overall accuracy, and harmonic mean."
        drawn = gates(trade_off, name)
        figure = writer.write(f"gates-{index}", drawn, f"What gates trade, {name}", alt, caption)
        figures.append(replace(figure, rows=(TITLES, *chosen) if chosen else ()))
    return figures


SECTION = FigureSection(
    2,
    "gates",
    "Trade-off",
    "Trade-off of the gates",
    "A gate favours novel classes by a setting, which may cost base classes; the curves say how much.",
    "No run here compared gates. For a finished run this does:",
    _draw,
    each="Each run",
    study="tradeoff RUN",
)
