"""The trade-off of the gates: overall against novel accuracy, for each rule and each of its strengths.

It works on the features of a finished embedder. Every parameter of a rule is chosen with `choose` on base
classes that play novel ones (`evaluation.pseudo`), never on the test images it is then judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fairshot.evaluation.metrics import Metrics
from fairshot.progress import SILENT, Reporter
from fairshot.studies.cached_stream import CachedStream
from fairshot.studies.gates import Gate, common_gates, own_gates


@dataclass(frozen=True)
class Point:
    """What a gate gives, averaged over the streams it was taken through."""

    gate: Gate
    overall_avg: float
    inc_avg: float
    base_avg: float
    harmonic_mean_avg: float

    @classmethod
    def average(cls, gate: Gate, found: Sequence[Metrics]) -> Point:
        """Average over streams."""
        names = ("overall_avg", "inc_avg", "base_avg", "harmonic_mean_avg")
        return cls(gate, *(fmean(getattr(one, name) for one in found) for name in names))

    @property
    def both(self) -> float:
        """The mean of overall accuracy and harmonic mean: what a choice maximises."""
        return (self.overall_avg + self.harmonic_mean_avg) / 2


def tradeoff(
    courses: Sequence[CachedStream], gates: Sequence[Gate], reporter: Reporter = SILENT, what: str = "gates"
) -> list[Point]:
    """Take every gate through every stream; the streams are over one gallery."""
    points: dict[Gate, Point] = {}
    with reporter.track(what, len(gates)) as advance:
        for sighting in courses[0].gallery.sightings(gate.space for gate in gates):
            mine = [gate for gate in gates if gate.space == sighting.space]
            found = zip(*(course.through(sighting, mine) for course in courses), strict=True)
            points |= {gate: Point.average(gate, each) for gate, each in zip(mine, found, strict=True)}
            advance(len(mine))
    return [points[gate] for gate in gates]


def search(courses: Sequence[CachedStream], reporter: Reporter = SILENT) -> list[Point]:
    """Try the gates: first those common to all classes, then own covariances near the best whitening."""
    points = tradeoff(courses, common_gates(), reporter)
    whitened = max((point for point in points if point.gate.space is not None), key=lambda point: point.both)
    assert whitened.gate.space is not None
    return points + tradeoff(courses, own_gates(whitened.gate.space), reporter, "gates, own covariances")


def choose(points: Iterable[Point]) -> dict[str, Point]:
    """Choose the best point of each curve by the mean of overall accuracy and harmonic mean."""
    best: dict[str, Point] = {}
    for point in points:
        family = point.gate.family
        if family not in best or point.both > best[family].both:
            best[family] = point
    return best
