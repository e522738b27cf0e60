"""The page: one HTML file that opens without a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairshot.evaluation.result import Environment as Machine
from fairshot.evaluation.result import Result
from fairshot.reporting.figures.classes import answers, confusion_pixels
from fairshot.reporting.figures.sections import SECTIONS
from fairshot.reporting.figures.style import COLOURS
from fairshot.reporting.figures.writer import key_symbol, picture_url, slug
from fairshot.reporting.groups import PARTS, Group, class_order
from fairshot.reporting.measures import BASE_AVG, BASE_INC, INC_AVG
from fairshot.reporting.runs import Run
from fairshot.reporting.tables import CONDITIONS, conditions, session_table

if TYPE_CHECKING:
    from fairshot.reporting.report import BenchmarkSection

MOST_NAMED = 4  # methods in the title; of more it says how many


def render_page(
    benchmarks: Sequence[BenchmarkSection], runs: Sequence[Run], command: str, further: Mapping[str, int]
) -> str:
    """Fill the template; `further` has the commands that report runs nearby, and how many runs they find."""
    environment = Environment(
        loader=PackageLoader("fairshot.reporting", "data"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "number": _number,
        "duration": _duration,
        "recipe": _recipe,
        "slug": slug,
        "class_order": class_order,
        "machine": _machine,
    }
    environment.globals |= {
        "PARTS": PARTS,
        "CONDITIONS": CONDITIONS,
        "SECTIONS": SECTIONS,
        "answers": answers,
        "balance": _balance,
        "conditions": conditions,
        "confusion_url": lambda group, t: picture_url(confusion_pixels(group, t)),
        "session_table": session_table,
    }
    return environment.get_template("report.html.j2").render(
        benchmarks=benchmarks,
        runs=runs,
        title=_title(benchmarks),
        keys=[key_symbol(index) for index in range(max((len(one.groups) for one in benchmarks), default=0))],
        command=command,
        further=further,
        version=metadata.version("fairshot"),
        style=style_sheet(),
        script=Markup(_data("report.js")),  # noqa: S704 - of the package
    )


def _title(benchmarks: Sequence[BenchmarkSection]) -> str:
    methods = dict.fromkeys(group.results[0].method for one in benchmarks for group in one.groups)
    names = dict.fromkeys(one.groups[0].benchmark for one in benchmarks)
    if not methods:
        return "No finished run yet"
    named = ", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    return f"{named} on {', '.join(names)}"


def _balance(group: Group) -> tuple[float, float, float] | None:
    """Return base and novel accuracy on average, and their ratio; None for the base session alone."""
    base, novel, ratio = (group.summary(measure.pick) for measure in (BASE_AVG, INC_AVG, BASE_INC))
    return (base.mean, novel.mean, ratio.mean) if base and novel and ratio else None


def style_sheet() -> Markup:
    """Return the style of our pages: colours, and how their parts look on paper, screens and phones."""
    return Markup(_palette() + _data("report.css"))  # noqa: S704 - of the package


def _palette() -> str:
    """Return the colours of the figures as variables, on paper and on a dark screen."""
    light, dark = (";".join(f"--{name}:{pair[i]}" for name, pair in COLOURS.items()) for i in (0, 1))
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
    )


def _data(name: str) -> str:
    return (files("fairshot.reporting") / "data" / name).read_text(encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "∞"


def _duration(result: Result) -> str:
    seconds = sum(result.seconds.values())
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _machine(environment: Machine) -> str:
    """Name the device and the cores beside it; of a processor the device tells the cores itself."""
    cores = f"{environment.cores} CPU core{'s' * (environment.cores > 1)}"
    return environment.device if " CPU, " in environment.device else f"{environment.device}, {cores}"


def _recipe(result: Result) -> str:
    return yaml.safe_dump(result.recipe, sort_keys=False, allow_unicode=True).strip()
