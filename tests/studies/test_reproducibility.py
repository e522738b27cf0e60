"""Verdicts compare our averages with what was published, and with nothing else."""

import pytest

from fairshot.studies.published import published
from fairshot.studies.reproducibility import judge
from support.results_factory import make_even_result


def test_the_mean_over_seeds_is_compared_with_the_own_publication():
    (own,) = [row for row in published().of("teen", "cifar100", 9) if row.own]
    verdict = judge(
        [make_even_result("teen", own.average + above, seed) for seed, above in enumerate((-2.0, 1.0))]
    )
    assert verdict.own == own
    assert verdict.rerun is not None
    assert verdict.gap == pytest.approx(-0.5)
    assert verdict.text == "within 1 point"
    assert judge([make_even_result("teen", own.average - 1.02)]).text == "not reached"
    assert judge([make_even_result("teen", own.average)]).text == "reached"


@pytest.mark.parametrize(
    "recipe", [{"benchmark": {"name": "folder"}}, {"benchmark": {"name": "cifar100", "class_order_seed": 3}}]
)
def test_own_pictures_and_shuffled_classes_have_no_published_rows(recipe):
    verdict = judge([make_even_result("teen", 60, recipe=recipe)])
    assert (verdict.own, verdict.rerun, verdict.gap) == (None, None, None)
