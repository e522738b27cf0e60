"""Metrics of appendix A, each a function of the confusion matrices of the sessions. All in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairshot.benchmarks.pictures import Ints


@dataclass(frozen=True)
class SessionMetrics:
    """Accuracies after one session; None where the session has no such classes yet."""

    overall: float
    base: float
    inc: float | None
    cinc: float | None  # current incremental classes: those this session introduced
    pinc: float | None  # past incremental classes: those of earlier sessions
    harmonic_mean: float | None  # of base and inc
    misroute: float | None  # share of incremental test images answered with a base class


@dataclass(frozen=True)
class Metrics:
    """The metrics of all sessions, and their summaries."""

    sessions: tuple[SessionMetrics, ...]
    inc_weighted_avg: float | None  # incremental accuracy pooled over the test images of all sessions

    @property
    def overall_avg(self) -> float:
        """Overall accuracy averaged over t = 0 .. T."""
        return float(np.mean([session.overall for session in self.sessions]))

    @property
    def last(self) -> float:
        """Overall accuracy after the last session."""
        return self.sessions[-1].overall

    @property
    def pd(self) -> float:
        """Performance dropping rate: overall accuracy lost between the first and the last session."""
        return self.sessions[0].overall - self.last

    @property
    def base_avg(self) -> float | None:
        """Base accuracy averaged over t = 1 .. T."""
        return _mean([session.base for session in self.sessions[1:]])

    @property
    def inc_avg(self) -> float | None:
        """Incremental accuracy averaged over t = 1 .. T, sessions weighted equally."""
        return _mean([session.inc for session in self.sessions[1:]])

    @property
    def cinc_avg(self) -> float | None:
        """Accuracy of the current incremental classes averaged over t = 2 .. T."""
        return _mean([session.cinc for session in self.sessions[2:]])

    @property
    def pinc_avg(self) -> float | None:
        """Accuracy of the past incremental classes averaged over t = 2 .. T."""
        return _mean([session.pinc for session in self.sessions[2:]])

    @property
    def harmonic_mean_avg(self) -> float | None:
        """Harmonic mean of base and incremental accuracy averaged over t = 1 .. T."""
        return _mean([session.harmonic_mean for session in self.sessions[1:]])

    @property
    def base_inc(self) -> float | None:
        """Base/Inc: a ratio of averages; 1 is balance between base and incremental classes."""
        return _ratio(self.base_avg, self.inc_avg)

    @property
    def cinc_pinc(self) -> float | None:
        """CInc/PInc: a ratio of averages; 1 is balance between current and past incremental classes."""
        return _ratio(self.cinc_avg, self.pinc_avg)

    @property
    def bicp(self) -> float | None:
        """BICP: mean of Base/Inc and CInc/PInc."""
        if self.base_inc is None or self.cinc_pinc is None:
            return None
        return (self.base_inc + self.cinc_pinc) / 2


def metrics_from_confusions(confusions: Sequence[Ints], session_sizes: Sequence[int]) -> Metrics:
    """Derive all metrics.

    `confusions[t]` has a row for each true and a column for each predicted class seen up to session t;
    `session_sizes[t]` is the number of classes that session t introduced.
    """
    sessions = [
        _session_metrics(confusion, list(session_sizes[: t + 1])) for t, confusion in enumerate(confusions)
    ]
    novel = [confusion[session_sizes[0] :] for confusion in confusions[1:]]
    right = sum(int(np.trace(rows, offset=session_sizes[0])) for rows in novel)
    total = sum(int(rows.sum()) for rows in novel)
    return Metrics(tuple(sessions), 100 * right / total if total else None)


def _session_metrics(confusion: Ints, sizes: list[int]) -> SessionMetrics:
    seen, base, past = sum(sizes), sizes[0], sum(sizes[:-1])
    if confusion.shape != (seen, seen):
        raise ValueError(
            f"after {seen} classes the confusion matrix is {confusion.shape}, not {(seen, seen)}"
        )
    inc = _accuracy(confusion, base, seen)
    base_accuracy = _accuracy(confusion, 0, base)
    assert base_accuracy is not None
    overall = _accuracy(confusion, 0, seen)
    assert overall is not None
    first = len(sizes) == 1
    novel_rows = confusion[base:]
    return SessionMetrics(
        overall=overall,
        base=base_accuracy,
        inc=inc,
        cinc=None if first else _accuracy(confusion, past, seen),
        pinc=None if first else _accuracy(confusion, base, past),
        harmonic_mean=None if inc is None else _harmonic_mean(base_accuracy, inc),
        misroute=None if inc is None else 100 * float(novel_rows[:, :base].sum() / novel_rows.sum()),
    )


def _accuracy(confusion: Ints, start: int, stop: int) -> float | None:
    """Share of the test images of classes start .. stop - 1 that were answered rightly."""
    total = confusion[start:stop].sum()
    if total == 0:
        return None
    return 100 * float(np.diagonal(confusion)[start:stop].sum() / total)


def _harmonic_mean(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or below is None:
        return None
    return above / below if below > 0 else float("inf")
