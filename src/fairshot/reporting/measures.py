"""What a report shows of a run: each measure with its title, its one-line meaning and what counts as good."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fairshot.evaluation.metrics import Metrics, SessionMetrics

Goal = Literal["high", "low", "one", "none"]  # none: no value is best


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


def _ratio(title: str, meaning: str, pick: Callable[[Metrics], float | None]) -> SummaryMeasure:
    return SummaryMeasure(title, meaning, pick, "one", "")


def _misroute_avg(metrics: Metrics) -> float | None:
    known = [session.misroute for session in metrics.sessions if session.misroute is not None]
    return sum(known) / len(known) if known else None


SESSION_MEASURES = OVERALL, BASE, INC, CINC, PINC, HARMONIC = (
    SessionMeasure("Overall", "accuracy on the test images of all classes seen so far", lambda s: s.overall),
    SessionMeasure(
        "Base", "accuracy on the test images of base classes, those of session 0", lambda s: s.base
    ),
    SessionMeasure(
        "Inc",
        "accuracy on the test images of incremental (novel) classes, learnt from a few images each",
        lambda s: s.inc,
    ),
    SessionMeasure(
        "CInc", "accuracy on the incremental classes that this session introduced (current)", lambda s: s.cinc
    ),
    SessionMeasure(
        "PInc", "accuracy on the incremental classes of earlier sessions (past)", lambda s: s.pinc
    ),
    SessionMeasure(
        "Harmonic", "harmonic mean of Base and Inc: high only if both are", lambda s: s.harmonic_mean
    ),
)
SUMMARY_MEASURES = OVERALL_AVG, BASE_AVG, INC_AVG, BASE_INC, CINC_PINC, BICP, HARMONIC_AVG = (
    SummaryMeasure("Overall avg", "overall accuracy averaged over all sessions", lambda m: m.overall_avg),
    SummaryMeasure("Base avg", "base accuracy averaged over sessions 1 and later", lambda m: m.base_avg),
    SummaryMeasure("Inc avg", "incremental accuracy averaged over sessions 1 and later", lambda m: m.inc_avg),
    _ratio(
        "Base/Inc", "Base avg over Inc avg; 1 is balance, more favours base classes", lambda m: m.base_inc
    ),
    _ratio(
        "CInc/PInc",
        "current over past incremental accuracy; 1 is balance, more forgets past classes",
        lambda m: m.cinc_pinc,
    ),
    _ratio("BICP", "mean of Base/Inc and CInc/PInc; the closer to 1, the fairer", lambda m: m.bicp),
    SummaryMeasure(
        "Harmonic avg", "harmonic mean of Base and Inc averaged over sessions", lambda m: m.harmonic_mean_avg
    ),
)
DIAGNOSES = LAST, DROP, INC_WEIGHTED, MISROUTE_AVG = (
    SummaryMeasure("Last", "overall accuracy after the last session", lambda m: m.last),
    SummaryMeasure(
        "PD", "overall accuracy lost between the first and the last session", lambda m: m.pd, "low"
    ),
    SummaryMeasure(
        "Inc weighted",
        "Inc avg with test images counted alike; differs from it where sessions have unequal test sets",
        lambda m: m.inc_weighted_avg,
    ),
    SummaryMeasure(
        "Misroute avg",
        "share of incremental test images answered with a base class, averaged over sessions: a biased "
        "decision",
        _misroute_avg,
        "low",
    ),
)


def best(values: Sequence[float | None], goal: Goal, digits: int = 2) -> set[int]:
    """Find the best values, as they read with so many digits; none where there is nothing to compare."""
    if goal == "none":
        return set()
    finite = {i: round(v, digits) for i, v in enumerate(values) if v is not None and math.isfinite(v)}
    if sum(value is not None for value in values) < 2 or not finite:
        return set()
    costs = {i: _cost(value, goal) for i, value in finite.items()}
    return {i for i, cost in costs.items() if math.isclose(cost, min(costs.values()), abs_tol=1e-9)}


def _cost(value: float, goal: Goal) -> float:
    return {"one": abs(value - 1), "low": value, "high": -value, "none": 0.0}[goal]
