"""The gate: each rule against its formula written out, and what it is for."""

import math

import numpy as np
import pytest
import torch

from fairshot.classifiers.gate import TransferableClassifier
from fairshot.classifiers.novel_bias import noise, noise_ratio, recognising, unbiasing
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity
from fairshot.classifiers.whitening import ClassCovariances, ClassMetrics, WithinClassCovariance, tukey


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SPACES = {"as they are": (), "whitened": (0.5, 1.0), "own covariance": (0.7, 2.0, 0.3)}


def fitted(features, labels, power=None, shrinkage=1.0, share=0.0):
    """The classifier that knows the base classes; without a power, features are compared as they are."""
    counts = labels.bincount()
    if power is None:
        return TransferableClassifier.of_base(prototypes(features, labels, range(len(counts))), counts)
    spread = WithinClassCovariance.fit(features, labels, len(counts), power)
    own = ClassCovariances.fit(features, labels, spread, shrinkage).metrics(share) if share else None
    return TransferableClassifier.whitened(spread, counts, shrinkage, own)


def matrices(metrics):
    """The metrics of base classes (B, V, d, d), written out."""
    return metrics.common - metrics.roots.mT @ metrics.roots


def with_bias(classifier, scores, bias, strength):
    base = classifier.base_classes
    novel = classifier.novel_bias(bias, scores.new_tensor(strength)).added_to(scores[:, base:])
    return torch.cat([scores[:, :base], novel], dim=1)


def test_a_constant_is_added_to_novel_classes_alone():
    scores = random(4, 5)
    got = with_bias(fitted(random(3, 1, 2), torch.arange(3)), scores, "constant", 0.1)
    torch.testing.assert_close(got[:, :3], scores[:, :3])
    torch.testing.assert_close(got[:, 3:], scores[:, 3:] + 0.1)


# --- whitening


def test_whitening_follows_its_formula():
    features, labels = random(60, 2, 5).abs(), torch.arange(60) % 3
    got = WithinClassCovariance.fit(features, labels, 3, power=0.5).whitening(0.7)
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
    space = WithinClassCovariance.fit(features, labels, 2, power=1.0).whitening(1e-6)
    after = space.transform(features)
    residual = after - prototypes(after, labels, [0, 1])[labels]
    spread = residual[:, 0].var(0)
    assert spread.max() / spread.min() < 1.5
    features_residual = tukey(features, 1.0) - prototypes(tukey(features, 1.0), labels, [0, 1])[labels]
    assert features_residual[:, 0].var(0).max() / features_residual[:, 0].var(0).min() > 10


def test_whitening_of_features_without_variance_stays_finite():
    spread = WithinClassCovariance.fit(torch.rand(6, 2, 4).repeat(2, 1, 1), torch.arange(6).repeat(2), 6, 0.5)
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
    assert (plain * unbiasing(shots, ratio)).mean().item() == pytest.approx(known, abs=0.002)
    torch.testing.assert_close(plain * unbiasing(shots, ratio, strength=0.0), plain)


def test_unbias_gives_more_to_classes_of_fewer_shots():
    got = 0.5 * unbiasing(torch.tensor([[5, 1]]), 2.0)
    assert got[0].tolist() == pytest.approx([0.5 * math.sqrt(1.4), 0.5 * math.sqrt(3)])


@pytest.mark.parametrize("shots", [torch.ones(5, 1, 4), torch.zeros(5, 1, 4), torch.rand(1, 1, 4)])
def test_the_ratio_of_degenerate_shots_is_none(shots):
    found = noise(shots, torch.zeros(len(shots), dtype=torch.int64), range(1))
    assert noise_ratio(found, torch.tensor([len(shots)])) == 0


# --- classes with their own covariance


def inverse_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**-0.5) @ vectors.T


@pytest.mark.parametrize("width", [4, 40], ids=["more images than features", "fewer images"])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32], ids=str)
def test_own_metrics_are_the_shrunk_covariance_of_the_class_seen_in_the_whitened_space(width, kind):
    """A cosine under a class's metric is the cosine after whitening by a mix of pooled and own covariance."""
    features, images = random(90, 2, width).abs(), random(5, 2, width, seed=1).abs()
    labels, share, shrinkage = torch.cat([torch.arange(80) % 3, torch.full((10,), 2)]), 0.3, 0.7
    got = fitted(features.to(kind), labels, 1.0, shrinkage, share).scores(images.to(kind))
    x, images = tukey(features, 1.0).numpy(), tukey(images, 1.0).numpy()
    expected = np.zeros((5, 3))
    for view in range(2):
        means = np.array([x[labels == c, view].mean(0) for c in range(3)])
        residual = x[:, view] - means[labels]
        pooled = residual.T @ residual / 90
        unit = np.trace(pooled) / width
        for c in range(3):
            mine = residual[labels == c]
            own = mine.T @ mine / len(mine)
            mixed = ((1 - share) * pooled + share * own) / unit + shrinkage * np.eye(width)
            root, centre = inverse_root(mixed), means.mean(0)
            prototype = root @ (means[c] - centre)
            for i in range(5):
                image = root @ (images[i, view] - centre)
                norms = np.linalg.norm(image) * np.linalg.norm(prototype)
                expected[i, c] += image @ prototype / norms / 2
    np.testing.assert_allclose(got, expected, atol=1e-9 if kind == torch.float64 else 1e-5)


def test_without_a_share_the_metric_is_that_of_the_whitened_space():
    features, labels = random(60, 2, 5).abs(), torch.arange(60) % 3
    spread = WithinClassCovariance.fit(features, labels, 3, power=0.5)
    metrics = ClassCovariances.fit(features, labels, spread, 1.0).metrics(0.0)
    torch.testing.assert_close(matrices(metrics), torch.eye(5).double().expand(3, 2, 5, 5))


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_lengths_are_those_under_the_metrics_written_out(share):
    features, labels, images = random(60, 2, 5).abs(), torch.arange(60) % 3, random(7, 2, 5, seed=1)
    metrics = fitted(features, labels, 0.5, 0.7, share).metrics
    expected = torch.einsum("nvd,bvde,nve->nbv", images, matrices(metrics), images)
    torch.testing.assert_close(metrics.squares(images), expected)


def test_lengths_that_are_known_are_not_computed_again():
    classifier = fitted(random(40, 2, 6).abs(), torch.arange(40) % 4, *SPACES["own covariance"])
    tests = random(8, 2, 6, seed=3).abs()
    squares = classifier.project(tests).squares
    torch.testing.assert_close(classifier.scores(tests, squares), classifier.scores(tests))
    torch.testing.assert_close(classifier.scores(tests, 4 * squares), classifier.scores(tests) / 2)


def test_metrics_that_were_stored_as_whole_matrices_are_still_read():
    classifier = fitted(random(40, 2, 6).abs(), torch.arange(40) % 4, *SPACES["own covariance"])
    tests, tensors = random(8, 2, 6, seed=3).abs(), classifier.tensors()
    old = {name: value for name, value in tensors.items() if name not in ("metric_common", "metric_roots")}
    again = classifier.from_tensors(4, old | {"metrics": matrices(classifier.metrics)}, 0.7)
    torch.testing.assert_close(again.scores(tests), classifier.scores(tests))


def test_a_novel_class_borrows_most_from_the_base_class_most_similar_to_it():
    base, raw = torch.eye(3).double()[:, None], random(3, 1, 3, 3)
    metrics = ClassMetrics.of_matrices(raw @ raw.mT, torch.eye(3).double()).extended(base[:1] + 0.1, base)
    alike = [float(similarity(base[:1] + 0.1, one[None])) for one in base]
    weights = np.exp(16 * np.array(alike))
    borrowed = np.einsum("b,bvde->vde", weights / weights.sum(), raw @ raw.mT)
    P = random(4, 1, 3, seed=3)
    expected = np.einsum("cvde,cve->cvd", np.concatenate([raw @ raw.mT, borrowed[None]]), P)
    np.testing.assert_allclose(metrics.weighted(P), expected)


# --- shots left out


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_margins_compare_each_shot_with_its_class_without_it(space):
    classifier, shots = (
        fitted(random(40, 2, 3).abs(), torch.arange(40) % 4, *space),
        random(7, 2, 3, seed=1).abs(),
    )
    labels = torch.tensor([4, 4, 4, 5, 5, 5, 6])  # class 6 has nothing left without its shot
    classifier = classifier.extended(classifier.project(shots), labels, range(4, 7))
    metrics = torch.eye(3).double().expand(7, 2, 3, 3)
    if classifier.metrics is not None:
        metrics = torch.einsum("cb,bvde->cvde", classifier.metrics.shares, matrices(classifier.metrics))
    x, P, metrics = classifier.values(shots).numpy(), classifier.prototypes.numpy(), metrics.numpy()

    def cosine(a, b, metric):
        found = []
        for u, v, M in zip(a, b, metric, strict=True):
            found.append(u @ M @ v / math.sqrt((u @ M @ u) * (v @ M @ v)))
        return sum(found) / 2

    expected = []
    for i, own in enumerate(labels[:6].tolist()):
        others = np.mean([x[j] for j in range(6) if j != i and labels[j] == own], axis=0)
        best = max(cosine(x[i], P[c], metrics[c]) for c in range(4))
        expected.append(best - cosine(x[i], others, metrics[own]))
    np.testing.assert_allclose(classifier.margins, expected, atol=1e-12)


@pytest.mark.parametrize(("share", "recognised"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_the_constant_recognises_the_share_asked_for(share, recognised):
    margins = torch.tensor([0.3, -0.1, 0.2, 0.1])
    constant = recognising(margins, torch.tensor(share))
    assert int((margins <= constant).sum()) >= recognised
    assert recognising(margins[:0], torch.tensor(share)) == 0


RULES = (("plain", 0.0), ("constant", 0.1), ("unbiased", 1.0), ("left_out", 0.6))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_classes_learnt_at_once_or_one_by_one_answer_alike(space):
    classifier = fitted(random(40, 2, 6).abs(), torch.arange(40) % 4, *space)
    shots, names = classifier.project(random(9, 2, 6, seed=2).abs()), torch.tensor([4] * 5 + [5] * 3 + [6])
    at_once, one_by_one = classifier.extended(shots, names, range(4, 7)), classifier
    tests = random(8, 2, 6, seed=3).abs()
    for label in range(4, 7):
        mine = names == label
        one_by_one = one_by_one.extended(shots.take(mine), names[mine], range(label, label + 1))
        known = at_once.upto(label + 1)
        for rule, strength in RULES:
            biased = [with_bias(one, one.scores(tests), rule, strength) for one in (known, one_by_one)]
            torch.testing.assert_close(*biased)
            torch.testing.assert_close(biased[0][:, :4], classifier.scores(tests))
    again = classifier.from_tensors(4, at_once.tensors(), space[0] if space else 1.0)
    torch.testing.assert_close(again.scores(tests), at_once.scores(tests))


@pytest.mark.parametrize("rule", ["plain", "constant", "unbiased", "left_out"])
def test_several_strengths_at_once_bias_as_each_alone(rule):
    classifier = fitted(random(40, 2, 6).abs(), torch.arange(40) % 4)
    classifier = classifier.extended(
        classifier.project(random(6, 2, 6, seed=2)), torch.tensor([4, 4, 4, 4, 5, 5]), range(4, 6)
    )
    scores, strengths = classifier.scores(random(8, 2, 6, seed=3)), torch.tensor([0.0, 0.3, 0.9]).double()
    together = classifier.novel_bias(rule, strengths[:, None, None]).added_to(scores[:, 4:])
    for strength, got in zip(strengths.tolist(), together, strict=True):
        torch.testing.assert_close(got, with_bias(classifier, scores, rule, strength)[:, 4:])


@pytest.mark.parametrize("first", [1, 2, 4])
def test_noise_of_shots_that_come_later_is_that_of_all_shots(first):
    """A class taught image by image has the noise of the class taught at once."""
    shots, labels = random(10, 2, 6).abs(), torch.arange(10) % 2 + 4
    classifier = fitted(random(40, 2, 6, seed=1).abs(), torch.arange(40) % 4, 0.5, 1.0)
    at_once = classifier.extended(classifier.project(shots), labels, range(4, 6))
    part = classifier.extended(classifier.project(shots[: 2 * first]), labels[: 2 * first], range(4, 6))
    later = part.extended(part.project(shots[2 * first :]), labels[2 * first :], range(6, 6))
    torch.testing.assert_close(later.noise, at_once.noise)
    torch.testing.assert_close(later.prototypes, at_once.prototypes)
    assert later.counts.tolist() == at_once.counts.tolist()
    assert len(later.margins) == len(part.margins) + len(shots) - 2 * first
    base = classifier.extended(classifier.project(shots[:1]), torch.tensor([0]), range(4, 4))
    assert len(base.noise) == len(base.margins) == 0
