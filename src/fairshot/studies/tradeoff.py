"""The trade-off of the gates: overall against novel accuracy, for each rule and each of its strengths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from fairshot import markdown
from fairshot.documents import Document, read_model, write_json
from fairshot.evaluation.metrics import Metrics
from fairshot.evaluation.run_folder import (
    MIRROR_TRADEOFF,
    MIRROR_TRADEOFF_PAGE,
    TRADEOFF,
    TRADEOFF_PAGE,
)
from fairshot.files import write_atomically
from fairshot.methods.sss import SSS
from fairshot.studies.gates import Gate, Space

METRICS = ("overall_avg", "base_avg", "inc_avg", "harmonic_mean_avg", "both")
HEAD = tuple(name.replace("_", " ") for name in METRICS)  # of their columns


class CurvePoint(Document):
    """What a rule reaches with one setting: averages over sessions, streams and splits, in percent."""

    rule: str
    setting: float  # the parameter that moves along the curve of the rule
    overall_avg: float
    base_avg: float
    inc_avg: float
    harmonic_mean_avg: float
    both: float  # mean of overall accuracy and harmonic mean: what a choice maximises
    method: dict[str, Any]  # the settings of SSS that are this gate
    tuned: bool = False  # whether it was chosen on pseudo-novel classes, without these test images
    of_run: bool = False  # whether it is Resistance as the run has it

    @classmethod
    def average(cls, gate: Gate, found: Sequence[Metrics | CurvePoint]) -> CurvePoint:
        """Average what a gate gives over streams, or over splits."""
        means = {name: fmean(getattr(one, name) for one in found) for name in METRICS}
        return cls(rule=gate.family, setting=gate.position, method=gate.settings(), **means)

    @property
    def gate(self) -> Gate:
        """The gate with these settings."""
        return Gate.of(self.method)

    @property
    def values(self) -> list[str]:
        """The metrics with two digits."""
        return [f"{getattr(self, name):.2f}" for name in METRICS]

    def __str__(self) -> str:
        settings = "  ".join(f"{key}={value}" for key, value in self.method.items())
        values = "  ".join(f"{name} {value}" for name, value in zip(METRICS, self.values, strict=True))
        return f"{self.rule}: {settings}: {values}"


class RuleCurve(Document):
    """A rule that favours novel classes, over its settings."""

    name: str
    points: list[CurvePoint]


class TradeOff(Document):
    """The rules on the sessions of a run, and what was chosen of each on pseudo-novel classes."""

    command: str = ""
    method: str = SSS.name  # whose features the gates decide on
    mirror: bool = False  # whether features are averaged with those of mirror images
    rules: list[RuleCurve]
    chosen_on_pseudo_novel: list[CurvePoint] = Field(default_factory=list)

    @property
    def points(self) -> list[CurvePoint]:
        """All points on the sessions of the run."""
        return [point for rule in self.rules for point in rule.points]

    @property
    def chosen(self) -> dict[str, CurvePoint]:
        """What each rule's chosen point gave on pseudo-novel classes, by the name of the rule."""
        return {point.rule: point for point in self.chosen_on_pseudo_novel}

    @property
    def best(self) -> CurvePoint:
        """The best of the chosen points, on pseudo-novel classes."""
        return max(self.chosen_on_pseudo_novel, key=lambda point: point.both)

    @property
    def chosen_on_run(self) -> CurvePoint | None:
        """What the best of the chosen points gives on the sessions of the run."""
        rule = self.best.rule if self.chosen_on_pseudo_novel else None
        return next((point for point in self.points if point.tuned and point.rule == rule), None)

    @property
    def page_name(self) -> str:
        """The name of its page in the folder of a run."""
        return MIRROR_TRADEOFF_PAGE if self.mirror else TRADEOFF_PAGE

    def write(self, run: Path) -> None:
        """Write it and its page into the folder of a run; one with mirror images leaves one without alone."""
        name = MIRROR_TRADEOFF if self.mirror else TRADEOFF
        write_json(run / name, json.dumps(self.model_dump()))
        write_atomically(run / self.page_name, self.page().encode())

    @classmethod
    def read(cls, run: Path, mirror: bool = False) -> TradeOff:
        """Read what was written into the folder of a run, without or with mirror images."""
        return read_model(run / (MIRROR_TRADEOFF if mirror else TRADEOFF), cls, "a trade-off")

    def page(self) -> str:
        """Return the chosen points and all points as tables in Markdown."""
        rows = []
        for point in (point for point in self.points if point.tuned):
            values = [point.method.get(each.name) for each in fields(Space)]
            space = ["-" if value is None else f"{value:g}" for value in values]
            before = self.chosen[point.rule]
            pseudo = [f"{value:.2f}" for value in (before.overall_avg, before.harmonic_mean_avg)]
            rows.append((point.rule, *space, f"{point.setting:g}", *pseudo, *point.values))
        head = ("rule", "power", "shrinkage", "covariance share", "strength", "pseudo overall")
        return "\n\n".join(
            [
                f"`{self.command}`",
                "Each rule as chosen on pseudo-novel classes: what it gave there, and on the test images.",
                markdown.table((*head, "pseudo harmonic", *HEAD), rows),
                "All strengths of these rules, on the test images:",
                markdown.table(
                    ("rule", "strength", *HEAD),
                    [(point.rule, f"{point.setting:g}", *point.values) for point in self.points],
                )
                + "\n",
            ]
        )
