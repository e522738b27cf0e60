"""Metrics: by hand, by loops, and from the numbers the paper prints."""

import importlib.resources
import math

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fairshot.evaluation.metrics import confusion_matrix, metrics_from_confusions

PUBLISHED = yaml.safe_load(
    importlib.resources.files("fairshot.studies").joinpath("data/published.yaml").read_text()
)


# --- by hand


def by_hand():
    """Two base classes, then one class, then two: test sets of 4, 4, then 4, then 2 and 6 images."""
    return [
        np.array([[3, 1], [0, 4]]),
        np.array([[2, 1, 1], [0, 4, 0], [2, 0, 2]]),
        np.array([[2, 1, 1, 0, 0], [1, 3, 0, 0, 0], [1, 1, 1, 0, 1], [0, 0, 0, 2, 0], [0, 3, 0, 0, 3]]),
    ]


def test_a_case_computed_by_hand():
    metrics = metrics_from_confusions(by_hand(), [2, 1, 2])
    zero, one, two = metrics.sessions
    assert (zero.overall, zero.base) == (87.5, 87.5)
    assert (zero.inc, zero.cinc, zero.pinc, zero.harmonic_mean, zero.misroute) == (None,) * 5
    assert (one.overall, one.base, one.inc, one.cinc, one.pinc) == (pytest.approx(200 / 3), 75, 50, 50, None)
    assert (one.harmonic_mean, one.misroute) == (60, 50)
    # session 2: overall 11 / 20; base 5 / 8; session 1's class 1 / 4; session 2's classes 5 / 8
    assert (two.overall, two.base, two.cinc, two.pinc) == (pytest.approx(55), 62.5, 62.5, 25)
    assert two.inc == (25 + 62.5) / 2
    assert two.inc_weighted == 50
    assert two.misroute == pytest.approx(100 * 5 / 12)
    assert metrics.overall_avg == pytest.approx((87.5 + 200 / 3 + 55) / 3)
    assert (metrics.last, metrics.pd) == (pytest.approx(55), pytest.approx(32.5))
    assert (metrics.base_avg, metrics.inc_avg) == (68.75, (50 + 43.75) / 2)
    assert metrics.inc_weighted_avg == 50
    assert metrics.base_inc == pytest.approx(68.75 / 46.875)
    assert metrics.cinc_pinc == 2.5
    assert metrics.bicp == pytest.approx((68.75 / 46.875 + 2.5) / 2)
    assert metrics.harmonic_mean_avg == pytest.approx((60 + 2 * 62.5 * 43.75 / 106.25) / 2)
    assert metrics.both == pytest.approx((metrics.overall_avg + metrics.harmonic_mean_avg) / 2)


def test_undefined_metrics_are_none_and_a_zero_denominator_is_infinite():
    alone = metrics_from_confusions(by_hand()[:1], [2])
    assert (alone.base_avg, alone.inc_avg, alone.base_inc, alone.bicp, alone.harmonic_mean_avg) == (None,) * 5
    assert alone.both is None
    two = metrics_from_confusions(by_hand()[:2], [2, 1])
    assert (two.cinc_avg, two.cinc_pinc, two.bicp) == (None,) * 3
    blind = metrics_from_confusions(
        [np.eye(2, dtype=int), np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]])], [2, 1]
    )
    assert blind.base_inc == math.inf
    assert blind.sessions[1].harmonic_mean == 0


def test_impossible_matrices_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 2\), not \(3, 3\)"):
        metrics_from_confusions([np.eye(2), np.eye(2)], [2, 1])
    with pytest.raises(ValueError, match="no test image of a base class"):
        metrics_from_confusions([np.zeros((2, 2), int)], [2])
    with pytest.raises(ValueError, match="3 confusion matrices for 1 session"):
        metrics_from_confusions(by_hand(), [2])


# --- by loops


def accuracy(pairs, classes):
    mine = [(label, answer) for label, answer in pairs if label in classes]
    return 100 * sum(label == answer for label, answer in mine) / len(mine)


@given(st.integers(0, 10_000), st.lists(st.integers(1, 3), min_size=3, max_size=5))
@settings(max_examples=30, deadline=None)
def test_metrics_follow_appendix_a(seed, sizes):
    rng = np.random.default_rng(seed)
    groups, start = [], 0
    for size in sizes:
        groups.append(range(start, start + size))
        start += size
    confusions, answered = [], []
    for t in range(len(sizes)):
        seen = groups[t].stop
        labels = np.concatenate([np.arange(seen), rng.integers(0, seen, 40)])
        answers = np.where(rng.random(len(labels)) < 0.5, labels, rng.integers(0, seen, len(labels)))
        confusions.append(confusion_matrix(labels, answers, seen))
        answered.append(list(zip(labels.tolist(), answers.tolist(), strict=True)))
    metrics = metrics_from_confusions(confusions, sizes)
    T, base = len(sizes) - 1, [accuracy(pairs, groups[0]) for pairs in answered]
    inc = [sum(accuracy(answered[t], groups[s]) for s in range(1, t + 1)) / t for t in range(1, T + 1)]
    cinc = [accuracy(answered[t], groups[t]) for t in range(2, T + 1)]
    pinc = [sum(accuracy(answered[t], groups[s]) for s in range(1, t)) / (t - 1) for t in range(2, T + 1)]
    overall = [accuracy(pairs, range(groups[t].stop)) for t, pairs in enumerate(answered)]
    assert metrics.overall_avg == pytest.approx(sum(overall) / (T + 1))
    assert metrics.base_avg == pytest.approx(sum(base[1:]) / T)
    assert metrics.inc_avg == pytest.approx(sum(inc) / T)
    assert metrics.cinc_avg == pytest.approx(sum(cinc) / (T - 1))
    assert metrics.pinc_avg == pytest.approx(sum(pinc) / (T - 1))


def test_confusion_matrix_counts_pairs_and_refuses_unknown_classes():
    got = confusion_matrix(np.array([0, 1, 1, 2]), np.array([0, 2, 2, 1]), 3)
    assert got.tolist() == [[1, 0, 0], [0, 0, 2], [0, 1, 0]]
    with pytest.raises(ValueError, match=r"answers are in 0 \.\. 3"):
        confusion_matrix(np.array([0, 1]), np.array([0, 3]), 3)
    with pytest.raises(ValueError, match="labels are in -1"):
        confusion_matrix(np.array([-1, 1]), np.array([0, 1]), 3)


# --- as printed: 60 base classes, then 8 sessions of 5, with 100 test images per class


def printed_confusions(overall, inc):
    """Confusion matrices with the numbers of right answers that the printed percentages stand for."""
    confusions = []
    for t, percent in enumerate(overall):
        classes, images = 60 + 5 * t, 6000 + 500 * t
        right = round(percent * images / 100)
        right_novel = round(inc[t - 1] * 500 * t / 100) if t else 0
        matrix = np.zeros((classes, classes), dtype=np.int64)
        for members, total in ((range(60), right - right_novel), (range(60, classes), right_novel)):
            for rank, c in enumerate(members):
                matrix[c, c] = total // len(members) + (rank < total % len(members))
                matrix[c, (c + 1) % classes] = 100 - matrix[c, c]
        confusions.append(matrix)
    return confusions


def printed_metrics(row):
    return metrics_from_confusions(printed_confusions(row["overall"], row["inc"]), [60] + [5] * 8)


def rows(benchmark):
    return [row for row in PUBLISHED["rows"] if row["benchmark"] == benchmark and "inc" in row]


def row_id(row):
    return f"{row['benchmark']}-{row['method']}"


def named(benchmark, method):
    return next(row for row in rows(benchmark) if row["method"] == method)


@pytest.mark.parametrize("row", rows("mini_imagenet") + rows("cifar100"), ids=row_id)
def test_printed_base_inc_follows_from_printed_overall_and_inc(row):
    """It does for every row of one run; the rows where it does not are marked, with what does follow."""
    metrics = printed_metrics(row)
    if "base_inc_derived" in row:
        assert metrics.base_inc == pytest.approx(row["base_inc_derived"], abs=0.006)
        assert metrics.base_inc != pytest.approx(row["base_inc"], abs=0.006)
        assert metrics.base_inc == pytest.approx(row["base_inc"], rel=0.04)
    else:
        assert metrics.base_inc == pytest.approx(row["base_inc"], abs=0.006)
    if "overall_avg" in row:
        assert metrics.overall_avg == pytest.approx(row["overall_avg"], abs=0.006)


def test_rows_of_the_paper_itself_are_of_one_run():
    assert not [
        row for row in rows("cifar100") if row["method"].startswith("SSS") and "base_inc_derived" in row
    ]
    assert sum("base_inc_derived" in row for row in PUBLISHED["rows"]) == 8


@pytest.mark.parametrize("row", rows("mini_imagenet") + rows("cifar100"), ids=row_id)
def test_printed_percentages_are_fractions_of_the_test_images(row):
    """So overall accuracy is weighted by images. One of all those numbers is not: CEC, CIFAR, session 5."""
    odd = []
    for name, images in (
        ("overall", [6000 + 500 * t for t in range(9)]),
        ("inc", [500 * t for t in range(1, 9)]),
    ):
        for percent, total in zip(row[name], images, strict=True):
            if abs(100 * round(percent * total / 100) / total - percent) > 0.00501:
                odd.append(percent)
    assert odd == ([55.57] if (row["method"], row["benchmark"]) == ("CEC", "cifar100") else [])


@pytest.mark.parametrize("decision", PUBLISHED["features"], ids=lambda decision: decision["decision"])
def test_averages_of_tables_3_and_11_agree(decision):
    metrics = printed_metrics(decision)
    assert metrics.overall_avg == pytest.approx(decision["overall_avg"], abs=0.006)
    assert metrics.inc_avg == pytest.approx(decision["inc_avg"], abs=0.006)


def test_base_accuracy_behind_the_printed_rows_on_cifar():
    """Resistance and Calibration cost 5 to 7 points of base accuracy by the last sessions."""
    everything = printed_metrics(named("cifar100", "SSS (prototype)"))
    dual = printed_metrics(
        next(decision for decision in PUBLISHED["features"] if decision["decision"] == "separately")
    )
    base = [[session.base for session in metrics.sessions[1:]] for metrics in (everything, dual)]
    assert base[0] == pytest.approx([80.20, 76.70, 75.07, 73.60, 71.35, 70.12, 69.57, 68.03], abs=0.01)
    assert base[1] == pytest.approx([81.30, 79.93, 78.92, 78.33, 76.95, 75.94, 75.63, 74.62], abs=0.01)
    assert dual.base_inc == pytest.approx(PUBLISHED["components"][3]["base_inc"], abs=0.006)
    assert everything.overall_avg == pytest.approx(69.44, abs=0.006)


def test_average_harmonic_mean_behind_the_printed_rows():
    cifar = printed_metrics(named("cifar100", "SSS (prototype)"))
    mini = printed_metrics(named("mini_imagenet", "SSS (prototype)"))
    assert cifar.harmonic_mean_avg == pytest.approx(61.43, abs=0.006)
    assert mini.harmonic_mean_avg == pytest.approx(58.68, abs=0.006)
    assert mini.overall_avg == pytest.approx(69.60, abs=0.006)


def test_incremental_accuracy_on_cub_is_a_mean_over_sessions():
    """Weighted by images, the second session of the paper's own row would be a multiple of 1 / 566."""
    first, second = named("cub200", "SSS (prototype)")["inc"][:2]
    assert 100 * round(first * 279 / 100) / 279 == pytest.approx(first, abs=0.005)
    assert 100 * round(second * 566 / 100) / 566 != pytest.approx(second, abs=0.02)
    possible = {round(50 * a / 279 + 50 * b / 287, 2) for a in range(280) for b in range(288)}
    assert second in possible
