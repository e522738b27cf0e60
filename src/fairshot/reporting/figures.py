"""Figures that need nothing but results: accuracy per session, and the path of the trade-off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairshot.evaluation.result import Result
from fairshot.reporting.groups import Group, by_benchmark, group_results
from fairshot.reporting.measures import BASE, INC, OVERALL, SessionMeasure
from fairshot.reporting.style import (
    BASE_COLOUR,
    NOVEL_COLOUR,
    OVERALL_COLOUR,
    house_style,
    label_line_ends,
    method_style,
    save,
)

PANELS_A_ROW = 3


def write_figures(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw the figures of each benchmark into the folder, as PNG and SVG, and return their paths."""
    paths: list[Path] = []
    comparable = by_benchmark(group_results(results))
    for benchmark, groups in comparable.items():
        suffix = f"-{slug(benchmark)}" if len(comparable) > 1 else ""
        paths += save(accuracy_per_session(groups), folder, f"accuracy{suffix}")
        if groups[0].session_count > 1:
            paths += save(trade_off(groups), folder, f"trade-off{suffix}")
    return paths


def slug(text: str) -> str:
    """Make the text a part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def accuracy_per_session(groups: Sequence[Group]) -> Figure:
    """One panel a method: base, novel and overall accuracy after each session, shaded by their deviation."""
    with house_style():
        columns = min(len(groups), PANELS_A_ROW)
        rows = -(-len(groups) // columns)
        figure = Figure(figsize=(3.5 * columns + 0.6, 3.1 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, group in zip(panels, groups, strict=False):
            _draw_accuracies(axes, group)
        for axes in panels[len(groups) :]:
            axes.remove()
        for axes in panels[: len(groups)]:
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel("accuracy (%)")
            if axes.get_subplotspec().rowspan.stop * columns >= len(groups):
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
        ends.append((float(sessions[-1]), float(mean[-1]), f"{name} {mean[-1]:.0f}", colour))
    axes.margins(x=0.04)
    label_line_ends(axes, ends, gap=6)


def trade_off(groups: Sequence[Group]) -> Figure:
    """Novel against base accuracy: each method walks a path over the sessions, its last one marked large."""
    with house_style():
        figure = Figure(figsize=(5.2, 4.4), layout="constrained")
        axes = figure.subplots()
        _draw_equal_harmonic_means(axes)
        axes.plot([0, 100], [0, 100], color="#B0B0B0", linewidth=1, linestyle=(0, (6, 4)))
        for place, group in enumerate(groups):
            style = method_style(place)
            _, base, _ = curve(group, BASE)
            _, novel, _ = curve(group, INC)
            base = base[len(base) - len(novel) :]  # session 0 has no novel classes yet
            axes.plot(base, novel, label=group.label, markersize=4, **style)
            axes.plot(base[-1:], novel[-1:], color=style["color"], marker=style["marker"], markersize=10)
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        axes.set_xlabel("base accuracy (%)")
        axes.set_ylabel("novel accuracy (%)")
        axes.set_title("From session 1 to the last (large mark)")
        figure.legend(loc="outside right upper")
        return figure


def _draw_equal_harmonic_means(axes: Axes) -> None:
    """Thin curves on which the harmonic mean of base and novel accuracy is the same."""
    for level in (20, 40, 60, 80):
        base = np.linspace(level / 2 + 0.5, 100, 200)
        novel = level * base / (2 * base - level)
        shown = novel <= 100
        axes.plot(base[shown], novel[shown], color="#D9D9D9", linewidth=0.8, zorder=1)
        text = f"harmonic mean {level}" if level == 20 else str(level)
        axes.annotate(
            text, (99, level * 99 / (198 - level)), color="#8A8A8A", fontsize=7, ha="right", va="bottom"
        )


def curve(group: Group, measure: SessionMeasure) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sessions in which the measure is defined, its mean over seeds and its deviation (0 for one seed)."""
    spreads = [(t, group.session(t, measure.pick)) for t in range(group.session_count)]
    known = [(t, spread.mean, spread.deviation or 0.0) for t, spread in spreads if spread is not None]
    table = np.array(known, dtype=np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
