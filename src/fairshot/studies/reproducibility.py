"""Reproducibility: whether our runs of a method reach what was published for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fairshot.documents import BadYAML, parse_yaml, read_yaml_text
from fairshot.errors import FileRefused
from fairshot.evaluation.result import Result
from fairshot.evaluation.starting_weights import StartingWeights, start_of, starting_weights
from fairshot.studies.published import NOT_STATED, PublishedRow, published, same_name

OVERALL_AVERAGE, HARMONIC = "overall", "harmonic mean"  # the figures that are judged
NOT_COMPARABLE = "not comparable"
REASONS = "verdicts.yaml"  # beside the runs, written by hand: method, or name on the page -> why not reached
CLOSE = 1.0  # points, of every figure


@dataclass(frozen=True)
class Verdict:
    """Our runs of one method, beside its own published row and the row of the paper of SSS."""

    average: float  # our overall accuracy, averaged over sessions and seeds
    novel: float | None  # our accuracy of novel classes, averaged over sessions and seeds
    harmonic: float | None  # our harmonic mean, averaged over sessions and seeds
    own: PublishedRow | None  # of the method's own publication
    rerun: PublishedRow | None  # of the paper of SSS
    images: Sequence[int]  # that test the classes of each session
    backbone: str  # of our runs; empty if it is not known
    weights: StartingWeights | None  # that it began with
    untrained: bool  # whether nothing was trained
    transductive: bool  # whether unlabelled test images moved our classifiers

    @property
    def row(self) -> PublishedRow | None:
        """The published row by which our runs are judged."""
        return self.own or self.rerun

    @property
    def obstacle(self) -> str:
        """Why our runs cannot be judged by the published row; empty where they can."""
        if self.row is None:
            return ""
        if not begins_alike(self.weights, self.row):
            return f"our backbone {start_of(self.weights)}; that of the published row {self.row.start}"
        if self.transductive and not self.row.transductive:
            return "we used unlabelled test images, the published row did not"
        return ""

    @property
    def differences(self) -> list[str]:
        """In what our runs are unlike the published row, and are judged by it all the same."""
        if self.row is None:
            return []
        ours, theirs = self.backbone.partition(".")[0], self.row.backbone.partition(" (")[0]
        known = bool(ours) and theirs != NOT_STATED
        unlike = {
            f"{ours} in place of {self.row.backbone}": known and not same_name(ours, theirs),
            "nothing trained": self.untrained,
            "no unlabelled test images": self.row.transductive and not self.transductive,
        }
        return [text for text, holds in unlike.items() if holds]

    @property
    def with_novel(self) -> PublishedRow | None:
        """The first published row that has the accuracy of novel classes."""
        return next((row for row in (self.own, self.rerun) if row is not None and row.inc is not None), None)

    @property
    def published_novel(self) -> float | None:
        """The published accuracy of novel classes."""
        return self.with_novel.inc_average if self.with_novel else None

    @property
    def published_harmonic(self) -> float | None:
        """The harmonic mean that follows from what was published."""
        return self.with_novel.harmonic_average(self.images) if self.with_novel else None

    @property
    def gaps(self) -> dict[str, float]:
        """Our figures less the published ones, as they read with two digits, where both are known."""
        pairs = {
            OVERALL_AVERAGE: (self.average, self.row.average if self.row else None),
            HARMONIC: (self.harmonic, self.published_harmonic),
        }
        return {
            name: round(round(ours, 2) - round(theirs, 2), 2)
            for name, (ours, theirs) in pairs.items()
            if ours is not None and theirs is not None
        }

    @property
    def text(self) -> str:
        """The verdict in a few words."""
        if not self.gaps:
            return "no published figures known to us"
        if self.obstacle:
            return NOT_COMPARABLE
        lowest = min(self.gaps.values())
        if lowest >= 0:
            return "reached"
        return "within 1 point" if lowest >= -CLOSE else "not reached"

    @property
    def missed(self) -> str:
        """Which figures are missed, and by how much."""
        return ", ".join(f"{name} by {-gap:.2f}" for name, gap in self.gaps.items() if gap < 0)


def judge(results: Sequence[Result]) -> Verdict:
    """Compare runs that differ only in their seed with what was published for their method.

    Own pictures and shuffled classes have no published rows, whatever they are called.
    """
    first, metrics = results[0], [result.metrics for result in results]
    rows: list[PublishedRow] = []
    if not first.of_own_pictures and first.class_order is None:
        rows = published().of(first.method, first.benchmark, len(first.sessions))
    tested = first.confusion_arrays[-1].sum(1)
    return Verdict(
        average=fmean(each.overall_avg for each in metrics),
        novel=_mean(each.inc_avg for each in metrics),
        harmonic=_mean(each.harmonic_mean_avg for each in metrics),
        own=next((row for row in rows if row.own is not None), None),
        rerun=next((row for row in rows if row.source != row.own), None),
        images=[int(tested[classes].sum()) for classes in first.sessions],
        backbone=str(first.section("model").get("backbone") or ""),
        weights=starting_weights(first),
        untrained=first.untrained,
        transductive=any(result.transductive for result in results),
    )


def begins_alike(ours: StartingWeights | None, row: PublishedRow) -> bool:
    """Whether our backbone had seen what that of a published row had before the base session."""
    return (ours.trained_on if ours else None) == row.pretrained_on


def _mean(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return fmean(known) if known else None


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
