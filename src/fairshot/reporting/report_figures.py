"""Plates: figures as a page shows them, and as files beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from fairshot.files import write_atomically
from fairshot.reporting.style import render
from fairshot.reporting.svg import inline_svg

KINDS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class ReportFigure:
    """A figure with what a page says of it; `method` names the one it belongs to, if it is one's alone."""

    svg: Markup
    title: str
    caption: str
    files: tuple[str, ...] = ()
    method: str = ""
    rows: tuple[tuple[str, ...], ...] = ()  # of a small table below it, the first its titles


@dataclass(frozen=True)
class FigureWriter:
    """Writes the figures of a chapter into the folder of the report, their names behind a prefix."""

    out: Path
    prefix: str = ""

    def plate(
        self, key: str, figure: Figure, title: str, alt: str, caption: str, method: str = ""
    ) -> ReportFigure:
        """Save the figure for a paper, and make a plate of it."""
        pictures = render(figure, KINDS)
        files = {kind: f"figures/{self.prefix}{key}.{kind}" for kind in KINDS}
        for kind, content in pictures.items():
            write_atomically(self.out / files[kind], content)
        svg = inline_svg(pictures["svg"], self.prefix + key, alt)
        return ReportFigure(svg, title, caption, tuple(files.values()), method)

    def sketch(self, key: str, figure: Figure, alt: str, method: str, files: tuple[str, ...]) -> ReportFigure:
        """Make a plate of one method's part of a figure whose files are there already."""
        svg = inline_svg(render(figure, ["svg"])["svg"], self.prefix + key, alt)
        return ReportFigure(svg, "", "", files, method)
