"""How figures look: colours that stay apart for colour-blind readers, base and novel always the same two."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.style import context

from fairshot.files import write_atomically

# The palette of Okabe and Ito. Blue and vermilion mean base and novel everywhere; methods get the others.
BASE_COLOUR = "#0072B2"
NOVEL_COLOUR = "#D55E00"
OVERALL_COLOUR = "#4D4D4D"
METHOD_COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "fairshot",
    "pdf.fonttype": 42,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the house, leaving the caller's settings as they were."""
    with context(_SETTINGS):
        yield


def method_style(place: int) -> dict[str, Any]:
    """Colour, marker and dash of the method at this place: no two of the first 28 look the same."""
    return {
        "color": METHOD_COLOURS[place % len(METHOD_COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place // len(METHOD_COLOURS) % len(DASHES)],
    }


def label_line_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 4.2) -> None:
    """Write a label (x, y, text, colour) beside the end of each line, pushed apart where ends lie close.

    `gap` is the least distance between two labels in percent of the height of the axes.
    """
    low, high = axes.get_ylim()
    least = gap / 100 * (high - low)
    ordered = sorted(ends, key=lambda end: end[1])
    heights: list[float] = []
    for _, y, _, _ in ordered:
        heights.append(max(y, heights[-1] + least) if heights else max(y, low))
    for i in range(len(heights) - 1, -1, -1):  # what was pushed over the top comes back down
        ceiling = high if i == len(heights) - 1 else heights[i + 1] - least
        heights[i] = min(heights[i], ceiling)
    for (x, _, text, colour), height in zip(ordered, heights, strict=True):
        axes.annotate(
            text,
            (x, height),
            xytext=(7, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure in each format, without dates, so that equal data give equal files."""
    paths = []
    for kind in formats:
        content = io.BytesIO()
        with house_style():
            stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
            figure.savefig(content, format=kind, dpi=160, bbox_inches="tight", metadata=stamp)
        write_atomically(folder / f"{name}.{kind}", content.getvalue())
        paths.append(folder / f"{name}.{kind}")
    return paths
