"""Significance over pairs of runs: the exact test by hand, the t test beside scipy's, how runs are paired."""

import itertools

import pytest
from scipy import stats

from fairshot.reporting.groups import group_results
from fairshot.reporting.tables import significance_table
from fairshot.studies.significance import PairedTest, paired_test, sign_flip_p
from support.results_factory import make_result


def overall(metrics):
    return metrics.overall_avg


def test_the_exact_p_is_the_share_of_sign_flips_that_are_as_extreme():
    assert sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8  # all of one sign: the most that three pairs can show
    assert sign_flip_p([3.0, -1.0]) == 1.0
    differences = [0.7, -0.2, 0.4, 1.1, 0.3]
    found = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=5)
    ]
    assert sign_flip_p(differences) == sum(value >= found - 1e-12 for value in sums) / 32
    test = PairedTest((0.5, 0.5, 0.5), "seed")
    assert (test.p_exact, test.least_p, test.p_t, test.half_width) == (0.25, 0.25, None, None)


def test_the_t_test_is_scipys():
    test = PairedTest((1.0, 2.5, 1.7, 0.4), "seed")
    expected = stats.ttest_1samp(test.differences, 0)
    interval = expected.confidence_interval(0.95)
    assert test.p_t == pytest.approx(expected.pvalue)
    assert (test.mean - test.half_width, test.mean + test.half_width) == pytest.approx(tuple(interval))


def of(method, seed, order=None, novel=0.4):
    recipe = {"method": {"name": method}}
    if order is not None:
        recipe["benchmark"] = {"name": "doodles", "class_order_seed": order}
    return make_result(method, seed, novel=novel, recipe=recipe)


def test_runs_are_paired_by_seed_and_orders_average_their_seeds():
    ours = [of("sss", seed, novel=0.5 + seed / 10) for seed in (0, 1, 2)]
    theirs = [of("ncm", seed, novel=0.2) for seed in (2, 1, 5)]
    test = paired_test(ours, theirs, overall)
    expected = [ours[seed].metrics.overall_avg - theirs[2 - seed].metrics.overall_avg for seed in (1, 2)]
    assert (test.unit, test.differences) == ("seed", tuple(expected))
    assert paired_test(ours[:1], theirs, overall) is None
    shuffled = [
        of(m, s, order, n) for m, n in (("sss", 0.5), ("ncm", 0.3)) for s in (0, 1) for order in (7, 8)
    ]
    by_order = paired_test([*ours, *shuffled[:4]], [*theirs, *shuffled[4:]], overall)
    assert (by_order.unit, len(by_order.differences)) == ("class order", 3)
    assert by_order.differences[0] == pytest.approx(sum(expected) / 2)


def test_the_table_holds_every_other_method_and_says_what_so_few_pairs_can_show():
    results = [of(m, s, novel=n) for m, n in (("ncm", 0.1), ("sss", 0.5), ("teen", 0.3)) for s in (0, 1, 2)]
    groups = group_results(results)
    table = significance_table(groups, results)
    assert [row.label for row in table.rows] == ["NCM", "TEEN"]
    assert "3 seeds cannot give a p below 0.25" in table.caption
    assert [value.mean for value in table.rows[0].values[:1]] == [3]
    assert table.rows[0].values[2].mean == 0.25
    assert significance_table([group for group in groups if group.label != "SSS"], results) is None
    assert significance_table(groups[1:2], results) is None


def test_of_variants_of_sss_one_without_unlabelled_test_images_is_compared():
    def runs(transductive, seeds, **options):
        recipe = {"method": {"name": "sss", **options}}
        made = [make_result("sss", seed, novel=0.5, recipe=recipe) for seed in range(seeds)]
        return [result.model_copy(update={"transductive": transductive}) for result in made]

    calibrated, gated = runs(True, 3, calibration=True, gamma=0.1), runs(False, 2, gate="constant")
    others = [of("ncm", seed) for seed in range(3)]
    results = [*calibrated, *gated, *others]
    table = significance_table(group_results(results), results)
    assert table.title == "Significance of SSS with gate"
    assert [(row.label, bool(row.remarks)) for row in table.rows] == [
        ("SSS with Calibration", True),
        ("NCM", False),
    ]
    alone = significance_table(group_results([*calibrated, *others]), [*calibrated, *others])
    assert alone.title == "Significance of SSS with Calibration"


def test_a_single_pair_shows_nothing():
    results = [of("sss", 0, novel=0.5), of("ncm", 0)]
    assert significance_table(group_results(results), results) is None
