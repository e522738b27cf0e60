"""SSS with mixtures: appendix C on the features of a real network, and one base session for both methods."""

import numpy as np
import pytest
import torch

from fairshot.classifiers.calibration import recognise
from fairshot.classifiers.combination import separately
from fairshot.classifiers.mixtures import calibrate_mixtures, decay, fit_mixtures, overall_mean
from fairshot.classifiers.similarity import similarity
from fairshot.evaluation.result import Result
from fairshot.recipes import load_recipe
from support.commands import TINY, fairshot
from support.toys import after_base, toy_stream

BENCHMARKS = ("doodles", "cifar100", "mini_imagenet", "cub200")


def learnt(**options):
    method = after_base("sss_bgmm", **options)
    method.init_base_classifiers(toy_stream().base.train)  # the mixtures depend on the options
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    return method


def data(method, *parts):
    """Features and labels of some images, together."""
    embedded = [method.embed(part.pictures) for part in parts]
    labels = torch.from_numpy(np.concatenate([part.labels for part in parts]))
    return {kind: torch.cat([one[kind] for one in embedded]) for kind in embedded[0]}, labels


@pytest.mark.parametrize("resistance", [True, False])
@pytest.mark.parametrize("freedom", [None, 3.0])
def test_it_answers_by_overall_means_with_decayed_weights(resistance, freedom):
    chosen = {"gamma": 0.8, "resistance": resistance, "prior_freedom": freedom, "components_novel": 2}
    method, stream = learnt(**chosen), toy_stream()
    base, base_labels = data(method, stream.base.train)
    novel, novel_labels = data(method, *(one.train for one in stream.sessions[1:]))
    means = {}
    for kind in ("g", "g_tilde"):
        mixtures = method.classifier.h if kind == "g" else method.classifier.h_tilde
        of_base = fit_mixtures(base[kind], base_labels, range(6), 3, freedom=freedom)
        of_novel = fit_mixtures(novel[kind], novel_labels, range(6, 10), 2, freedom=freedom)
        for got, expected in ((mixtures.base, of_base), (mixtures.novel, of_novel)):
            torch.testing.assert_close(got.covariances, expected.covariances, rtol=1e-3, atol=1e-6)
        fresh, weights = overall_mean(of_novel.means, of_novel.weights), of_base.weights
        if kind == "g_tilde" and resistance:
            for one in fresh:  # one novel class after the other, as the paper has it
                weights = decay(weights, of_base.means, one[None], 0.8)
        means[kind] = torch.cat([overall_mean(of_base.means, weights), fresh]).float()
    features, _ = data(method, stream.base.test, stream.sessions[2].test)
    scores = [similarity(features[kind], means[kind]) for kind in ("g", "g_tilde")]
    torch.testing.assert_close(method.scores(features), separately(*scores, 6).scores, rtol=1e-4, atol=1e-5)


def test_a_session_leaves_the_mixtures_of_known_classes_as_they_are():
    method, stream = after_base("sss_bgmm"), toy_stream()
    method.learn(stream.sessions[1].train)
    before = {key: value.clone() for key, value in method.tensors().items() if key.startswith("mixtures.")}
    method.learn(stream.sessions[2].train)
    after = method.tensors()
    for key, value in before.items():
        assert torch.equal(after[key][: len(value)], value), key


def test_labelled_images_of_known_classes_move_them_to_the_mean_of_all():
    method, stream = learnt(), toy_stream()
    more = stream.base.test.take(np.flatnonzero(stream.base.test.labels == 2)[:7])
    for _ in range(2):  # each time they count again
        method.learn(more)
    features, labels = data(method, stream.base.train, more, more)
    expected = features["g"][labels == 2].double().mean(0)
    got = method.classifier.h.base.prior_means
    torch.testing.assert_close(got[2], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(method.classifier.prototypes[2], expected.float(), rtol=0.05, atol=0.02)
    assert method.classifier.counts.tolist() == [20, 20, 34, 20, 20, 20, 5, 5, 5, 5]


def test_calibration_is_em_on_what_each_class_recognises():
    method, stream = learnt(threshold=0.9, at_most=3, prior_base=4.0, prior_novel=2.0), toy_stream()
    mixtures, P = method.classifier.h, method.classifier.prototypes.clone()
    tilde = method.classifier.h_tilde.means.clone()
    features, _ = data(method, stream.base.test, stream.sessions[1].test)
    absorbed = recognise(similarity(features["g"], P), 0.9, 3)
    assert len(set(absorbed.tolist()) - {-1}) > 3
    method.adapt(features)
    for rows, part, strength in ((range(6), mixtures.base, 4.0), (range(6, 10), mixtures.novel, 2.0)):
        own = torch.where((absorbed >= rows.start) & (absorbed < rows.stop), absorbed - rows.start, -1)
        moved = calibrate_mixtures(part, features["g"], own, torch.full((len(rows),), strength))
        torch.testing.assert_close(
            method.classifier.prototypes[rows.start : rows.stop],
            overall_mean(moved.means, moved.weights).float(),
        )
    assert not torch.equal(method.classifier.prototypes, P)
    assert torch.equal(method.classifier.h_tilde.means, tilde)  # h alone, as the paper writes it


def test_a_restored_method_calibrates_with_the_prior_it_was_fitted_with():
    chosen = {"prior_freedom": 3.0, "threshold": 0.5}
    method, other = learnt(**chosen), after_base("sss_bgmm", **chosen)
    other.restore(method.tensors())
    features, _ = data(method, toy_stream().base.test)
    for one in (method, other):
        one.adapt(features)
    torch.testing.assert_close(other.classifier.h.base.covariances, method.classifier.h.base.covariances)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_its_training_is_that_of_sss(benchmark):
    parts = [load_recipe(f"{benchmark}/{name}").training_part() for name in ("sss", "sss_bgmm")]
    assert parts[0] == parts[1]


def test_it_takes_over_the_base_session_of_sss(tmp_path):
    done = fairshot(tmp_path, "run", "doodles/sss", "--out", "sss", *TINY)
    assert done.process.exitcode == 0, done.stderr
    done = fairshot(tmp_path, "run", "doodles/sss_bgmm", "--base", "sss", "--out", "taken", *TINY)
    assert done.process.exitcode == 0, done.stderr
    done = fairshot(tmp_path, "run", "doodles/sss_bgmm", "--out", "trained", *TINY)
    assert done.process.exitcode == 0, done.stderr
    taken, trained = Result.read(tmp_path / "taken"), Result.read(tmp_path / "trained")
    assert taken.confusions == trained.confusions
    assert taken.method == "sss_bgmm"
    refused = fairshot(tmp_path, "run", "doodles/ncm", "--base", "sss", "--out", "ncm", *TINY[:10])
    assert refused.process.exitcode == 2
    assert "another recipe" in refused.stderr
