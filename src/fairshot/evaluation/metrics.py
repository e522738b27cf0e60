"""Metrics of appendix A, each a function of the confusion matrices of the sessions. All in percent.

They ask of a confusion matrix only how many images of each session it counts, rightly answered ones among
them, and those answered with a base class (`Counts`).

Overall and base accuracy weigh every test image the same. Incremental accuracies (Inc, PInc) are means over
the sessions that brought the classes, which is what the paper prints: on CUB-200, where sessions differ in
their number of test images, its rows are no fractions of the number of images. `inc_weighted` is beside it.
"""

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
    inc: float | None  # mean over the incremental sessions so far of the accuracy on their classes
    inc_weighted: float | None  # the same with every test image weighing the same
    cinc: float | None  # current incremental classes: those this session introduced
    pinc: float | None  # past incremental classes: those of earlier sessions
    harmonic_mean: float | None  # of base and inc
    misroute: float | None  # share of incremental test images answered with a base class


@dataclass(frozen=True)
class Metrics:
    """The metrics of all sessions, and their summaries."""

    sessions: tuple[SessionMetrics, ...]

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
    def inc_weighted_avg(self) -> float | None:
        """The same from sample-weighted accuracies; it differs where sessions have unequal test sets."""
        return _mean([session.inc_weighted for session in self.sessions[1:]])

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
    def both(self) -> float | None:
        """The mean of overall accuracy and harmonic mean, both averaged over sessions."""
        harmonic_mean = self.harmonic_mean_avg
        return None if harmonic_mean is None else (self.overall_avg + harmonic_mean) / 2

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


@dataclass(frozen=True)
class Counts:
    """Answers after session t to the test images of the classes of each session 0 .. t."""

    images: Sequence[int]
    right: Sequence[int]
    as_base: Sequence[int]  # answered with a base class

    def accuracy(self, start: int, stop: int | None = None) -> float | None:
        """Share of the images of some sessions that were answered rightly."""
        return _percent(sum(self.right[start:stop]), sum(self.images[start:stop]))


def confusion_matrix(labels: Ints, answers: Ints, classes: int) -> Ints:
    """Count the images of each true class (rows) by the class that was answered (columns)."""
    for name, ids in (("labels", labels), ("answers", answers)):
        if len(ids) and not (ids.min() >= 0 and ids.max() < classes):
            raise ValueError(f"{name} are in {ids.min()} .. {ids.max()}; expected 0 .. {classes - 1}")
    if len(labels) != len(answers):
        raise ValueError(f"{len(labels)} labels but {len(answers)} answers")
    pairs = labels.astype(np.int64) * classes + answers
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def metrics_from_confusions(confusions: Sequence[Ints], session_sizes: Sequence[int]) -> Metrics:
    """Derive all metrics.

    `confusions[t]` has a row for each true and a column for each predicted class seen up to session t;
    `session_sizes[t]` is the number of classes that session t introduced.
    """
    if not 1 <= len(confusions) <= len(session_sizes):
        raise ValueError(f"{len(confusions)} confusion matrices for {len(session_sizes)} sessions")
    return metrics_from_counts(
        [_count(confusion, session_sizes[: t + 1]) for t, confusion in enumerate(confusions)]
    )


def metrics_from_counts(counts: Sequence[Counts]) -> Metrics:
    """Derive all metrics from the counts after each session."""
    return Metrics(tuple(_session_metrics(each) for each in counts))


def _count(confusion: Ints, sizes: Sequence[int]) -> Counts:
    ends = np.cumsum(sizes)
    base, seen = int(ends[0]), int(ends[-1])
    if confusion.shape != (seen, seen):
        raise ValueError(
            f"after {seen} classes the confusion matrix is {confusion.shape}, not {(seen, seen)}"
        )
    by_class = confusion.sum(1), np.diagonal(confusion), confusion[:, :base].sum(1)
    return Counts(*([int(part.sum()) for part in np.split(each, ends[:-1])] for each in by_class))


def _session_metrics(counts: Counts) -> SessionMetrics:
    overall, base = counts.accuracy(0), counts.accuracy(0, 1)
    if overall is None or base is None:
        raise ValueError("there is no test image of a base class")
    by_session = [counts.accuracy(t, t + 1) for t in range(1, len(counts.images))]
    inc = _mean(by_session)
    return SessionMetrics(
        overall=overall,
        base=base,
        inc=inc,
        inc_weighted=counts.accuracy(1),
        cinc=by_session[-1] if by_session else None,
        pinc=_mean(by_session[:-1]),
        harmonic_mean=None if inc is None else _harmonic_mean(base, inc),
        misroute=_percent(sum(counts.as_base[1:]), sum(counts.images[1:])),
    )


def _percent(part: int, whole: int) -> float | None:
    return 100 * (part / whole) if whole else None


def _harmonic_mean(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or below is None:
        return None
    return above / below if below > 0 else float("inf")
