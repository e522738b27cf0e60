"""Diagnostics: FMO by definition 3, and who takes images from whom."""

import math

import numpy as np
import pytest
import torch

from fairshot.evaluation.diagnostics import (
    Loss,
    base_occupancy,
    feature_mapping_occupancy,
    losses,
)


def test_occupancy_is_the_sum_of_normalised_features():
    features = torch.rand(5, 2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for image, got in zip(features.tolist(), feature_mapping_occupancy(features).tolist(), strict=True):
        views = [sum(value / math.hypot(*view) for value in view) for view in image]
        assert got == pytest.approx(sum(views) / 2)


def test_occupancy_ranges_from_one_mapping_to_all_of_them():
    one, all_ = torch.tensor([[[0.0, 9, 0, 0]]]), torch.full((1, 1, 4), 0.3)
    assert feature_mapping_occupancy(one).item() == pytest.approx(1)
    assert feature_mapping_occupancy(all_).item() == pytest.approx(2)  # the square root of d
    labels = torch.tensor([0, 5])
    assert base_occupancy(torch.cat([one, all_]), labels, base_classes=3) == pytest.approx(1)


def test_losses_name_the_class_that_took_most():
    first = np.array([[9, 1], [2, 8]])
    last = np.array([[5, 0, 1, 4], [1, 8, 1, 0], [0, 0, 9, 1], [3, 0, 0, 7]])
    assert losses(first, last) == [
        Loss(0, pytest.approx(40), 3, pytest.approx(40)),
        Loss(1, pytest.approx(0), 2, pytest.approx(10)),
    ]
    with pytest.raises(ValueError, match="more than the 2 base ones"):
        losses(first, first)
