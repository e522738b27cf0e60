"""Reproducibility: whether our runs of a method reach what was published for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fairshot.documents import BadYAML, parse_yaml, read_yaml_text
from fairshot.errors import FileRefused
from fairshot.evaluation.result import Result
from fairshot.studies.published import PublishedRow, published

REASONS = "verdicts.yaml"  # beside the runs, written by hand: method, or name on the page -> why not reached
CLOSE = 1.0  # points of average overall accuracy


@dataclass(frozen=True)
class Verdict:
    """Our runs of one method, beside its own published row and the row of the paper of SSS."""

    average: float  # our overall accuracy, averaged over sessions and seeds
    novel: float | None  # our accuracy of novel classes, averaged over sessions and seeds
    own: PublishedRow | None  # of the method's own publication
    rerun: PublishedRow | None  # of the paper of SSS

    @property
    def gap(self) -> float | None:
        """Our average less the published one, as it reads with two digits."""
        row = self.own or self.rerun
        return None if row is None else round(round(self.average, 2) - round(row.average, 2), 2)

    @property
    def published_novel(self) -> float | None:
        """The published accuracy of novel classes, from the first row that has it."""
        rows = [row for row in (self.own, self.rerun) if row is not None]
        return next((row.inc_average for row in rows if row.inc_average is not None), None)

    @property
    def text(self) -> str:
        """The verdict in words."""
        if self.gap is None:
            return "no published figures known to us"
        if self.gap >= 0:
            return "reached"
        return "within 1 point" if self.gap >= -CLOSE else "not reached"


def judge(results: Sequence[Result]) -> Verdict:
    """Compare runs that differ only in their seed with what was published for their method.

    Own pictures and shuffled classes have no published rows, whatever they are called.
    """
    first, metrics = results[0], [result.metrics for result in results]
    rows: list[PublishedRow] = []
    if not first.of_own_pictures and first.class_order is None:
        rows = published().of(first.method, first.benchmark, len(first.sessions))
    novel = [each.inc_avg for each in metrics if each.inc_avg is not None]
    return Verdict(
        average=fmean(each.overall_avg for each in metrics),
        novel=fmean(novel) if novel else None,
        own=next((row for row in rows if row.own is not None), None),
        rerun=next((row for row in rows if row.source != row.own), None),
    )


def read_reasons(folder: Path, names: set[str]) -> dict[str, str]:
    """Read why some of these methods do not reach what was published; nothing where no file says so."""
    path = folder / REASONS
    if not path.is_file():
        return {}
    try:
        reasons = parse_yaml(read_yaml_text(path)) or {}
    except BadYAML as problem:
        raise FileRefused(path, f"it is not YAML that can be read: {problem}") from None
    if not isinstance(reasons, dict) or not all(isinstance(text, str) for text in reasons.values()):
        raise FileRefused(path, "expected a line for each method, `method: why it is not reached`")
    if unknown := sorted(set(map(str, reasons)) - names):
        raise FileRefused(
            path, f"no run here is of {', '.join(unknown)}; there are {', '.join(sorted(names))}"
        )
    return reasons
