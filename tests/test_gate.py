"""The gate: each rule against its formula written out, and what it is for."""

import math

import numpy as np
import pytest
import torch

from fairshot.classifiers.gate import (
    FirstLook,
    Metrics,
    Space,
    Spread,
    cosine_under,
    favour,
    noise,
    noise_ratio,
    own_metrics,
    recognising,
    tempered,
    unbias,
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


# --- whitening


def test_whitening_follows_its_formula():
    features, labels = random(60, 2, 5).abs(), torch.arange(60) % 3
    got = Spread.fit(features, labels, 3, power=0.5).whitening(0.7)
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
    space = Spread.fit(features, labels, 2, power=1.0).whitening(1e-6)
    after = space.transform(features)
    residual = after - prototypes(after, labels, [0, 1])[labels]
    spread = residual[:, 0].var(0)
    assert spread.max() / spread.min() < 1.5
    features_residual = tempered(features, 1.0) - prototypes(tempered(features, 1.0), labels, [0, 1])[labels]
    assert features_residual[:, 0].var(0).max() / features_residual[:, 0].var(0).min() > 10


def test_whitening_of_features_without_variance_stays_finite():
    spread = Spread.fit(torch.rand(6, 2, 4).repeat(2, 1, 1), torch.arange(6).repeat(2), 6, 0.5)
    space = spread.whitening(2.0)
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
    shots = torch.tensor([5, 7, 1])
    assert noise_ratio(noise(features, labels, range(3)), shots).item() == pytest.approx(above / below)


def test_noise_ratio_estimates_the_truth():
    mean, spread, labels = 1 + random(40, 1, 100).abs(), 1.5, torch.arange(40).repeat(5)
    shots = mean[labels] + spread * random(200, 1, 100, seed=1)
    truth = (40 * 100 * spread**2 / mean.square().sum()).item()
    found = noise_ratio(noise(shots, labels, range(40)), torch.full((40,), 5))
    assert found.item() == pytest.approx(truth, rel=0.05)


def test_unbias_gives_back_on_average_what_few_shots_take():
    mean, spread = random(1, 1, 200).abs(), 1.2
    images = mean + spread * random(4000, 1, 200, seed=1)
    known = similarity(images, mean).mean().item()
    labels = torch.arange(100).repeat(5)
    P = prototypes(images[:500], labels, range(100))
    plain = similarity(images[500:], P)
    shots = torch.full((100,), 5)
    ratio = noise_ratio(noise(images[:500], labels, range(100)), shots)
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
    found = noise(shots, torch.zeros(len(shots), dtype=torch.int64), range(1))
    assert noise_ratio(found, torch.tensor([len(shots)])) == 0


# --- classes with their own covariance


def inverse_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def test_own_metrics_are_the_shrunk_covariance_of_the_class_seen_in_the_whitened_space():
    """A cosine under a class's metric is the cosine after whitening by a mix of pooled and own covariance."""
    features, labels, share, shrinkage = random(90, 2, 4).abs(), torch.arange(90) % 3, 0.3, 0.7
    spread = Spread.fit(features, labels, 3, power=1.0)
    look = FirstLook.whitened(features, labels, spread, Space(1.0, shrinkage, share))
    got = look.scores(random(5, 2, 4, seed=1).abs())
    x, images = tempered(features, 1.0).numpy(), tempered(random(5, 2, 4, seed=1).abs(), 1.0).numpy()
    expected = np.zeros((5, 3))
    for view in range(2):
        means = np.array([x[labels == c, view].mean(0) for c in range(3)])
        residual = x[:, view] - means[labels]
        pooled = residual.T @ residual / 90
        unit = np.trace(pooled) / 4
        for c in range(3):
            mine = residual[labels == c]
            mixed = ((1 - share) * pooled + share * mine.T @ mine / 30) / unit + shrinkage * np.eye(4)
            root, centre = inverse_root(mixed), means.mean(0)
            prototype = root @ (means[c] - centre)
            for i in range(5):
                image = root @ (images[i, view] - centre)
                norms = np.linalg.norm(image) * np.linalg.norm(prototype)
                expected[i, c] += image @ prototype / norms / 2
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_without_a_share_the_metric_is_that_of_the_whitened_space():
    features, labels = random(60, 2, 5).abs(), torch.arange(60) % 3
    spread = Spread.fit(features, labels, 3, power=0.5)
    metrics = own_metrics(features, labels, spread, Space(0.5, 1.0, 0.0))
    torch.testing.assert_close(metrics, torch.eye(5).double().expand(3, 2, 5, 5))


def test_a_novel_class_borrows_most_from_the_base_class_most_similar_to_it():
    base, raw = torch.eye(3).double()[:, None], random(3, 1, 3, 3)
    metrics = Metrics.of_base(raw @ raw.mT).extended(base[:1] + 0.1, base)
    alike = [float(similarity(base[:1] + 0.1, one[None])) for one in base]
    weights = np.exp(16 * np.array(alike))
    expected = np.einsum("b,bvde->vde", weights / weights.sum(), raw @ raw.mT)
    np.testing.assert_allclose(metrics.of(3), expected)
    values, compared = random(5, 1, 3, seed=2), random(4, 1, 3, seed=3)
    for label in range(4):
        one = cosine_under(values, compared[label : label + 1], metrics.of(label))
        torch.testing.assert_close(metrics.similarity(values, compared)[:, label], one)
    torch.testing.assert_close(
        metrics.similarity(values, compared[:2]), metrics.similarity(values, compared)[:, :2]
    )


# --- shots left out


def test_margins_compare_each_shot_with_its_class_without_it():
    base, shots = random(4, 2, 3), random(7, 2, 3, seed=1)
    labels = torch.tensor([4, 4, 4, 5, 5, 5, 6])  # class 6 has nothing left without its shot
    look = FirstLook.begin(base, torch.full((4,), 9)).extended(shots, labels, range(4, 7))

    def cosine(a, b):
        return sum(a[v] @ b[v] / (np.linalg.norm(a[v]) * np.linalg.norm(b[v])) for v in range(2)) / 2

    x, expected = shots.numpy(), []
    for i in range(6):
        others = np.mean([x[j] for j in range(6) if j != i and labels[j] == labels[i]], axis=0)
        expected.append(max(cosine(x[i], one.numpy()) for one in base) - cosine(x[i], others))
    np.testing.assert_allclose(look.margins, expected, atol=1e-12)


@pytest.mark.parametrize(("share", "recognised"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_the_constant_recognises_the_share_asked_for(share, recognised):
    margins = torch.tensor([0.3, -0.1, 0.2, 0.1])
    constant = recognising(margins, share)
    assert int((margins <= constant).sum()) >= recognised
    assert recognising(margins[:0], share) == 0


@pytest.mark.parametrize("space", [None, Space(0.5, 1.0), Space(0.7, 2.0, 0.3)])
def test_classes_learnt_at_once_or_one_by_one_answer_alike(space):
    features, labels = random(40, 2, 6).abs(), torch.arange(40) % 4
    if space is None:
        look = FirstLook.begin(prototypes(features, labels, range(4)), labels.bincount())
    else:
        look = FirstLook.whitened(features, labels, Spread.fit(features, labels, 4, space.power), space)
    shots, names = random(10, 2, 6, seed=2).abs(), torch.arange(4, 6).repeat_interleave(5)
    at_once = look.extended(shots, names, range(4, 6))
    one_by_one = look.extended(shots[:5], names[:5], range(4, 5)).extended(shots[5:], names[5:], range(5, 6))
    tests = random(8, 2, 6, seed=3).abs()
    for rule, strength in (("plain", 0.0), ("constant", 0.1), ("unbiased", 1.0), ("left_out", 0.6)):
        opened = [one.opened(one.scores(tests), rule, strength) for one in (at_once, one_by_one)]
        torch.testing.assert_close(*opened)
        torch.testing.assert_close(opened[0][:, :4], look.scores(tests))
    again = look.from_tensors(4, at_once.tensors(), 1.0 if space is None else space.power)
    torch.testing.assert_close(again.scores(tests), at_once.scores(tests))


def test_cosine_under_no_metric_is_the_cosine():
    x, y = random(5, 2, 4), random(5, 2, 4, seed=1)
    plain = cosine_under(x, y, None)
    torch.testing.assert_close(plain, cosine_under(x, y, torch.eye(4).double().expand(2, 4, 4)))
    torch.testing.assert_close(plain, similarity(x, y).diagonal())
