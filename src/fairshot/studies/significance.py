"""Significance: whether one method is better than another, over pairs of runs that share what is random."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from fairshot.evaluation.metrics import Metrics
from fairshot.evaluation.result import Result

MOST_FLIPS = 16  # pairs whose signs are flipped in every way; of more, the first so many are used
CONFIDENCE = 0.95
Unit = tuple[int | None, int]  # class order, seed


@dataclass(frozen=True)
class PairedTest:
    """The differences of two methods, one per pair, and how likely they are if neither is better.

    The exact test flips the sign of every difference in every way: without a difference between the methods
    both signs are equally likely. It assumes nothing but that pairs are independent, and of n pairs its p
    cannot fall below 2 / 2^n. The t test and its interval assume normal differences on top of that, which a
    few pairs can neither show nor refute.
    """

    differences: tuple[float, ...]
    unit: str  # what a pair is: a seed, or a class order over whose seeds is averaged

    @property
    def mean(self) -> float:
        """The mean difference."""
        return fmean(self.differences)

    @property
    def p_exact(self) -> float:
        """The two-sided p of the sign-flip test."""
        return sign_flip_p(self.differences)

    @property
    def least_p(self) -> float:
        """The smallest p that so many pairs can give."""
        return min(1.0, 2.0 ** (1 - min(len(self.differences), MOST_FLIPS)))

    @property
    def p_t(self) -> float | None:
        """The two-sided p of the paired t test; None for a single pair or differences that are all equal."""
        return None if self._t_test is None else float(self._t_test.pvalue)

    @property
    def half_width(self) -> float | None:
        """Half the confidence interval of the mean difference, by t."""
        if self._t_test is None:
            return None
        interval = self._t_test.confidence_interval(CONFIDENCE)
        return float(interval.high - interval.low) / 2

    @cached_property
    def _t_test(self) -> Any:
        from scipy.stats import ttest_1samp  # takes a second to import

        return ttest_1samp(self.differences, 0) if len(set(self.differences)) > 1 else None


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the share of sign flips whose mean is at least as far from zero as the one that was found."""
    chosen = differences[:MOST_FLIPS]
    found, tolerance = abs(sum(chosen)), 1e-9 * (1 + sum(map(abs, chosen)))
    flips = itertools.product((-1, 1), repeat=len(chosen))
    sums = [abs(sum(sign * value for sign, value in zip(signs, chosen, strict=True))) for signs in flips]
    return sum(value >= found - tolerance for value in sums) / len(sums)


def paired_test(
    ours: Sequence[Result], theirs: Sequence[Result], pick: Callable[[Metrics], float | None]
) -> PairedTest | None:
    """Compare two methods on runs of the same seed and class order; None where no pair has the number.

    Seeds of one class order have their classes in common: with several orders these are the pairs, and the
    seeds of each are averaged first.
    """
    one, other = _by_unit(ours, pick), _by_unit(theirs, pick)
    shared = [unit for unit in one if unit in other]
    orders = list(dict.fromkeys(order for order, _ in shared))
    differences = {unit: one[unit] - other[unit] for unit in shared}
    if not differences:
        return None
    if len(orders) == 1:
        return PairedTest(tuple(differences.values()), "seed")
    by_order = [[d for (order, _), d in differences.items() if order == each] for each in orders]
    return PairedTest(tuple(map(fmean, by_order)), "class order")


def _by_unit(results: Sequence[Result], pick: Callable[[Metrics], float | None]) -> dict[Unit, float]:
    found: dict[Unit, float] = {}
    for result in results:
        value = pick(result.metrics)
        if value is not None:
            found.setdefault((result.class_order, result.seed), value)
    return found
