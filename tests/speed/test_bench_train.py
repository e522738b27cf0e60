"""The measurement of training: what it counts, and a whole small one."""

import math

import pytest

from fairshot.recipes import load_recipe
from fairshot.speed.train import base_objective, measure_training, network_work
from fairshot.training.hardware import choose_hardware

SMALL = ["training.batch=8", "model.size=8", "method.sr_width=16", "method.fused_views=2"]


@pytest.mark.parametrize(
    ("changes", "images"),
    [
        ([], 2 * 2 * 2),  # views, flips, plain and fused
        (["method.fused_views=1"], 2 * (2 + 1)),
        (["method.intra=false"], 2 * 2),
        (["method.inter=false", "method.intra=false"], 2),
    ],
)
def test_counts_what_the_network_sees_of_a_source_image(changes, images):
    objective = base_objective(load_recipe("doodles/sss", [*SMALL, *changes]), 3, 1)
    assert network_work(objective)[0] == images


def test_a_small_measurement_has_every_number():
    recipe = load_recipe("doodles/sss", SMALL)
    ours, plain = measure_training(recipe, choose_hardware("cpu"), classes=3, images=24, plain_steps=1)
    assert ours.name == "fairshot"
    assert plain.name.startswith("plain")
    for row in (ours, plain):
        assert row.images_per_second > 0
        assert row.seconds_per_epoch == pytest.approx(24 * 8 / row.images_per_second)
        assert math.isnan(row.peak_gigabytes)  # a CPU has none of its own
    share = ours.matrix_share / ours.images_per_second
    assert share > 0
    assert share == pytest.approx(plain.matrix_share / plain.images_per_second)
