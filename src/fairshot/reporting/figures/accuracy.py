"""Figures of accuracies over the sessions: base, novel and overall, the imbalance, novel against base."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import FIGURES
from fairshot.files import write_atomically
from fairshot.reporting.figures import style
from fairshot.reporting.figures.writer import FigureInput, FigureWriter, ReportFigure, slug
from fairshot.reporting.groups import Group, by_benchmark, group_results
from fairshot.reporting.measures import BASE, CINC, INC, OVERALL, PINC, SessionMeasure
from fairshot.studies.published import PublishedRow

MOST_METHODS_PER_PANEL = len(style.DASHES)  # where a colour means a kind of classes, and dashes the methods

FAR = 0.5  # published lines beyond so many times the range of ours do not stretch the axis
PUBLISHED_CAPTION = (
    "Thin grey lines are published results; ▾ marks one that ends below the axis, which follows our runs."
)
IMBALANCE_CAPTION = (  # of the four panels that the page draws of any number of methods
    "The more a method drops from the left panel to the right one, the more it favours one kind of classes: "
    "base over novel above, the newest over earlier novel classes below."
)


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
            for kind, content in style.render(figure, ("png", "svg")).items():
                paths.append(folder / f"{name}{suffix}.{kind}")
                write_atomically(paths[-1], content)
    return paths


def write_all_figures(results: Mapping[Path, Result], out: Path) -> None:
    """Draw the figures of each run that has none, by its folder, and those of several together into `out`."""
    for run, result in results.items():
        if not (run / FIGURES).is_dir():
            write_figures([result], run / FIGURES)
    if len(results) > 1:
        write_figures(list(results.values()), out / FIGURES)


def per_method(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Return one figure per method, so that a hidden method leaves no hole; the files hold them all."""
    files = writer.write("accuracy", accuracy_per_session(given.groups)).files
    figures = []
    for index, group in enumerate(given.groups):
        alt = f"Line chart of {group.label}. {_described(group, BASE, INC, OVERALL)}"
        figure = accuracy_per_session([group])
        figures.append(writer.embed(f"accuracy-{index}", figure, alt, style.method_id(index), files))
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
        PUBLISHED_CAPTION if given.published else "",
    )
    overall = replace(overall, chart="overall")
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
        f"Line charts of accuracy over the sessions, by kind of class. {described}",
        IMBALANCE_CAPTION,
    )
    return [overall, replace(balance, chart="trade-off"), replace(kinds, chart="imbalance")]


def _described(group: Group, *measures: SessionMeasure) -> str:
    """Return the first and the last value of curves in words."""
    sentences = []
    for measure in measures:
        sessions, mean, _ = curve(group, measure)
        if len(sessions):
            first = f"{mean[0]:.1f} % in session {sessions[0]:.0f}"
            sentences.append(f"{measure.title} {first}, {mean[-1]:.1f} % in the last.")
    return " ".join(sentences)


@style.report_style()
def accuracy_per_session(groups: Sequence[Group]) -> Figure:
    """Draw one panel per method: base, novel and overall accuracy per session, their deviation shaded."""
    figure, panels = style.panel_grid(len(groups), 3.8, 3.1, sharex=True, sharey=True)
    columns = style.panel_columns(len(groups))
    for index, (axes, group) in enumerate(zip(panels, groups, strict=True)):
        _draw_accuracies(axes, group)
        if index % columns == 0:
            axes.set_ylabel("accuracy (%)")
        if index + columns >= len(groups):
            axes.set_xlabel("session")
            axes.tick_params(labelbottom=True)
    return figure


def _draw_accuracies(axes: Axes, group: Group) -> None:
    lines = (
        (BASE, "base", style.BASE),
        (OVERALL, "overall", style.OVERALL),
        (INC, "novel", style.NOVEL),
    )
    axes.set_title(group.label)
    axes.set_ylim(0, 100)
    style.count_in_integers(axes)
    ends = []
    for measure, name, colour in lines:
        sessions, mean, deviation = curve(group, measure)
        if len(sessions):
            axes.plot(sessions, mean, color=colour, marker="o", label=name)
            low, high = mean - deviation, mean + deviation
            axes.fill_between(sessions, low, high, color=colour, alpha=0.2, linewidth=0)
            ends.append(style.LineEnd(float(sessions[-1]), float(mean[-1]), f"{name} {mean[-1]:.0f}", colour))
    axes.margins(x=0.03)
    style.label_line_ends(axes, ends, gap=6)


@style.report_style()
def overall_per_session(groups: Sequence[Group], rows: Sequence[PublishedRow] = ()) -> Figure:
    """Draw overall accuracy of all methods after each session, published ones as thin lines (fig. 5)."""
    theirs = {row.method: row for row in reversed(rows)}.values()  # the first row of each method
    labels = [*(group.label for group in groups), *(row.label for row in theirs)]
    width, height = (4.6, 4.9) if len(labels) <= 12 else (6.4, 2.4 + 0.21 * len(labels))
    width += 0.075 * max(10, *map(len, labels))
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    ends: list[style.LineEnd] = []
    for row in theirs:
        thin: dict[str, Any] = {"color": style.MUTED, "linewidth": 0.9, "alpha": 0.55, "gid": style.PUBLISHED}
        axes.plot(range(len(row.overall)), row.overall, label=row.label, **thin)
        ends.append(
            style.LineEnd(len(row.overall) - 1, row.overall[-1], row.label, style.MUTED, style.PUBLISHED, 7)
        )
    for group, line_style in zip(groups, style.method_styles(groups), strict=True):
        sessions, mean, deviation = curve(group, OVERALL)
        axes.plot(sessions, mean, label=group.label, **line_style)
        low, high, id_ = mean - deviation, mean + deviation, line_style["gid"]
        axes.fill_between(sessions, low, high, color=line_style["color"], alpha=0.2, linewidth=0, gid=id_)
        weight = "bold" if line_style["linewidth"] == style.THICK else "normal"
        end, text = (float(sessions[-1]), float(mean[-1])), f"{group.label} {mean[-1]:.1f}"
        ends.append(style.LineEnd(*end, text, line_style["color"], id_, weight=weight))
    axes.set(xlabel="session", ylabel="overall accuracy (%)")
    style.count_in_integers(axes)
    axes.margins(x=0.03)
    bottom, top = _range_of_ours(groups, theirs)
    axes.set_ylim(bottom, top)
    below = [end._replace(y=bottom, text=f"▾ {end.text} {end.y:.1f}") for end in ends if end.y < bottom]
    ends = [*below, *(end for end in ends if end.y >= bottom)]
    style.label_line_ends(axes, ends, gap=17 / height)  # as far apart in print, however tall the figure
    return figure


def _range_of_ours(groups: Sequence[Group], rows: Collection[PublishedRow]) -> tuple[float, float]:
    """Return the range of our accuracies, and of those published ones that are not far away."""
    ours = np.concatenate([curve(group, OVERALL)[1] for group in groups])
    reach = FAR * (ours.max() - ours.min())
    near = [v for row in rows for v in row.overall if ours.min() - reach < v < ours.max() + reach]
    low, high = min([*ours, *near]), max([*ours, *near])
    return low - max(1.0, 0.06 * (high - low)), high + max(1.0, 0.06 * (high - low))


@style.report_style()
def imbalance(groups: Sequence[Group]) -> Figure:
    """Draw base against novel accuracy, and current against past novel classes, after each session (fig. 2).

    Few methods share two panels, where colours tell the kinds of classes apart, marks and dashes the methods.
    With more of them each kind has a panel, and methods have their own colours.
    """
    few = len(groups) <= MOST_METHODS_PER_PANEL
    blue, orange = {"color": style.BASE}, {"color": style.NOVEL}
    pale = orange | {"alpha": 0.45}
    panels: list[tuple[str, list[tuple[SessionMeasure, dict[str, Any]]]]]
    kinds: dict[str, dict[str, Any]] = {}
    if few:
        panels = [
            ("Base against novel classes", [(BASE, blue), (INC, orange)]),
            ("Current against past novel classes", [(CINC, orange), (PINC, pale)]),
        ]
        kinds = {"base": blue, "novel (right: current)": orange, "past novel": pale}
        dashed = zip(style.method_styles(groups), style.DASHES, strict=False)
        styles = [one | {"color": style.MUTED, "linestyle": dash} for one, dash in dashed]
    else:
        titles = {"Base classes": BASE, "Novel classes": INC, "Current novel": CINC, "Past novel": PINC}
        panels = [(title, [(measure, {})]) for title, measure in titles.items()]
        styles = style.method_styles(groups)
    figure = Figure(figsize=(style.WIDE, 3.9 if few else 6.2), layout="constrained")
    grid = figure.subplots(len(panels) // 2, 2, sharex=not few, sharey=True, squeeze=False)
    for axes, (title, lines) in zip(grid.flat, panels, strict=True):
        for group, line_style in zip(groups, styles, strict=True):
            for measure, changed in lines:
                sessions, mean, _ = curve(group, measure)
                axes.plot(sessions, mean, label=f"{group.label}: {measure.title}", **(line_style | changed))
        axes.set(ylim=(0, 100), title=title)
        style.count_in_integers(axes)
    for axes in grid[-1]:
        axes.set_xlabel("session")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)")
    labels = [*kinds, *(group.label for group in groups)]
    entries = [Line2D([], [], **one) for one in (*kinds.values(), *styles)]
    style.legend_below(figure, entries, labels, handlelength=3)
    return figure


@style.report_style()
def trade_off(groups: Sequence[Group]) -> Figure:
    """Draw novel against base accuracy: one path per method over the sessions, its last point large."""
    labels, width = [group.label for group in groups], 5.2
    lines_of_legend = math.ceil(len(groups) / style.legend_columns(labels, width))
    figure = Figure(figsize=(width, 4.1 + 0.19 * lines_of_legend), layout="constrained")
    axes = figure.subplots()
    paths: list[Line2D] = []
    for group, line_style in zip(groups, style.method_styles(groups), strict=True):
        _, base, _ = curve(group, BASE)
        _, novel, _ = curve(group, INC)
        base = base[len(base) - len(novel) :]  # session 0 has no novel classes yet
        paths += axes.plot(base, novel, label=group.label, markersize=4, **line_style)
        axes.plot(base[-1:], novel[-1:], **(line_style | {"markersize": 10, "zorder": 2.4}))
    across, up = (_tens(np.concatenate([line.get_data()[i] for line in axes.lines])) for i in (0, 1))
    axes.plot([0, 100], [0, 100], color=style.MUTED, alpha=0.6, linewidth=1, linestyle=(0, (6, 4)))
    _draw_equal_harmonic_means(axes, across, up)
    axes.set(xlim=across, ylim=up, xlabel="base accuracy (%)", ylabel="novel accuracy (%)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_title("From session 1 to the last (large mark)")
    style.legend_below(figure, paths, labels)
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
        axes.plot(base[shown], novel[shown], color=style.GRID, linewidth=1.2, zorder=1)
        if shown[-1]:
            axes.annotate(
                f"{word}{level}",
                (right, novel[-1]),
                xytext=(5, 0),
                textcoords="offset points",
                annotation_clip=False,
                color=style.MUTED,
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
