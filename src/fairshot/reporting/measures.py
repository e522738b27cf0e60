"""What a report shows of a run: each measure with its title, its one-line meaning and what counts as good."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fairshot.evaluation.metrics import Metrics, SessionMetrics

Goal = Literal["high", "low", "one"]


@dataclass(frozen=True)
class SessionMeasure:
    """A number of each session."""

    title: str
    meaning: str
    pick: Callable[[SessionMetrics], float | None]
    goal: Goal = "high"


@dataclass(frozen=True)
class SummaryMeasure:
    """A number of a whole run; `unit` is empty for ratios."""

    title: str
    meaning: str
    pick: Callable[[Metrics], float | None]
    goal: Goal = "high"
    unit: str = "%"


OVERALL = SessionMeasure(
    "Overall",
    "accuracy on the test images of all classes seen so far",
    lambda s: s.overall,
)
BASE = SessionMeasure(
    "Base",
    "accuracy on the test images of base classes, those of session 0",
    lambda s: s.base,
)
INC = SessionMeasure(
    "Inc",
    "accuracy on the test images of incremental (novel) classes, learnt from a few images each",
    lambda s: s.inc,
)
CINC = SessionMeasure(
    "CInc", "accuracy on the incremental classes that this session introduced (current)", lambda s: s.cinc
)
PINC = SessionMeasure(
    "PInc", "accuracy on the incremental classes of earlier sessions (past)", lambda s: s.pinc
)
HARMONIC = SessionMeasure(
    "Harmonic", "harmonic mean of Base and Inc: high only if both are", lambda s: s.harmonic_mean
)
SESSION_MEASURES = (OVERALL, BASE, INC, CINC, PINC, HARMONIC)

OVERALL_AVG = SummaryMeasure(
    "Overall avg", "overall accuracy averaged over all sessions", lambda m: m.overall_avg
)
BASE_AVG = SummaryMeasure(
    "Base avg", "base accuracy averaged over sessions 1 and later", lambda m: m.base_avg
)
INC_AVG = SummaryMeasure(
    "Inc avg", "incremental accuracy averaged over sessions 1 and later", lambda m: m.inc_avg
)
BASE_INC = SummaryMeasure(
    "Base/Inc",
    "Base avg over Inc avg; 1 is balance, more favours base classes",
    lambda m: m.base_inc,
    "one",
    "",
)
CINC_PINC = SummaryMeasure(
    "CInc/PInc",
    "current over past incremental accuracy; 1 is balance, more forgets past classes",
    lambda m: m.cinc_pinc,
    "one",
    "",
)
BICP = SummaryMeasure(
    "BICP", "mean of Base/Inc and CInc/PInc; the closer to 1, the fairer", lambda m: m.bicp, "one", ""
)
HARMONIC_AVG = SummaryMeasure(
    "Harmonic avg", "harmonic mean of Base and Inc averaged over sessions", lambda m: m.harmonic_mean_avg
)
LAST = SummaryMeasure("Last", "overall accuracy after the last session", lambda m: m.last)
DROP = SummaryMeasure(
    "PD", "overall accuracy lost between the first and the last session", lambda m: m.pd, "low"
)
INC_WEIGHTED = SummaryMeasure(
    "Inc weighted",
    "Inc avg with test images counted alike; differs from it where sessions have unequal test sets",
    lambda m: m.inc_weighted_avg,
)
MISROUTE_AVG = SummaryMeasure(
    "Misroute avg",
    "share of incremental test images answered with a base class, averaged over sessions: a biased decision",
    lambda m: _average([session.misroute for session in m.sessions]),
    "low",
)
DIAGNOSES = (LAST, DROP, INC_WEIGHTED, MISROUTE_AVG)
SUMMARY_MEASURES = (OVERALL_AVG, BASE_AVG, INC_AVG, BASE_INC, CINC_PINC, BICP, HARMONIC_AVG)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def best(values: Sequence[float | None], goal: Goal, digits: int = 2) -> set[int]:
    """Find the best values, as they read with so many digits; none where there is nothing to compare."""
    finite = {i: round(v, digits) for i, v in enumerate(values) if v is not None and math.isfinite(v)}
    if sum(value is not None for value in values) < 2 or not finite:
        return set()
    costs = {i: _cost(value, goal) for i, value in finite.items()}
    return {i for i, cost in costs.items() if math.isclose(cost, min(costs.values()), abs_tol=1e-9)}


def _cost(value: float, goal: Goal) -> float:
    if goal == "one":
        return abs(value - 1)
    return value if goal == "low" else -value
