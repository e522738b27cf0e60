"""Figures of the report: as files, as SVG inside the page with a caption, and in sections of the page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from numpy.typing import NDArray
from PIL import Image

from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.figures.style import COLOURS, DASHES, PUBLISHED, method_id, method_style, render
from fairshot.reporting.groups import Group
from fairshot.reporting.runs import Run
from fairshot.studies.published import PublishedRow

KINDS = ("png", "svg", "pdf")
_METHOD_IDS = re.compile(rf'id="(method-\d+|{PUBLISHED})"')
_VARIABLES = {colour: f"var(--{name})" for name, (colour, _) in COLOURS.items()}
_DASH_ARRAYS = dict(zip(DASHES, ("none", "5 2.4", "6 2 1.6 2", "1.6 2"), strict=True))
_FONT = re.compile(r"(font: [^;\"]*?\d+px) [^;\"]+")


@dataclass(frozen=True)
class ReportFigure:
    """A figure inside the page, with its title and caption."""

    svg: Markup
    title: str = ""
    caption: str = ""
    files: tuple[str, ...] = ()
    method: str = ""  # the id of the method that it shows, if it shows one alone
    rows: tuple[tuple[str, ...], ...] = ()  # of a small table below it, the first its titles
    chart: str = ""  # the chart that the page draws in its place, of the methods that are shown


@dataclass(frozen=True)
class FigureInput:
    """What the figures of a benchmark are drawn from."""

    groups: Sequence[Group]
    runs: Sequence[Run] = ()
    published: Sequence[PublishedRow] = ()
    reporter: Reporter = SILENT


@dataclass(frozen=True)
class FigureWriter:
    """Writes the figures of a benchmark into the folder of the report; a prefix begins their names."""

    out: Path
    prefix: str = ""

    def write(
        self, key: str, figure: Figure, title: str = "", alt: str = "", caption: str = "", method: str = ""
    ) -> ReportFigure:
        """Write the files of a figure, and return it for the page."""
        pictures = render(figure, KINDS)
        files = {kind: f"figures/{self.prefix}{key}.{kind}" for kind in KINDS}
        for kind, content in pictures.items():
            write_atomically(self.out / files[kind], content)
        svg = inline_svg(pictures["svg"], self.prefix + key, alt)
        return ReportFigure(svg, title, caption, tuple(files.values()), method)

    def embed(self, key: str, figure: Figure, alt: str, method: str, files: tuple[str, ...]) -> ReportFigure:
        """Return the part of a figure that shows one method; the files of the whole are already written."""
        svg = inline_svg(render(figure, ["svg"])["svg"], self.prefix + key, alt)
        return ReportFigure(svg, files=files, method=method)


Draw = Callable[[FigureInput, FigureWriter], list[ReportFigure]]


@dataclass(frozen=True)
class FigureSection:
    """A section of the page that holds figures; `absent` is said where none can be drawn."""

    position: int  # among the sections of the page
    key: str
    link: str  # its short name in the navigation
    title: str
    lead: str
    absent: str
    draw: Draw
    own_progress: bool = False  # whether drawing takes long and reports its progress itself
    each: str = "Each method"  # what unfolds its figures where there are many
    study: str = ""  # the command, and what it is given, whose result it draws; the page names it if absent


def slug(text: str) -> str:
    """Return the text as a part of a file name or of an id."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def inline_svg(svg: bytes, key: str, alt: str) -> Markup:
    """Turn a figure's SVG file into an element of the page.

    Ids begin with the figure's key, for a page holds many figures. What was drawn for a method carries its
    id in `data-method`. Colours of the palette become the page's variables, which differ in the dark.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'id="image[0-9a-f]+"', "", text)  # equal pictures would share it, and nothing refers to it
    text = _METHOD_IDS.sub(r'data-method="\1"', text)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{key}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = text.replace("fill: #ffffff", "fill: none")
    text = _FONT.sub(r"\1 var(--font)", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    size = f' style="--width: {float(width.group(1)):.0f}px"' if width else ""
    described = f'<svg role="img" aria-label="{escape(alt)}"{size}'
    return Markup(text.replace("<svg", described, 1))  # noqa: S704 - drawn here, its texts escaped


def key_symbol(index: int) -> Markup:
    """Return a line as figures draw the method of this index; the page shows it beside the method's name."""
    look = line_look(index)
    colour, dash, points = look["colour"], look["dash"], look["marker"]
    return Markup(  # noqa: S704 - made of our numbers and colours alone
        f'<symbol id="key-{method_id(index)}" viewBox="0 0 26 12" style="stroke: {colour}; fill: {colour}">'
        f'<path d="M1 6H25" stroke-width="2" stroke-dasharray="{dash}"/>'
        f'<polygon points="{points}" stroke="none" transform="translate(13 6)"/></symbol>'
    )


def line_look(index: int) -> dict[str, str]:
    """Return colour, dashes and the outline of the mark of a method, around the origin, for SVG."""
    style = method_style(index)
    marker = MarkerStyle(style["marker"])
    (outline,) = marker.get_path().transformed(marker.get_transform()).to_polygons()
    points = " ".join(f"{8 * x:.1f},{-8 * y:.1f}" for x, y in np.asarray(outline))
    dash = _DASH_ARRAYS[style["linestyle"]]
    return {"colour": _VARIABLES[style["color"]], "dash": dash, "marker": points}


def picture_url(pixels: NDArray[np.uint8]) -> str:
    """Return pixels (H, W, 4) as the URL of a PNG that needs no file."""
    content = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
