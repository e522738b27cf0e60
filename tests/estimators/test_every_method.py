"""Every method is an estimator: it learns, answers, is loaded again; a copy that learns leaves it alone."""

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import fairshot
from fairshot import estimators
from fairshot.errors import PathUnusable, WeightsRefused
from fairshot.estimators.estimator import MethodEstimator
from fairshot.methods import methods, plugins
from support.pages import ROOT, code_blocks
from support.pickling import pickled
from support.toys import SMALL

INSTANT = {"size": 10, "epochs": 1, "batch": 20, "device": "cpu"}
BRIEF = {"c_fscil": {"episode_epochs": 1}, "cec": {"episode_epochs": 1}, "topic": {"steps": 3, "rounds": 2}}
BRIEF |= {"bidist": {"steps": 3}, "nc_fscil": {"steps": 3}, "fcil": {"steps": 3}}


def noise(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 12), dtype=np.uint8)


def state(estimator) -> dict[str, np.ndarray]:
    return {name: value.clone().numpy() for name, value in estimator.method_.tensors().items()}


@pytest.mark.parametrize("name", methods())
def test_a_method_is_an_estimator(name, tmp_path):
    kind = getattr(fairshot, methods()[name].__name__)
    assert issubclass(kind, MethodEstimator)
    assert kind.__doc__ != MethodEstimator.__doc__
    model = kind(**INSTANT, method=SMALL.get(name, {}) | BRIEF.get(name, {}))
    assert vars(model) == model.get_params(deep=False)
    model.fit(noise(40, 0), ["a", "b", "c", "d"] * 10)
    before, X = state(model), noise(6, 1)
    answers = model.predict_proba(X)
    taught = copy.copy(model).partial_fit(X, ["e"] * 3 + ["f"] * 2 + ["a"])
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    for key, value in state(model).items():
        np.testing.assert_array_equal(before[key], value, err_msg=key)
    np.testing.assert_array_equal(model.predict_proba(X), answers)

    probabilities = taught.predict_proba(X)
    assert probabilities.shape == (6, 6)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert taught.classes_[probabilities.argmax(1)].tolist() == taught.predict(X).tolist()

    labels, weights, again = ["e", "e", "f", "a"], [2, 1, 1, 3], [0, 0, 1, 2, 3, 3, 3]
    if kind.kind.weighs_images(model.method_.settings):
        weighted = copy.copy(model).partial_fit(X[:4], labels, sample_weight=weights)
        repeated = copy.copy(model).partial_fit(X[again], [labels[i] for i in again])
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-3)
    else:
        with pytest.raises(WeightsRefused):
            copy.copy(model).partial_fit(X[:4], labels, sample_weight=weights)

    taught.save(tmp_path)
    for again in (kind.load(tmp_path), pickled(taught)):
        np.testing.assert_array_equal(again.predict_proba(X), probabilities)
        assert again.classes_.tolist() == list("abcdef")
    other = next(each for each in (fairshot.NCM, fairshot.SSS) if each is not kind)
    with pytest.raises(PathUnusable, match=f"holds an estimator of the method {name}"):
        other.load(tmp_path)


def test_a_method_of_ones_own_is_an_estimator_too(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_loaded", {})
    (block,) = code_blocks(ROOT / "docs" / "add-your-method.md", "python")
    file = tmp_path / "gentle.py"
    file.write_text(block.code)
    plugins.load_plugin(f"{file}:Gentle")
    model = estimators.Gentle(**INSTANT, method={"bonus": 0.5})
    try:
        model.fit(noise(8, 0), ["a", "b"] * 4).partial_fit(noise(2, 1), ["c", "c"])
        assert model.predict(noise(4, 2)).tolist() == ["c"] * 4
    finally:
        del estimators.Gentle
    with pytest.raises(AttributeError, match="has no attribute 'Gentler'"):
        _ = estimators.Gentler


def test_type_checkers_know_every_estimator():
    spec = importlib.util.find_spec("fairshot")
    listed = Path(spec.origin).read_text()
    for kind in methods().values():
        assert f"from fairshot.estimators import {kind.__name__} as {kind.__name__}\n" in listed
