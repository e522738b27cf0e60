"""Figures of accuracies over the sessions: base, novel and overall, the imbalance, novel against base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fairshot.evaluation.result import Result
from fairshot.files import write_atomically
from fairshot.reporting.figures.style import (
    BASE_COLOUR,
    DASHES,
    GRID,
    MUTED,
    NOVEL_COLOUR,
    OVERALL_COLOUR,
    PANELS_PER_ROW,
    PUBLISHED,
    THICK,
    WIDE,
    LineEnd,
    count_in_integers,
    label_line_ends,
    legend_below,
    legend_columns,
    method_id,
    method_styles,
    panel_grid,
    render,
    report_style,
)
from fairshot.reporting.figures.writer import FigureInput, FigureWriter, ReportFigure, slug
from fairshot.reporting.groups import Group, by_benchmark, group_results
from fairshot.reporting.measures import BASE, CINC, INC, OVERALL, PINC, SessionMeasure
from fairshot.studies.published import PublishedRow

MOST_METHODS_PER_PANEL = len(DASHES)  # where a colour means a kind of classes, and dashes the methods


def write_figures(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw accuracies and trade-off of each benchmark into the folder, as PNG and SVG; return the paths."""
    paths: list[Path] = []
    comparable = by_benchmark(group_results(results))
    for benchmark, groups in comparable.items():
        suffix = f"-{slug(benchmark)}" if len(comparable) > 1 else ""
        figures = {"accuracy": accuracy_per_session(groups)}
        if groups[0].session_count > 1:
            figures["trade-off"] = trade_off(groups)
        for name, figure in figures.items():
            for kind, content in render(figure, ("png", "svg")).items():
                paths.append(folder / f"{name}{suffix}.{kind}")
                write_atomically(paths[-1], content)
    return paths


def per_method(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Return one figure per method, so that a hidden method leaves no hole; the files hold them all."""
    files = writer.write("accuracy", accuracy_per_session(given.groups)).files
    figures = []
    for index, group in enumerate(given.groups):
        alt = f"Line chart of {group.label}. {_described(group, BASE, INC, OVERALL)}"
        figure = accuracy_per_session([group])
        figures.append(writer.embed(f"accuracy-{index}", figure, alt, method_id(index), files))
    return figures


def comparison(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Return the figures that show all methods: overall accuracy, novel against base, the imbalance."""
    groups = given.groups
    described = " ".join(f"{group.label}: {_described(group, OVERALL)}" for group in groups)
    overall = writer.write(
        "overall",
        overall_per_session(groups, given.published),
        "Overall accuracy after each session",
        f"Line chart of overall accuracy over the sessions. {described}",
        "Thin grey lines are published results." if given.published else "",
    )
    if groups[0].session_count == 1:
        return [overall]
    described = " ".join(f"{group.label}: {_described(group, BASE, INC)}" for group in groups)
    path = trade_off(groups)
    diagonal = "On the dashed diagonal base and novel classes are treated alike; thin "
    balance = writer.write(
        "trade-off",
        path,
        "Novel against base accuracy",
        f"Each method's path from session 1 to the last: novel against base accuracy. {described}",
        (diagonal if shows_diagonal(path) else "Thin ")
        + "curves join points of equal harmonic mean. Up and to the right is better.",
    )
    kinds = writer.write(
        "imbalance",
        imbalance(groups),
        "Imbalance between kinds of classes",
        f"Two line charts of accuracy over the sessions, by kind of class. {described}",
        _imbalance_caption(len(groups)),
    )
    return [overall, balance, kinds]


def _described(group: Group, *measures: SessionMeasure) -> str:
    """Return the first and the last value of curves in words."""
    sentences = []
    for measure in measures:
        sessions, mean, _ = curve(group, measure)
        if len(sessions):
            first = f"{mean[0]:.1f} % in session {sessions[0]:.0f}"
            sentences.append(f"{measure.title} {first}, {mean[-1]:.1f} % in the last.")
    return " ".join(sentences)


def _imbalance_caption(methods: int) -> str:
    if methods > MOST_METHODS_PER_PANEL:
        return (
            "The lower a method lies on the right than on the left, the more it favours one kind of classes: "
            "base over novel above, the newest over earlier novel classes below."
        )
    return (
        "The further two lines of a method lie apart, the more it favours one kind of classes: base over "
        "novel on the left, the newest over earlier novel classes on the right."
    )


@report_style()
def accuracy_per_session(groups: Sequence[Group]) -> Figure:
    """Draw one panel per method: base, novel and overall accuracy per session, their deviation shaded."""
    figure, panels = panel_grid(len(groups), 3.8, 3.1, sharex=True, sharey=True)
    for index, (axes, group) in enumerate(zip(panels, groups, strict=True)):
        _draw_accuracies(axes, group)
        if index % PANELS_PER_ROW == 0:
            axes.set_ylabel("accuracy (%)")
        if index + PANELS_PER_ROW >= len(groups):
            axes.set_xlabel("session")
            axes.tick_params(labelbottom=True)
    return figure


def _draw_accuracies(axes: Axes, group: Group) -> None:
    lines = ((BASE, "base", BASE_COLOUR), (OVERALL, "overall", OVERALL_COLOUR), (INC, "novel", NOVEL_COLOUR))
    axes.set_title(group.label)
    axes.set_ylim(0, 100)
    count_in_integers(axes)
    ends = []
    for measure, name, colour in lines:
        sessions, mean, deviation = curve(group, measure)
        if len(sessions):
            axes.plot(sessions, mean, color=colour, marker="o", label=name)
            low, high = mean - deviation, mean + deviation
            axes.fill_between(sessions, low, high, color=colour, alpha=0.2, linewidth=0)
            ends.append(LineEnd(float(sessions[-1]), float(mean[-1]), f"{name} {mean[-1]:.0f}", colour))
    axes.margins(x=0.03)
    label_line_ends(axes, ends, gap=6)


@report_style()
def overall_per_session(groups: Sequence[Group], rows: Sequence[PublishedRow] = ()) -> Figure:
    """Draw overall accuracy of all methods after each session, published ones as thin lines (fig. 5)."""
    theirs = {row.method: row for row in reversed(rows)}.values()  # the first row of each method
    labels = [*(group.label for group in groups), *(row.label for row in theirs)]
    width, height = (4.6, 4.9) if len(labels) <= 12 else (6.4, 2.4 + 0.21 * len(labels))
    width += 0.075 * max(10, *map(len, labels))
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    ends: list[LineEnd] = []
    for row in theirs:
        thin: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "alpha": 0.55, "gid": PUBLISHED}
        axes.plot(range(len(row.overall)), row.overall, label=row.label, **thin)
        ends.append(LineEnd(len(row.overall) - 1, row.overall[-1], row.label, MUTED, PUBLISHED, 7))
    for group, style in zip(groups, method_styles(groups), strict=True):
        sessions, mean, deviation = curve(group, OVERALL)
        axes.plot(sessions, mean, label=group.label, **style)
        low, high, id_ = mean - deviation, mean + deviation, style["gid"]
        axes.fill_between(sessions, low, high, color=style["color"], alpha=0.2, linewidth=0, gid=id_)
        weight = "bold" if style["linewidth"] == THICK else "normal"
        end, text = (float(sessions[-1]), float(mean[-1])), f"{group.label} {mean[-1]:.1f}"
        ends.append(LineEnd(*end, text, style["color"], id_, weight=weight))
    axes.set(xlabel="session", ylabel="overall accuracy (%)")
    count_in_integers(axes)
    axes.margins(x=0.03, y=0.06)
    label_line_ends(axes, ends, gap=17 / height)  # as far apart in print, however tall the figure
    return figure


@report_style()
def imbalance(groups: Sequence[Group]) -> Figure:
    """Draw base against novel accuracy, and current against past novel classes, after each session (fig. 2).

    Few methods share their panels, where colours tell the kinds of classes apart, marks and dashes the
    methods. With more of them each kind has a panel, and methods their own colours.
    """
    if len(groups) > MOST_METHODS_PER_PANEL:
        return _panel_per_kind(groups)
    sides = (
        ("Base against novel classes", ((BASE, BASE_COLOUR, 1.0), (INC, NOVEL_COLOUR, 1.0))),
        ("Current against past novel classes", ((CINC, NOVEL_COLOUR, 1.0), (PINC, NOVEL_COLOUR, 0.45))),
    )
    dashed = [  # their colour is to mean a kind of classes
        style | {"color": MUTED, "linestyle": dash}
        for style, dash in zip(method_styles(groups), DASHES, strict=False)
    ]
    figure = Figure(figsize=(WIDE, 3.9), layout="constrained")
    for axes, (title, kinds) in zip(figure.subplots(1, 2, sharey=True), sides, strict=True):
        for group, style in zip(groups, dashed, strict=True):
            for measure, colour, alpha in kinds:
                sessions, mean, _ = curve(group, measure)
                label = f"{group.label}: {measure.title}"
                axes.plot(sessions, mean, alpha=alpha, label=label, **(style | {"color": colour}))
        axes.set(xlabel="session", ylim=(0, 100))
        axes.set_title(title)
        count_in_integers(axes)
    figure.axes[0].set_ylabel("accuracy (%)")
    lines = [
        Line2D([], [], color=BASE_COLOUR, label="base"),
        Line2D([], [], color=NOVEL_COLOUR, label="novel (right: current)"),
        Line2D([], [], color=NOVEL_COLOUR, alpha=0.45, label="past novel"),
        *(Line2D([], [], label=g.label, **style) for g, style in zip(groups, dashed, strict=True)),
    ]
    legend_below(figure, lines, [str(line.get_label()) for line in lines], handlelength=3)
    return figure


def _panel_per_kind(groups: Sequence[Group]) -> Figure:
    kinds = ((BASE, "Base classes"), (INC, "Novel classes"), (CINC, "Current novel"), (PINC, "Past novel"))
    figure = Figure(figsize=(WIDE, 6.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (measure, title) in zip(panels.flat, kinds, strict=True):
        for group, style in zip(groups, method_styles(groups), strict=True):
            sessions, mean, _ = curve(group, measure)
            axes.plot(sessions, mean, label=f"{group.label}: {measure.title}", **style)
        axes.set(ylim=(0, 100), title=title)
        count_in_integers(axes)
    for row in panels:
        row[0].set_ylabel("accuracy (%)")
    for axes in panels[-1]:
        axes.set_xlabel("session")
    legend_below(figure, panels[0, 0].lines, [group.label for group in groups], handlelength=3)
    return figure


@report_style()
def trade_off(groups: Sequence[Group]) -> Figure:
    """Draw novel against base accuracy: one path per method over the sessions, its last point large."""
    labels, width = [group.label for group in groups], 5.2
    lines_of_legend = math.ceil(len(groups) / legend_columns(labels, width))
    figure = Figure(figsize=(width, 4.1 + 0.19 * lines_of_legend), layout="constrained")
    axes = figure.subplots()
    paths: list[Line2D] = []
    for group, style in zip(groups, method_styles(groups), strict=True):
        _, base, _ = curve(group, BASE)
        _, novel, _ = curve(group, INC)
        base = base[len(base) - len(novel) :]  # session 0 has no novel classes yet
        paths += axes.plot(base, novel, label=group.label, markersize=4, **style)
        axes.plot(base[-1:], novel[-1:], **(style | {"markersize": 10, "zorder": 2.4}))
    across, up = (_tens(np.concatenate([line.get_data()[i] for line in axes.lines])) for i in (0, 1))
    axes.plot([0, 100], [0, 100], color=MUTED, alpha=0.6, linewidth=1, linestyle=(0, (6, 4)))
    _draw_equal_harmonic_means(axes, across, up)
    axes.set(xlim=across, ylim=up, xlabel="base accuracy (%)", ylabel="novel accuracy (%)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_title("From session 1 to the last (large mark)")
    legend_below(figure, paths, labels)
    return figure


def shows_diagonal(trade_off: Figure) -> bool:
    """Whether the line of equal base and novel accuracy crosses the part that is shown."""
    (left, right), (bottom, top) = trade_off.axes[0].get_xlim(), trade_off.axes[0].get_ylim()
    return max(left, bottom) < min(right, top)


def _tens(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the multiples of ten around accuracies, which do not touch them unless they are 0 or 100."""
    low = max(0, 10 * math.floor(values.min() / 10 - 0.1))
    return low, min(100, max(low + 10, 10 * math.ceil(values.max() / 10 + 0.1)))


def _draw_equal_harmonic_means(axes: Axes, across: tuple[float, float], up: tuple[float, float]) -> None:
    """Draw thin curves of equal harmonic mean of base and novel accuracy, with its value at their end."""
    right, (low, high) = across[1], up
    word = "harmonic mean "
    for level in range(10, min(100, round(2 * right)), 10):  # half of a harmonic mean is less than either
        base = np.linspace(max(across[0], level / 2 + 0.1), right, 400)
        novel = level * base / (2 * base - level)
        shown = (novel >= low) & (novel <= high)
        if not shown.any():
            continue
        axes.plot(base[shown], novel[shown], color=GRID, linewidth=1.2, zorder=1)
        if shown[-1]:
            axes.annotate(
                f"{word}{level}",
                (right, novel[-1]),
                xytext=(5, 0),
                textcoords="offset points",
                annotation_clip=False,
                color=MUTED,
                fontsize=7,
                va="center",
            )
            word = ""


def curve(group: Group, measure: SessionMeasure) -> tuple[NDArray[np.float64], ...]:
    """Return the sessions in which the measure is defined, its mean over seeds and its deviation (or 0)."""
    spreads = [(t, group.session(t, measure.pick)) for t in range(group.session_count)]
    known = [(t, spread.mean, spread.deviation or 0.0) for t, spread in spreads if spread is not None]
    table = np.array(known, dtype=np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
