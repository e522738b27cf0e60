"""The page: one HTML file that opens without a network."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairshot.evaluation.result import Environment as Machine
from fairshot.evaluation.result import Result
from fairshot.methods import method_title
from fairshot.reporting.conditions import CONDITIONS, conditions, known_titles
from fairshot.reporting.figures.accuracy import FAR
from fairshot.reporting.figures.classes import answers, confusion_pixels
from fairshot.reporting.figures.sections import SECTIONS
from fairshot.reporting.figures.style import COLOURS, method_id, method_styles
from fairshot.reporting.figures.writer import key_symbol, line_look, picture_url, slug
from fairshot.reporting.groups import Group, means
from fairshot.reporting.measures import BASE, BASE_AVG, BASE_INC, CINC, INC, INC_AVG, OVERALL, PINC
from fairshot.reporting.names import PARTS
from fairshot.reporting.runs import Run
from fairshot.reporting.tables import session_table

if TYPE_CHECKING:
    from fairshot.reporting.report import BenchmarkSection

MOST_NAMED = 4  # methods in the title; of more it says how many


def render_page(
    benchmarks: Sequence[BenchmarkSection], runs: Sequence[Run], command: str, further: Mapping[str, int]
) -> str:
    """Fill the template; `further` has the commands that report runs nearby, and how many runs they find."""
    environment = page_environment("fairshot.reporting")
    environment.filters |= {
        "number": _number,
        "duration": _duration,
        "recipe": _recipe,
        "slug": slug,
        "machine": _machine,
        "method_title": method_title,
        "conditions": conditions,
    }
    environment.globals |= {
        "PARTS": PARTS,
        "CONDITIONS": CONDITIONS,
        "SECTIONS": SECTIONS,
        "answers": answers,
        "balance": _balance,
        "known_titles": known_titles,
        "curves": _curves,
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
        charts=Markup(_data("charts.js")),  # noqa: S704 - of the package
        script=Markup(_data("report.js")),  # noqa: S704 - of the package
    )


def _title(benchmarks: Sequence[BenchmarkSection]) -> str:
    titles = dict.fromkeys(
        method_title(group.results[0].method) for one in benchmarks for group in one.groups
    )
    methods = dict.fromkeys(_family(title, titles) for title in titles)
    names = dict.fromkeys(one.groups[0].benchmark_title for one in benchmarks)
    if not methods:
        return "No finished run yet"
    named = ", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    return f"{named} on {', '.join(names)}"


def _family(title: str, titles: Collection[str]) -> str:
    """Return what variants of a method have in common if several are there: SSS of SSS with mixtures."""
    family = title.partition(" with ")[0]
    return family if sum(other.partition(" with ")[0] == family for other in titles) > 1 else title


def _balance(group: Group) -> tuple[float, float, float] | None:
    """Return base and novel accuracy on average, and their ratio; None for the base session alone."""
    base, novel, ratio = (group.summary(measure.pick) for measure in (BASE_AVG, INC_AVG, BASE_INC))
    return (base.mean, novel.mean, ratio.mean) if base and novel and ratio else None


def _curves(benchmark: BenchmarkSection) -> Markup:
    """Return what the charts are drawn from, and the names of classes, as JSON that no text can end."""
    measures = {"overall": OVERALL, "base": BASE, "inc": INC, "cinc": CINC, "pinc": PINC}
    methods = []
    for index, (group, style) in enumerate(
        zip(benchmark.groups, method_styles(benchmark.groups), strict=True)
    ):
        values = {}
        for key, measure in measures.items():
            over_sessions = [group.session(t, measure.pick) for t in range(group.session_count)]
            values[key] = [value and round(value, 4) for value in means(over_sessions)]
        drawn = {"width": round(style["linewidth"], 1), **line_look(index)}
        methods.append({"id": method_id(index), "label": group.label, **drawn, **values})
    rows = {row.method: row for row in reversed(benchmark.published)}.values()  # the first row of each
    content = {
        "sessions": benchmark.groups[0].session_count,
        "far": FAR,
        "methods": methods,
        "published": [{"label": row.label, "overall": row.overall} for row in rows],
        "classes": {
            method_id(index): group.results[0].class_names for index, group in enumerate(benchmark.groups)
        },
    }
    return Markup(json.dumps(content).replace("<", "\\u003c"))  # noqa: S704 - it cannot end the script


def page_environment(package: str) -> Environment:
    """Return what fills the templates of a package, which lie in its folder `data`."""
    return Environment(
        loader=PackageLoader(package, "data"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


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


def _number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def _duration(result: Result) -> str:
    seconds = sum(result.own_seconds.values())
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _machine(environment: Machine) -> str:
    """Name the device and the cores beside it; of a processor the device tells the cores itself."""
    cores = f"{environment.cores} CPU core{'s' * (environment.cores > 1)}"
    return environment.device if " CPU, " in environment.device else f"{environment.device}, {cores}"


def _recipe(result: Result) -> str:
    return yaml.safe_dump(result.recipe, sort_keys=False, allow_unicode=True).strip()
