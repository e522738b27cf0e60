"""Figures of accuracies over the sessions: base, novel and overall, the imbalance, the trade-off's path."""

from __future__ import annotations

import math
import re
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
from fairshot.reporting.groups import Group, by_benchmark, group_results
from fairshot.reporting.measures import BASE, CINC, INC, OVERALL, PINC, SessionMeasure
from fairshot.reporting.style import (
    BASE_COLOUR,
    DASHES,
    GRID,
    MUTED,
    NOVEL_COLOUR,
    OVERALL_COLOUR,
    PANELS_A_ROW,
    PUBLISHED,
    THICK,
    LineEnd,
    house_style,
    label_line_ends,
    legend_columns,
    method_name,
    method_style,
    name_legend,
    panel_grid,
    save,
)
from fairshot.studies.published import PublishedRow

MOST_METHODS_A_PANEL = len(DASHES)  # where a colour means a kind of classes, and dashes the methods


def write_figures(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw accuracies and trade-off of each benchmark into the folder, as PNG and SVG; return the paths."""
    paths: list[Path] = []
    comparable = by_benchmark(group_results(results))
    for benchmark, groups in comparable.items():
        suffix = f"-{slug(benchmark)}" if len(comparable) > 1 else ""
        paths += save(accuracy_per_session(groups), folder, f"accuracy{suffix}")
        if groups[0].session_count > 1:
            paths += save(trade_off(groups), folder, f"trade-off{suffix}")
    return paths


def slug(text: str) -> str:
    """The text as a part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def method_styles(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The look of each method; that of SSS stands out where there are others."""
    several = len({group.is_sss for group in groups}) > 1
    return [method_style(place, several and group.is_sss) for place, group in enumerate(groups)]


def accuracy_per_session(groups: Sequence[Group]) -> Figure:
    """One panel a method: base, novel and overall accuracy after each session, shaded by their deviation."""
    with house_style():
        figure, panels = panel_grid(len(groups), 3.8, 3.1, sharex=True, sharey=True)
        for place, (axes, group) in enumerate(zip(panels, groups, strict=True)):
            _draw_accuracies(axes, group)
            if place % PANELS_A_ROW == 0:
                axes.set_ylabel("accuracy (%)")
            if place + PANELS_A_ROW >= len(groups):
                axes.set_xlabel("session")
                axes.tick_params(labelbottom=True)
        return figure


def _draw_accuracies(axes: Axes, group: Group) -> None:
    lines = ((BASE, "base", BASE_COLOUR), (OVERALL, "overall", OVERALL_COLOUR), (INC, "novel", NOVEL_COLOUR))
    axes.set_title(group.label)
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = []
    for measure, name, colour in lines:
        sessions, mean, deviation = curve(group, measure)
        if len(sessions) == 0:
            continue
        axes.plot(sessions, mean, color=colour, marker="o", label=name)
        axes.fill_between(sessions, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
        ends.append(LineEnd(float(sessions[-1]), float(mean[-1]), f"{name} {mean[-1]:.0f}", colour))
    axes.margins(x=0.03)
    label_line_ends(axes, ends, gap=6)


def overall_per_session(groups: Sequence[Group], rows: Sequence[PublishedRow] = ()) -> Figure:
    """Overall accuracy of all methods after each session, published ones thin in the background (fig. 5)."""
    with house_style():
        theirs = {row.method: row for row in reversed(rows)}.values()  # the first row of each method
        labels = [*(group.label for group in groups), *(row.label for row in theirs)]
        width, height = _room_for(len(labels))
        width += 0.075 * max(10, *map(len, labels))
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        ends: list[LineEnd] = []
        for row in theirs:
            look: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "alpha": 0.55, "gid": PUBLISHED}
            axes.plot(range(len(row.overall)), row.overall, label=row.label, **look)
            ends.append(LineEnd(len(row.overall) - 1, row.overall[-1], row.label, MUTED, PUBLISHED, 7))
        for group, style in zip(groups, method_styles(groups), strict=True):
            sessions, mean, deviation = curve(group, OVERALL)
            axes.plot(sessions, mean, label=group.label, **style)
            low, high, name = mean - deviation, mean + deviation, style["gid"]
            axes.fill_between(sessions, low, high, color=style["color"], alpha=0.2, linewidth=0, gid=name)
            text = f"{group.label} {mean[-1]:.1f}"
            weight = "bold" if style["linewidth"] == THICK else "normal"
            end = float(sessions[-1]), float(mean[-1])
            ends.append(LineEnd(*end, text, style["color"], name, weight=weight))
        axes.set(xlabel="session", ylabel="overall accuracy (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.03, y=0.06)
        label_line_ends(axes, ends, gap=17 / height)  # as far apart in print, however tall the figure
        return figure


def _room_for(lines: int) -> tuple[float, float]:
    """Inches of a figure whose lines have their labels at the end; many of them get more."""
    return (4.6, 4.9) if lines <= 12 else (6.4, 2.4 + 0.21 * lines)


def imbalance(groups: Sequence[Group]) -> Figure:
    """Base against novel accuracy, and current against past novel classes, after each session (fig. 2).

    Few methods share their panels, where colours tell the kinds of classes apart, marks and dashes the
    methods. With more of them each kind has a panel, and methods their own colours.
    """
    if len(groups) > MOST_METHODS_A_PANEL:
        return _kinds_apart(groups)
    sides = (
        ("Base against novel classes", ((BASE, BASE_COLOUR, 1.0), (INC, NOVEL_COLOUR, 1.0))),
        ("Current against past novel classes", ((CINC, NOVEL_COLOUR, 1.0), (PINC, NOVEL_COLOUR, 0.45))),
    )
    with house_style():
        figure = Figure(figsize=(8.4, 3.9), layout="constrained")
        for axes, (title, kinds) in zip(figure.subplots(1, 2, sharey=True), sides, strict=True):
            for group, style in zip(groups, _dashed_styles(groups), strict=True):
                for measure, colour, alpha in kinds:
                    sessions, mean, _ = curve(group, measure)
                    label = f"{group.label}: {measure.title}"
                    axes.plot(sessions, mean, alpha=alpha, label=label, **(style | {"color": colour}))
            axes.set(xlabel="session", ylim=(0, 100))
            axes.set_title(title)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.axes[0].set_ylabel("accuracy (%)")
        _imbalance_legends(figure, groups)
        return figure


def _dashed_styles(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Looks that differ in their dashes and markers, for their colour is to mean something else."""
    styles = zip(method_styles(groups), DASHES, strict=False)
    return [style | {"color": MUTED, "linestyle": dash} for style, dash in styles]


def _imbalance_legends(figure: Figure, groups: Sequence[Group]) -> None:
    kinds = [
        Line2D([], [], color=BASE_COLOUR, label="base"),
        Line2D([], [], color=NOVEL_COLOUR, label="novel (right: current)"),
        Line2D([], [], color=NOVEL_COLOUR, alpha=0.45, label="past novel"),
    ]
    methods = [
        Line2D([], [], label=group.label, **style)
        for group, style in zip(groups, _dashed_styles(groups), strict=True)
    ]
    columns = legend_columns([str(handle.get_label()) for handle in (*kinds, *methods)], 8.4)
    legend = figure.legend(
        handles=[*kinds, *methods], loc="outside lower center", ncols=columns, handlelength=3
    )
    name_legend(legend, ["", "", "", *map(method_name, range(len(groups)))])


def _kinds_apart(groups: Sequence[Group]) -> Figure:
    kinds = ((BASE, "base classes"), (INC, "novel classes"), (CINC, "current novel"), (PINC, "past novel"))
    with house_style():
        figure = Figure(figsize=(8.4, 6.2), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (measure, title) in zip(panels.flat, kinds, strict=True):
            for group, style in zip(groups, method_styles(groups), strict=True):
                sessions, mean, _ = curve(group, measure)
                axes.plot(sessions, mean, label=f"{group.label}: {measure.title}", **style)
            axes.set(ylim=(0, 100), title=title.capitalize())
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for row in panels:
            row[0].set_ylabel("accuracy (%)")
        for axes in panels[-1]:
            axes.set_xlabel("session")
        labels = [group.label for group in groups]
        columns = legend_columns(labels, 8.4)
        handles = panels[0, 0].lines
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
        name_legend(legend, [method_name(place) for place in range(len(groups))])
        return figure


def trade_off(groups: Sequence[Group]) -> Figure:
    """Novel against base accuracy: each method walks a path over the sessions, its last one marked large."""
    columns = legend_columns([group.label for group in groups], 5.2)
    with house_style():
        figure = Figure(figsize=(5.2, 4.1 + 0.19 * math.ceil(len(groups) / columns)), layout="constrained")
        axes = figure.subplots()
        for group, style in zip(groups, method_styles(groups), strict=True):
            _, base, _ = curve(group, BASE)
            _, novel, _ = curve(group, INC)
            base = base[len(base) - len(novel) :]  # session 0 has no novel classes yet
            axes.plot(base, novel, label=group.label, markersize=4, **style)
            axes.plot(base[-1:], novel[-1:], **(style | {"markersize": 10, "zorder": 2.4}))
        across, up = (_tens(np.concatenate([line.get_data()[i] for line in axes.lines])) for i in (0, 1))
        axes.plot([0, 100], [0, 100], color=MUTED, alpha=0.6, linewidth=1, linestyle=(0, (6, 4)))
        _draw_equal_harmonic_means(axes, across, up)
        axes.set(xlim=across, ylim=up, xlabel="base accuracy (%)", ylabel="novel accuracy (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.set_title("From session 1 to the last (large mark)")
        legend = figure.legend(loc="outside lower center", ncols=columns)
        name_legend(legend, [method_name(i) for i in range(len(groups))])
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
    """Thin curves on which the harmonic mean of base and novel accuracy is the same, named at their end."""
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
    """Sessions in which the measure is defined, its mean over seeds and its deviation (0 for one seed)."""
    spreads = [(t, group.session(t, measure.pick)) for t in range(group.session_count)]
    known = [(t, spread.mean, spread.deviation or 0.0) for t, spread in spreads if spread is not None]
    table = np.array(known, dtype=np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
