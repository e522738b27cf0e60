"""The page: one HTML file that opens without a network, from what the chapters hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.resources import files

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairshot.evaluation.result import Environment as Machine
from fairshot.evaluation.result import Result
from fairshot.reporting.benchmark_section import BenchmarkSection
from fairshot.reporting.conditions import TITLES
from fairshot.reporting.figures import slug
from fairshot.reporting.groups import Spread, total_seconds
from fairshot.reporting.orders import class_order
from fairshot.reporting.runs import Run
from fairshot.reporting.settings import PARTS
from fairshot.reporting.style import COLOURS
from fairshot.reporting.svg import key_symbol

MOST_NAMED = 4  # methods in the title; of more it says how many


def render_page(
    chapters: Sequence[BenchmarkSection], runs: Sequence[Run], command: str, further: Mapping[str, int]
) -> str:
    """Fill the template; `further` has the commands that report runs nearby, and how many runs they find."""
    environment = Environment(
        loader=PackageLoader("fairshot.reporting", "data"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"number": _number, "duration": _duration, "recipe": _recipe, "ratio": _ratio}
    environment.filters |= {"slug": slug, "class_order": class_order, "machine": _machine}
    environment.globals |= {"PARTS": PARTS, "CONDITIONS": TITLES}
    return environment.get_template("report.html.j2").render(
        chapters=chapters,
        runs=runs,
        title=_title(chapters),
        keys=[key_symbol(place) for place in range(max((len(one.groups) for one in chapters), default=0))],
        command=command,
        further=further,
        version=metadata.version("fairshot"),
        style=Markup(_palette() + _data("report.css")),
        script=Markup(_data("report.js")),
    )


def _title(chapters: Sequence[BenchmarkSection]) -> str:
    methods = dict.fromkeys(group.results[0].method for chapter in chapters for group in chapter.groups)
    benchmarks = dict.fromkeys(chapter.groups[0].benchmark for chapter in chapters)
    if not methods:
        return "No finished run yet"
    named = ", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    return f"{named} on {', '.join(benchmarks)}"


def _palette() -> str:
    """The colours of the figures as variables, on paper and on a dark screen."""
    light, dark = (";".join(f"--{name}:{pair[i]}" for name, pair in COLOURS.items()) for i in (0, 1))
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
    )


def _data(name: str) -> str:
    return (files("fairshot.reporting") / "data" / name).read_text(encoding="utf-8")


def _number(value: Spread | None) -> str:
    if value is None:
        return "–"
    return _ratio(value.mean)


def _ratio(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "∞"


def _duration(result: Result) -> str:
    seconds = total_seconds(result)
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _machine(environment: Machine) -> str:
    """Name the device and the cores beside it; of a processor the device tells the cores itself."""
    cores = f"{environment.cores} CPU core{'s' * (environment.cores > 1)}"
    return environment.device if " CPU, " in environment.device else f"{environment.device}, {cores}"


def _recipe(result: Result) -> str:
    return yaml.safe_dump(result.recipe, sort_keys=False, allow_unicode=True).strip()
