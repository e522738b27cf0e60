"""The measurement of mixtures: every number there, and agreement with scikit-learn among them."""

import pytest

from fairshot.speed.mixtures import MixtureCase, measure_mixtures


def test_a_small_measurement():
    cases = [MixtureCase("base", 3, 20, 16, 3), MixtureCase("novel", 2, 5, 16, 1)]
    base, novel, total = measure_mixtures(cases, repeats=1)
    assert (base.mixtures, novel.mixtures, total.mixtures) == (6, 4, 10)
    assert total.seconds == pytest.approx(base.seconds + novel.seconds)
    assert total.times == pytest.approx(total.sklearn_seconds / total.seconds)
    assert total.difference < 1e-4
    assert min(base.seconds, base.same_start_seconds, base.sklearn_same_start_seconds) > 0
