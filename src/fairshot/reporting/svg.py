"""Figures inside a page, and their keys: SVG that follows the page's colours, of methods one can hide."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from markupsafe import Markup, escape
from matplotlib.markers import MarkerStyle
from numpy.typing import NDArray
from PIL import Image

from fairshot.reporting.style import COLOURS, DASHES, PUBLISHED, method_name, method_style

_NAMED = re.compile(rf'id="(method-\d+|{PUBLISHED})"')
_VARIABLES = {colour: f"var(--{name})" for name, (colour, _) in COLOURS.items()}
_DASH_ARRAYS = dict(zip(DASHES, ("none", "5 2.4", "6 2 1.6 2", "1.6 2"), strict=True))
_FONT = re.compile(r"(font: [^;\"]*?\d+px) [^;\"]+")


def inline_svg(svg: bytes, key: str, alt: str) -> Markup:
    """Turn a figure's SVG file into an element of the page.

    Ids get the figure's key in front, for a page holds many figures. What was drawn for a method carries its
    name in `data-method`. Colours of the palette become the page's variables, which differ in the dark.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'id="image[0-9a-f]+"', "", text)  # equal pictures would share it, and nothing refers to it
    text = _NAMED.sub(r'data-method="\1"', text)
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
    return Markup(text.replace("<svg", described, 1))


def key_symbol(place: int) -> Markup:
    """Return a line as figures draw the method at this place, for a page to show wherever it names it."""
    style = method_style(place)
    marker = MarkerStyle(style["marker"])
    (outline,) = marker.get_path().transformed(marker.get_transform()).to_polygons()
    points = " ".join(f"{13 + 8 * x:.1f},{6 - 8 * y:.1f}" for x, y in np.asarray(outline))
    colour, dash = _VARIABLES[style["color"]], _DASH_ARRAYS[style["linestyle"]]
    return Markup(
        f'<symbol id="key-{method_name(place)}" viewBox="0 0 26 12" style="stroke: {colour}; fill: {colour}">'
        f'<path d="M1 6H25" stroke-width="2" stroke-dasharray="{dash}"/>'
        f'<polygon points="{points}" stroke="none"/></symbol>'
    )


def picture_address(pixels: NDArray[np.uint8]) -> str:
    """Pixels (H, W, 4) as the address of a PNG that needs no file."""
    content = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
