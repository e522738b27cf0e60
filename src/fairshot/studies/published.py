"""Published rows, shipped as data with their source, to stand beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate

import numpy as np
import yaml
from pydantic import Field

from fairshot.documents import Document

NOT_STATED = "not stated"  # in place of what a source does not say


class PublishedRow(Document, frozen=True):
    """A method on a benchmark: `overall` from session 0, `inc` from session 1, `pinc` where printed."""

    method: str
    benchmark: str
    source: str
    backbone: str
    memory: str | None
    transductive: bool
    overall: tuple[float, ...]
    pretrained_on: str | None = None  # None: trained from scratch
    inc: tuple[float, ...] | None = None
    pinc: dict[int, float] = Field(default_factory=dict)
    overall_avg: float | None = None
    base_inc: float | None = None
    base_inc_derived: float | None = None  # what overall and inc imply, where the printed ratio disagrees
    bicp: float | None = None
    also: str | None = None  # where else the same figures stand: in the system's own paper or log

    @property
    def label(self) -> str:
        """The row beside ours, whose names may differ from theirs in capitals alone."""
        return f"{self.method}, published"

    @property
    def network(self) -> str:
        """The backbone, and what it began with."""
        return f"{self.backbone} ({self.pretrained_on} weights)" if self.pretrained_on else self.backbone

    @property
    def start(self) -> str:
        """What the backbone began with, in words."""
        return (
            f"began with {self.pretrained_on} weights" if self.pretrained_on else "was trained from scratch"
        )

    @property
    def own(self) -> str | None:
        """Where the system's own authors published these figures, if they did."""
        return self.source if self.source.startswith("own ") else self.also

    @property
    def average(self) -> float:
        """Overall accuracy averaged over the sessions: as printed, or from the printed sessions."""
        return self.overall_avg if self.overall_avg is not None else float(np.mean(self.overall))

    @property
    def inc_average(self) -> float | None:
        """Accuracy of novel classes averaged over the sessions, where it was printed."""
        return None if self.inc is None else float(np.mean(self.inc))

    def harmonic_average(self, images: Sequence[int]) -> float | None:
        """Harmonic mean averaged over the sessions, which was not printed, as it follows from what was.

        `images` are the test images of the classes of each session.
        """
        if self.inc is None:
            return None
        base = implied_base(self.overall, self.inc, images)
        return float(np.mean(harmonic_means(base, self.inc)))


class ComponentsRow(Document, frozen=True):
    """A line of table 2: the parts of SSS switched on."""

    parts: tuple[str, ...]
    inc: tuple[float, ...]
    base_inc: float


class FeaturesRow(Document, frozen=True):
    """A line of tables 3 and 11: one decision rule over the two kinds of features."""

    decision: str
    printed_as: str
    overall: tuple[float, ...]
    inc: tuple[float, ...]
    overall_avg: float
    inc_avg: float


class Published(Document, frozen=True):
    """All that was published."""

    rows: tuple[PublishedRow, ...]
    components: tuple[ComponentsRow, ...]
    features: tuple[FeaturesRow, ...]

    def on(self, benchmark: str, sessions: int) -> list[PublishedRow]:
        """Rows of a benchmark with as many sessions."""
        return [row for row in self.rows if row.benchmark == benchmark and len(row.overall) == sessions]

    def of(self, method: str, benchmark: str, sessions: int) -> list[PublishedRow]:
        """Rows of one of our methods, however its name is written; of variants, the first named."""
        rows = self.on(benchmark, sessions)
        named = [row for row in rows if same_name(row.method, method)]
        return named or [row for row in rows if same_name(row.method.partition("(")[0], method)]


def implied_base(overall: Sequence[float], inc: Sequence[float], images: Sequence[int]) -> list[float]:
    """Accuracy of base classes from session 1 on: what those of all and of novel classes leave.

    `overall` begins with session 0, `inc` with session 1; `images` are those of the classes of each session.
    Exact where novel sessions have as many images each: `inc` weighs sessions, not images. On CUB-200, where
    they nearly have, harmonic means come out right to 0.02 points.
    """
    base, seen = images[0], list(accumulate(images))[1:]
    sessions = zip(overall[1:], inc, seen, strict=True)
    return [(together * all_ - novel * (all_ - base)) / base for together, novel, all_ in sessions]


def harmonic_means(base: Sequence[float], inc: Sequence[float]) -> list[float]:
    """Harmonic mean of base and novel accuracy in each session."""
    return [2 * b * n / (b + n) for b, n in zip(base, inc, strict=True)]


@cache
def published() -> Published:
    """Read the rows that ship with the package."""
    text = (files("fairshot.studies") / "data" / "published.yaml").read_text(encoding="utf-8")
    return Published.model_validate(yaml.safe_load(text))


def same_name(one: str, other: str) -> bool:
    """Compare names as people write them: resnet18 is ResNet-18."""
    return _letters(one) == _letters(other)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
