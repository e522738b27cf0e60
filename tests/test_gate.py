"""The gate: each rule against its formula written out, and what it is for."""

import math

import numpy as np
import pytest
import torch

from fairshot.classifiers.gate import (
    favour,
    fit_class_offsets,
    fit_whitening,
    shot_noise,
    tempered,
    unbiased_similarity,
)
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_favour_adds_to_novel_classes_alone():
    first = random(4, 5)
    got = favour(first, 3, 0.1)
    torch.testing.assert_close(got[:, :3], first[:, :3])
    torch.testing.assert_close(got[:, 3:], first[:, 3:] + 0.1)
    each = favour(first, 3, torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(each[:, 3:] - first[:, 3:], torch.tensor([[0.0, 0.5]]).expand(4, 2).double())


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


def test_shot_noise_is_the_variance_of_the_mean():
    features, labels = random(12, 2, 3), torch.tensor([0] * 5 + [1] * 7)
    got = shot_noise(features, labels, [1, 0])
    for row, (c, k) in enumerate([(1, 7), (0, 5)]):
        for view in range(2):
            values = features[labels == c, view].numpy()
            assert got[row, view].item() == pytest.approx(values.var(0, ddof=1).sum() / k)


def test_unbiased_similarity_undoes_on_average_what_few_shots_take():
    mean, spread = random(1, 1, 200).abs(), 1.2
    images = mean + spread * random(4000, 1, 200, seed=1)
    known = similarity(images, mean).mean()
    plain, unbiased = [], []
    for k in range(0, 500, 5):
        shots, label = images[k : k + 5], torch.zeros(5, dtype=torch.int64)
        P, noise = prototypes(shots, label, [0]), shot_noise(shots, label, [0])
        plain.append(similarity(images[500:], P).mean())
        unbiased.append(unbiased_similarity(images[500:], P, noise).mean())
    assert torch.stack(plain).mean() < known - 0.02
    assert torch.stack(unbiased).mean().item() == pytest.approx(known.item(), abs=0.004)
    assert unbiased_similarity(images, P, noise, strength=0.0).mean() == similarity(images, P).mean()


def test_a_single_shot_is_given_the_noise_of_others_and_nothing_explodes():
    features = torch.cat([random(10, 1, 50) + 1, random(1, 1, 50, seed=1) + 1])
    labels = torch.tensor([0] * 5 + [1] * 5 + [2])
    noise = shot_noise(features, labels, [0, 1, 2])
    assert noise[2] > 2 * noise[:2].max()
    identical = torch.ones(5, 1, 4)
    assert shot_noise(identical, torch.zeros(5, dtype=torch.int64), [0]).abs().max() == 0
    alone = shot_noise(identical[:1], torch.zeros(1, dtype=torch.int64), [0])
    assert unbiased_similarity(identical, identical[:1], alone).isfinite().all()
    wild = unbiased_similarity(identical, torch.zeros(1, 1, 4), torch.ones(1, 1))
    assert wild.isfinite().all()


# --- offsets of each class


def test_class_offsets_follow_from_episodes_written_out():
    B, shots, recall = 5, 3, 0.6
    labels = torch.arange(50) % B
    features = random(B, 2, 6, seed=3)[labels] + 0.7 * random(50, 2, 6)
    got = fit_class_offsets(features, labels, B, shots, recall)
    P = prototypes(features, labels, range(B))
    nearest, needed = [], []
    for c in range(B):
        mine = features[labels == c]
        novel = mine[:shots].mean(0, keepdim=True)
        others = P[[o for o in range(B) if o != c]]
        margins = sorted(
            (similarity(x[None], others).max() - similarity(x[None], novel)[0, 0]).item()
            for x in mine[shots:]
        )
        needed.append(margins[round(recall * (len(margins) - 1))])
        nearest.append(similarity(novel, others).max().item())
    slope, intercept = np.polyfit(nearest, needed, 1)
    assert got.slope.item() == pytest.approx(slope)
    assert got.intercept.item() == pytest.approx(intercept)
    novel = random(2, 2, 6, seed=9).abs()
    want = [intercept + slope * similarity(novel, P)[i].max().item() for i in range(2)]
    assert got.predict(novel, P).tolist() == pytest.approx(want)


def test_episodes_need_more_images_than_shots():
    with pytest.raises(ValueError, match="more images"):
        fit_class_offsets(random(10, 1, 3), torch.arange(10) % 2, 2, shots=5, recall=0.5)
