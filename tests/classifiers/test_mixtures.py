"""BGMM classifiers against scikit-learn, and against appendix C written out in loops."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, _bayesian_mixture

from fairshot.classifiers import mixtures as module
from fairshot.classifiers.mixtures import calibrate_mixtures, decay, fit_mixtures, overall_mean
from fairshot.classifiers.variational import Prior, Sums, maximisation

CLASSES, COMPONENTS = [4, 0, 2], 3


class FromResponsibilities(BayesianGaussianMixture):
    """scikit-learn's mixture, started from given responsibilities instead of its own k-means."""

    def started_from(self, responsibilities):
        self.start_ = responsibilities
        return self

    def _initialize_parameters(self, X, random_state, xp=None):
        self._initialize(X, self.start_)

    def _check_precision_parameters(self, X):
        """Allow any degrees of freedom; scikit-learn wants more than d - 1."""
        self.degrees_of_freedom_prior_ = self.degrees_of_freedom_prior or X.shape[1]


def clusters(d, dtype=torch.float64, seed=0):
    """Features (N, 2, d) of classes 0 .. 4 with three clusters each, of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((count,), c) for c, count in enumerate([40, 5, 12, 3, 70])])
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centres = 1.5 * torch.randn(5, 3, 2, d, generator=generator) + 2
    which = torch.randint(0, 3, (len(labels),), generator=generator)
    noise = torch.randn(len(labels), 2, d, generator=generator)
    responsibilities = torch.rand(len(labels), 2, COMPONENTS, generator=generator, dtype=torch.float64)
    responsibilities /= responsibilities.sum(-1, keepdim=True)
    return (centres[labels, which] + noise).to(dtype), labels, responsibilities


def reference(values, responsibilities, **settings):
    model = FromResponsibilities(n_components=responsibilities.shape[1], covariance_type="diag", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.started_from(responsibilities).fit(values)


def worth(freedom, values):
    """The priors of scikit-learn that are a covariance worth so many samples."""
    if freedom is None:
        return {}
    return {"degrees_of_freedom_prior": freedom, "covariance_prior": freedom * values.var(0, ddof=1)}


def assert_same(ours, theirs, row, view):
    np.testing.assert_allclose(ours.weights[row, view], theirs.weights_, atol=1e-8)
    np.testing.assert_allclose(ours.means[row, view], theirs.means_, atol=1e-8)
    np.testing.assert_allclose(ours.covariances[row, view], theirs.covariances_, atol=1e-8)
    assert ours.lower_bound[row, view].item() == pytest.approx(theirs.lower_bound_, abs=1e-6)
    assert ours.iterations[row, view] == theirs.n_iter_


@pytest.fixture
def gamma_priors(monkeypatch):
    """Let scikit-learn take each dimension by itself: nu / 2 where it has (nu - i) / 2, i = 0 .. d - 1."""

    def alike(function):
        return lambda x: function(np.broadcast_to(x[:1], x.shape) if np.ndim(x) == 2 else x)

    for name in ("digamma", "gammaln"):
        monkeypatch.setattr(_bayesian_mixture, name, alike(getattr(_bayesian_mixture, name)))


@pytest.mark.parametrize("d", [1, 4, 33])
@pytest.mark.parametrize("max_iterations", [1, 100])
def test_agrees_with_scikit_learn_class_by_class(d, max_iterations):
    features, labels, start = clusters(d)
    ours = fit_mixtures(features, labels, CLASSES, COMPONENTS, start, max_iterations=max_iterations)
    for row, c in enumerate(CLASSES):
        for view in range(2):
            mine = labels == c
            theirs = reference(
                features[mine, view].numpy(), start[mine, view].numpy(), max_iter=max_iterations
            )
            assert_same(ours, theirs, row, view)


@pytest.mark.parametrize("freedom", [0.5, 3.0, 40.0])
def test_a_freedom_is_that_of_scikit_learn_in_one_dimension(freedom):
    """There a Wishart distribution is a gamma distribution, and scikit-learn allows any freedom."""
    features, labels, start = clusters(1)
    ours = fit_mixtures(features, labels, CLASSES, COMPONENTS, start, freedom=freedom)
    for row, c in enumerate(CLASSES):
        values = features[labels == c, 0].numpy()
        assert_same(ours, reference(values, start[labels == c, 0].numpy(), **worth(freedom, values)), row, 0)


@pytest.mark.parametrize("d", [4, 33])
@pytest.mark.parametrize("freedom", [0.5, 3.0, 40.0])
def test_a_freedom_is_that_of_scikit_learn_with_each_dimension_by_itself(d, freedom, gamma_priors):
    features, labels, start = clusters(d)
    ours = fit_mixtures(features, labels, CLASSES, COMPONENTS, start, freedom=freedom)
    for row, c in enumerate(CLASSES):
        values = features[labels == c, 0].numpy()
        assert_same(ours, reference(values, start[labels == c, 0].numpy(), **worth(freedom, values)), row, 0)


@pytest.mark.parametrize("freedom", [0.1, 10.0, 1000.0])
def test_with_a_freedom_the_bound_never_falls(freedom):
    """Only if the E step, the M step and the bound are of one and the same model."""
    features, labels, start = clusters(20)
    bounds = [
        fit_mixtures(features, labels, CLASSES, COMPONENTS, start, 0, steps, freedom).lower_bound
        for steps in range(1, 8)
    ]
    assert (torch.stack(bounds).diff(dim=0) >= -1e-4).all()


@pytest.mark.parametrize("freedom", [1.0, 30.0, 1000.0])
def test_a_freedom_keeps_components_apart_where_the_default_makes_them_one(freedom):
    features, labels, _ = clusters(100)
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    features = 0.3 * features + 0.95 * noise  # clusters that overlap in every single dimension
    collapsed = fit_mixtures(features, labels, [0, 4], COMPONENTS)
    apart = fit_mixtures(features, labels, [0, 4], COMPONENTS, freedom=freedom)
    assert (collapsed.weights.amax(-1) > 0.9).all()
    assert (apart.weights.amax(-1) < 0.6).all()


def test_float32_features_agree_too():
    features, labels, start = clusters(48, torch.float32)
    ours = fit_mixtures(features, labels, CLASSES, COMPONENTS, start)
    for row, c in enumerate(CLASSES):
        mine = labels == c
        theirs = reference(features[mine, 0].double().numpy(), start[mine, 0].numpy())
        np.testing.assert_allclose(ours.weights[row, 0], theirs.weights_, atol=1e-4)
        np.testing.assert_allclose(ours.means[row, 0], theirs.means_, atol=1e-4)
        np.testing.assert_allclose(ours.covariances[row, 0], theirs.covariances_, atol=1e-4)
        assert ours.lower_bound[row, 0].item() == pytest.approx(theirs.lower_bound_, rel=1e-6)


def test_blocks_of_classes_give_the_same_as_all_at_once(monkeypatch):
    features, labels, start = clusters(6)
    whole = fit_mixtures(features, labels, CLASSES, COMPONENTS, start)
    monkeypatch.setitem(module.BLOCK_BYTES, "cpu", 1)
    single = fit_mixtures(features, labels, CLASSES, COMPONENTS, start)
    torch.testing.assert_close(single.means, whole.means)
    torch.testing.assert_close(single.covariances, whole.covariances)
    torch.testing.assert_close(single.lower_bound, whole.lower_bound)


def test_its_own_start_finds_the_clusters_that_scikit_learn_finds():
    features, labels, _ = clusters(40, seed=3)
    ours = fit_mixtures(features, labels, [0, 4], COMPONENTS)
    for row, c in enumerate([0, 4]):
        theirs = BayesianGaussianMixture(
            n_components=COMPONENTS, covariance_type="diag", random_state=0, n_init=5
        ).fit(features[labels == c, 0].numpy())
        found, wanted = ours.means[row, 0], torch.as_tensor(theirs.means_)
        assert torch.cdist(found, wanted).amin(1).max() < 0.5
        assert ours.lower_bound[row, 0].item() >= theirs.lower_bound_ - 1


def test_one_component_is_the_shrunk_mean():
    features, labels, _ = clusters(5)
    novel = fit_mixtures(features, labels, [1, 3], 1)
    for row, c in enumerate([1, 3]):
        torch.testing.assert_close(novel.means[row, :, 0], features[labels == c].mean(0))
    assert novel.weights.flatten().tolist() == [1] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "features",
    [
        torch.ones(5, 2, 6),  # identical shots
        torch.ones(1, 2, 6),  # a single shot
        torch.zeros(5, 2, 6),  # nothing active
        torch.cat([torch.rand(5, 2, 3), torch.zeros(5, 2, 3)], -1),  # features without variance
        torch.cat([torch.ones(4, 2, 6), 1e4 * torch.ones(1, 2, 6)]),  # an outlier
    ],
    ids=["identical", "single", "zeros", "constant features", "outlier"],
)
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("freedom", [None, 1e-3, 1.0, 1e4])
def test_degenerate_classes_stay_finite(features, dtype, components, freedom):
    features, labels = features.to(dtype), torch.zeros(len(features), dtype=torch.int64)
    fitted = fit_mixtures(features, labels, [0], components, freedom=freedom)
    moved = calibrate_mixtures(fitted, features, labels, torch.tensor([2.0]))
    weaker = decay(fitted.weights, fitted.means, fitted.means[:, :, 0], gamma=1.0)
    for values in (fitted.weights, fitted.means, fitted.covariances, fitted.lower_bound, moved.means, weaker):
        assert values.isfinite().all()
    assert (fitted.covariances > 0).all()
    mean = overall_mean(fitted.means, fitted.weights)
    assert (mean >= features.min() - 1e-5).all()
    assert (mean <= features.max() + 1e-5).all()


def test_a_component_emptied_by_rounding_keeps_a_variance():
    sums = Sums(torch.zeros(1, 1, 4, dtype=torch.float64), torch.full((1, 1, 6), -1e-9, dtype=torch.float64))
    prior = Prior(torch.zeros(1, 3), torch.ones(1, 1), torch.zeros(1, 3), 1.0)
    posterior = maximisation(sums, prior)
    assert (posterior.covariances > 0).all()
    assert posterior.log_determinants.isfinite().all()


def test_the_start_of_a_short_class_is_not_swayed_by_its_padding():
    features, labels, _ = clusters(5)
    features[labels == 4] *= 50
    together, alone = (fit_mixtures(features, labels, classes, COMPONENTS) for classes in ([2, 4], [2]))
    torch.testing.assert_close(together.means[0], alone.means[0])


def test_a_class_without_features_is_named():
    features, labels, _ = clusters(3)
    with pytest.raises(ValueError, match=r"\[9\]"):
        fit_mixtures(features, labels, [0, 9], 1)


def test_overall_mean_weighs_the_components():
    means, weights = torch.arange(12.0).reshape(1, 2, 3, 2), torch.tensor([[[0.5, 0.3, 0.2], [0, 0, 1.0]]])
    got = overall_mean(means, weights)
    torch.testing.assert_close(got[0, 0], 0.5 * means[0, 0, 0] + 0.3 * means[0, 0, 1] + 0.2 * means[0, 0, 2])
    torch.testing.assert_close(got[0, 1], means[0, 1, 2])


# --- Resistance, eq. 22 and 23


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_decay_weakens_the_component_most_similar_to_each_novel_class():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(2, 2, 3, 4, generator=generator, dtype=torch.float64)
    novel = torch.randn(5, 2, 4, generator=generator, dtype=torch.float64)
    weights = torch.rand(2, 2, 3, generator=generator, dtype=torch.float64).softmax(-1)
    gamma = 0.7
    got = decay(weights, means, novel, gamma)
    for c in range(2):
        for j in range(2):
            pi = weights[c, j].tolist()
            for i in range(5):
                similar = [cosine(means[c, j, m].tolist(), novel[i, j].tolist()) for m in range(3)]
                k = max(range(3), key=lambda m: similar[m])
                pi[k] *= min(gamma * (1 - similar[k]), 1)
                pi = [p / sum(pi) for p in pi]
            assert got[c, j].tolist() == pytest.approx(pi)


def test_an_unlike_novel_class_weakens_nothing():
    means = torch.tensor([[[[1.0, 0.1], [1.0, -0.1]]]])
    weights = torch.tensor([[[0.3, 0.7]]])
    torch.testing.assert_close(decay(weights, means, torch.tensor([[[-1.0, 0.2]]]), gamma=1.0), weights)


def test_decay_moves_the_overall_mean_away_from_the_novel_class():
    features, labels, _ = clusters(12, seed=5)
    base = fit_mixtures(features, labels, [0, 4], COMPONENTS)
    novel = base.means[:1, :, 0] + 0.1
    before = overall_mean(base.means, base.weights)
    after = overall_mean(base.means, decay(base.weights, base.means, novel, gamma=0.9))
    towards = torch.cosine_similarity(before[0], novel[0], dim=-1)
    assert (torch.cosine_similarity(after[0], novel[0], dim=-1) < towards).all()


# --- Calibration, eq. 24


@pytest.mark.parametrize("freedom", [None, 2.5])
def test_calibration_is_em_with_the_training_mean_as_prior(freedom, request):
    """scikit-learn warm-started from the training fit, with its priors replaced, does the same."""
    if freedom is not None:
        request.getfixturevalue("gamma_priors")
    features, labels, start = clusters(4)
    fitted = fit_mixtures(features, labels, [0, 2], COMPONENTS, start, freedom=freedom)
    unlabelled = features[labels == 4][:30] * 0.5
    absorbed = torch.tensor([0] * 18 + [-1] * 12)
    strength = 7.0
    moved = calibrate_mixtures(fitted, unlabelled, absorbed, torch.tensor([strength, 3.0]))
    for view in range(2):
        train = features[labels == 0, view].numpy()
        theirs = reference(train, start[labels == 0, view].numpy(), **worth(freedom, train))
        theirs.set_params(
            warm_start=True,
            mean_prior=train.mean(0),
            mean_precision_prior=strength,
            covariance_prior=(freedom or 1) * train.var(0, ddof=1),
        )
        theirs.lower_bound_ = -np.inf
        theirs.fit(unlabelled[:18, view].numpy())
        np.testing.assert_allclose(moved.means[0, view], theirs.means_, atol=1e-8)
        np.testing.assert_allclose(moved.weights[0, view], theirs.weights_, atol=1e-8)
        np.testing.assert_allclose(moved.covariances[0, view], theirs.covariances_, atol=1e-8)
    assert torch.equal(moved.means[1], fitted.means[1])  # absorbed nothing
    assert torch.equal(moved.fit.prior.mean, fitted.fit.prior.mean)


def test_a_stronger_prior_calibrates_less_and_repetition_does_not_drift():
    features, labels, _ = clusters(6)
    fitted = fit_mixtures(features, labels, [1], 1)
    samples = features[labels == 1] + 3
    nobody = torch.zeros(len(samples), dtype=torch.int64)

    def shift(strength, times):
        moved = fitted
        for _ in range(times):
            moved = calibrate_mixtures(moved, samples, nobody, torch.tensor([strength]))
        mean = overall_mean(moved.means, moved.weights)
        return (mean - overall_mean(fitted.means, fitted.weights)).norm().item()

    assert shift(20.0, 1) < shift(2.0, 1)
    assert shift(2.0, 10) == pytest.approx(shift(2.0, 1))


def test_a_calibration_that_absorbs_nothing_changes_nothing():
    features, labels, _ = clusters(6)
    fitted = fit_mixtures(features, labels, [1, 2], 1)
    for arriving in (features[:4], features[:0]):
        nobody = torch.full((len(arriving),), -1)
        moved = calibrate_mixtures(fitted, arriving, nobody, torch.tensor([2.0, 2.0]))
        assert torch.equal(moved.means, fitted.means)


def test_joined_mixtures_keep_both():
    features, labels, _ = clusters(4)
    both = fit_mixtures(features, labels, [1], 1).join(fit_mixtures(features, labels, [3], 1))
    alone = fit_mixtures(features, labels, [1, 3], 1)
    torch.testing.assert_close(both.means, alone.means)
    torch.testing.assert_close(both.fit.prior.covariance, alone.fit.prior.covariance)
    assert both.weights.shape == (2, 2, 1)
