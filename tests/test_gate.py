"""The gate: each rule against its formula written out, and what it is for."""

import math

import numpy as np
import pytest
import torch

from fairshot.classifiers.gate import favour, fit_whitening, noise_ratio, tempered, unbias
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_favour_adds_to_novel_classes_alone():
    first = random(4, 5)
    got = favour(first, 3, 0.1)
    torch.testing.assert_close(got[:, :3], first[:, :3])
    torch.testing.assert_close(got[:, 3:], first[:, 3:] + 0.1)


# --- whitening


def test_whitening_follows_its_formula():
    features, labels = random(60, 2, 5).abs(), torch.arange(60) % 3
    got = fit_whitening(features, labels, 3, power=0.5, shrinkage=0.7)
    for view in range(2):
        rows = []
        for x in features[:, view].tolist():
            y = [math.sqrt(value) for value in x]
            rows.append([value / math.hypot(*y) for value in y])
        rows, kind = np.array(rows), labels.numpy()
        means = {c: rows[kind == c].mean(0) for c in range(3)}
        residual = rows - np.array([means[c] for c in kind])
        covariance = residual.T @ residual / len(residual)
        variance = np.trace(covariance) / 5
        values, vectors = np.linalg.eigh(covariance / variance + 0.7 * np.eye(5))
        matrix = vectors @ np.diag(values**-0.5) @ vectors.T
        centre = np.mean([means[c] for c in range(3)], axis=0)
        np.testing.assert_allclose(got.matrix[view], matrix, atol=1e-9)
        np.testing.assert_allclose(got.transform(features)[:, view], (rows - centre) @ matrix, atol=1e-9)


def test_whitening_evens_out_the_spread_within_classes():
    stretch = torch.tensor([5.0, 1, 1, 0.2]).double()
    labels = torch.arange(400) % 2
    features = random(400, 1, 4) * stretch + 8 * labels[:, None, None]
    space = fit_whitening(features, labels, 2, power=1.0, shrinkage=1e-6)
    after = space.transform(features)
    residual = after - prototypes(after, labels, [0, 1])[labels]
    spread = residual[:, 0].var(0)
    assert spread.max() / spread.min() < 1.5
    features_residual = tempered(features, 1.0) - prototypes(tempered(features, 1.0), labels, [0, 1])[labels]
    assert features_residual[:, 0].var(0).max() / features_residual[:, 0].var(0).min() > 10


def test_whitening_of_features_without_variance_stays_finite():
    space = fit_whitening(torch.rand(6, 2, 4).repeat(2, 1, 1), torch.arange(6).repeat(2), 6, 0.5, 2.0)
    assert space.matrix.isfinite().all()
    assert space.transform(torch.zeros(3, 2, 4)).isfinite().all()


# --- the noise of few shots


def test_noise_ratio_is_variance_over_signal_pooled_over_classes():
    features, labels = random(13, 2, 3) + 1, torch.tensor([0] * 5 + [1] * 7 + [2])
    above = below = 0.0
    for c, k in ((0, 5), (1, 7)):  # class 2 has a single shot
        for view in range(2):
            values = features[labels == c, view].numpy()
            variance = values.var(0, ddof=1).sum()
            above += variance
            below += (values.mean(0) ** 2).sum() - variance / k
    assert noise_ratio(features, labels, [1, 0, 2]).item() == pytest.approx(above / below)


def test_noise_ratio_estimates_the_truth():
    mean, spread, labels = 1 + random(40, 1, 100).abs(), 1.5, torch.arange(40).repeat(5)
    shots = mean[labels] + spread * random(200, 1, 100, seed=1)
    truth = (40 * 100 * spread**2 / mean.square().sum()).item()
    assert noise_ratio(shots, labels, range(40)).item() == pytest.approx(truth, rel=0.05)


def test_unbias_gives_back_on_average_what_few_shots_take():
    mean, spread = random(1, 1, 200).abs(), 1.2
    images = mean + spread * random(4000, 1, 200, seed=1)
    known = similarity(images, mean).mean().item()
    labels = torch.arange(100).repeat(5)
    P = prototypes(images[:500], labels, range(100))
    plain = similarity(images[500:], P)
    ratio = noise_ratio(images[:500], labels, range(100))
    shots = torch.full((100,), 5)
    assert plain.mean() < known - 0.02
    assert unbias(plain, 0, shots, ratio).mean().item() == pytest.approx(known, abs=0.002)
    torch.testing.assert_close(unbias(plain, 0, shots, ratio, strength=0.0), plain)
    torch.testing.assert_close(unbias(plain, 100, shots[:0], ratio), plain)


def test_unbias_gives_more_to_classes_of_fewer_shots_and_nothing_to_base_classes():
    first = torch.full((1, 4), 0.5).double()
    got = unbias(first, 2, torch.tensor([5, 1]), 2.0)
    assert got[0].tolist() == pytest.approx([0.5, 0.5, 0.5 * math.sqrt(1.4), 0.5 * math.sqrt(3)])


@pytest.mark.parametrize("shots", [torch.ones(5, 1, 4), torch.zeros(5, 1, 4), torch.rand(1, 1, 4)])
def test_the_ratio_of_degenerate_shots_is_none(shots):
    assert noise_ratio(shots, torch.zeros(len(shots), dtype=torch.int64), [0]) == 0
