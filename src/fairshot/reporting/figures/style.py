"""The style of figures: colours that colour-blind readers tell apart, the same for base and novel in all."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator

from fairshot.reporting.groups import Group

# Each colour on paper and, lighter, on a dark screen; the name is that of the page's CSS variable. Blue and
# vermilion mean base and novel, methods get the others: eight that stay apart with each kind of red-green
# blindness, among them colours of the palettes of Okabe and Ito and of Tol. More would not stay apart.
COLOURS = {
    "ink": ("#1c1c1e", "#e9e7e2"),
    "muted": ("#68686d", "#a4a29d"),
    "grid": ("#e3e3e3", "#33363c"),
    "base": ("#0072b2", "#4db3f0"),
    "novel": ("#d55e00", "#ff8f4a"),
    "overall": ("#4d4d4d", "#b8b8b8"),
    "m0": ("#009e73", "#2cc79b"),
    "m1": ("#e69f00", "#f2b63c"),
    "m2": ("#332288", "#766cf0"),
    "m3": ("#33bbee", "#8ae6ff"),
    "m4": ("#aa4499", "#d268c0"),
    "m5": ("#8c510a", "#a8682f"),
    "m6": ("#9e77d6", "#c3a5ff"),
    "m7": ("#0a0a0a", "#ffffff"),  # SVG names no pure black, which a page could then not lighten
}
INK, MUTED, GRID, BASE, NOVEL, OVERALL, *METHODS = (colour for colour, _ in COLOURS.values())
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")
PANELS_PER_ROW = 3
WIDE = 8.4  # inches of a figure that fills the width of the page
THICK = 2.8  # points, of a line that stands out
PUBLISHED = "published"  # the id that all published lines share, as each method has its own

_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_STYLE: list[str | dict[str, Any]] = [
    str(files("fairshot.reporting") / "data" / "report.mplstyle"),
    {"grid.color": GRID, **dict.fromkeys(_COLOURED, INK)},
]


@contextmanager
def report_style() -> Iterator[None]:
    """Draw in the style of the report, leaving the caller's settings as they were; also a decorator."""
    with context(_STYLE):
        yield


def panel_grid(count: int, width: float, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of so many panels of this size (inches)."""
    columns = panel_columns(count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in panels[count:]:
        spare.remove()
    return figure, list(panels[:count])


def panel_columns(count: int) -> int:
    """Return how many panels stand in a row: at most three, and all rows as full as possible."""
    rows = -(-count // PANELS_PER_ROW)
    return -(-count // rows)


def count_in_integers(axes: Axes) -> None:
    """Put ticks at whole sessions."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def method_style(index: int, thick: bool = False) -> dict[str, Any]:
    """Return colour, marker, dash and id of a method by its index; no two of the first 32 look the same.

    Any two differ in colour or dash, for some figures have no markers; those of one colour in marker too.
    """
    return {
        "color": METHODS[index % len(METHODS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index // len(METHODS) % len(DASHES)],
        "linewidth": THICK if thick else 1.4,
        "zorder": 2.2 if thick else 2,  # above other lines, below their markers
        "gid": method_id(index),
    }


def method_styles(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the style of each method; lines of SSS are thick where there are others."""
    several = len({group.is_sss for group in groups}) > 1
    return [method_style(index, several and group.is_sss) for index, group in enumerate(groups)]


def method_id(index: int) -> str:
    """Return the id by which the page finds, and hides, what was drawn for a method."""
    return f"method-{index}"


def legend_columns(labels: Sequence[str], inches: float) -> int:
    """Return how many entries of a legend fit side by side into this width."""
    widest = 0.65 + 0.075 * max(map(len, labels))  # line, gaps, and letters of 9 points
    return max(1, int(inches / widest))


def legend_below(figure: Figure, lines: Sequence[Line2D], labels: Sequence[str], **options: Any) -> None:
    """Write a legend below the figure; each entry has the id of its line, and is hidden with the method."""
    columns = legend_columns(labels, figure.get_figwidth())
    legend = figure.legend(lines, labels, loc="outside lower center", ncols=columns, **options)
    for line, handle, text in zip(lines, legend.legend_handles, legend.get_texts(), strict=True):
        text.set_gid(line.get_gid())
        if isinstance(handle, Artist):
            handle.set_gid(line.get_gid())


_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 4}


class LineEnd(NamedTuple):
    """Where a line ends, and the label that belongs there; `id` is that of its method, if it has one."""

    x: float
    y: float
    text: str
    colour: str
    id: str = ""
    size: float = 9
    weight: str = "normal"


def label_line_ends(axes: Axes, ends: Sequence[LineEnd], gap: float = 4.2) -> None:
    """Write a label beside the end of each line, as near to it as labels can stand without touching.

    `gap` is the least distance between two labels in percent of the height of the axes.
    """
    from sklearn.isotonic import isotonic_regression  # a second to import, and only this needs it

    low, high = axes.get_ylim()
    ends = sorted(ends, key=lambda end: end.y)
    steps = gap / 100 * (high - low) * np.arange(len(ends))
    ceiling = high - steps[-1]
    free = isotonic_regression([end.y for end in ends] - steps, y_min=min(low, ceiling), y_max=ceiling)
    for end, height in zip(ends, free + steps, strict=True):
        moved = abs(height - end.y) > 0.01 * (high - low)
        axes.annotate(
            end.text,
            (end.x, end.y),
            xytext=(1.04, height),
            textcoords=axes.get_yaxis_transform(),
            color=end.colour,
            fontsize=end.size,
            fontweight=end.weight,
            va="center",
            annotation_clip=False,
            gid=end.id or None,
            arrowprops=_LEADER | {"color": end.colour} if moved else None,
        )


def label_blocks(axis: Axis, border: float, end: float, **options: Any) -> None:
    """Name the blocks of base and of novel classes, which meet at the border, in their colours."""
    axis.set_ticks([border / 2, (border + end) / 2], ["base", "novel"], **options)
    for label, colour in zip(axis.get_ticklabels(), (BASE, NOVEL), strict=True):
        label.set_color(colour)


def render(figure: Figure, kinds: Sequence[str]) -> dict[str, bytes]:
    """Return the figure as a file of each kind, without dates, so that equal data give equal files."""
    stamps: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    files = {}
    with report_style():
        figure.draw_without_rendering()  # computes the layout, once for all kinds
        figure.set_layout_engine("none")
        frame = figure.get_tightbbox().padded(0.08)
        for kind in kinds:
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=160, bbox_inches=frame, metadata=stamps.get(kind, {}))
            files[kind] = content.getvalue()
    return files
