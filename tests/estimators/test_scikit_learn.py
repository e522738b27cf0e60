"""scikit-learn's contract: its own checks, labels and weights as it gives them, and its tools around ours."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from fairshot import ALICE, FACT, NCM, SSS, SSSBGMM, TOPIC
from fairshot.errors import BadImage, BadInput, BadSetting, WeightsRefused
from fairshot.training.batches import shuffled
from fairshot.training.episodes import Episode
from support.pickling import pickled
from support.picture_adapter import PictureRows

INSTANT = {"size": 8, "epochs": 1, "batch": 8, "device": "cpu"}
STILL = {"crop_area": [0.9, 1.0], "rotation": 0, "horizontal_flip": 0, "jitter": 0}
CANNOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": (
        "an image of weight 2 is drawn twice as often, but stochastic gradient descent goes through other "
        "batches than with the image given twice"
    ),
    "check_methods_subset_invariance": (
        "the last bits of a convolution in float32 depend on the size of its batch; scikit-learn allows 1e-7"
    ),
}


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def learnt(estimator) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in estimator.method_.tensors().items()}


def assert_same(one, other) -> None:
    assert learnt(one).keys() == learnt(other).keys()
    for name, value in learnt(one).items():
        np.testing.assert_array_equal(value, learnt(other)[name], err_msg=name)
    assert one.classes_.tolist() == other.classes_.tolist()


@pytest.fixture(scope="module")
def fitted():
    return NCM(**INSTANT).fit(noise(8, 10, 10), ["a", "b"] * 4)


def copy_of(estimator):
    other = clone(estimator)
    return other.adopt(**{key: value for key, value in vars(estimator).items() if key.endswith("_")})


@pytest.mark.filterwarnings("ignore")  # of scikit-learn's checks, about what they try
def test_the_checks_of_scikit_learn_pass():
    model = SSS(**INSTANT | {"epochs": 2, "batch": 16}, views=STILL, method={"sr_width": 8})
    checks = check_estimator(PictureRows(model), expected_failed_checks=CANNOT_APPLY, on_skip=None)
    status = {check["check_name"]: check["status"] for check in checks}
    assert len(status) > 50
    assert set(CANNOT_APPLY) <= set(status)
    assert [name for name, found in status.items() if found == "skipped"] == ["check_array_api_input"]


def test_its_tags_say_that_it_takes_pictures_or_file_names():
    tags = get_tags(SSS())
    assert not tags.input_tags.two_d_array
    assert tags.input_tags.three_d_array
    assert tags.input_tags.one_d_array
    assert tags.input_tags.string
    assert tags.estimator_type == "classifier"
    assert tags.target_tags.required


def test_pipelines_grids_and_pickles_work():
    X, y = noise(12, 10, 10), np.array(["a", "b"] * 6)
    brighter = FunctionTransformer(lambda images: images // 2 + 100)
    grid = GridSearchCV(
        make_pipeline(brighter, NCM(**INSTANT)), {"ncm__learning_rate": [0.01, 0.1]}, cv=2
    ).fit(X, y, ncm__sample_weight=np.linspace(0.5, 1.5, 12))
    assert grid.best_params_["ncm__learning_rate"] in (0.01, 0.1)
    best = grid.best_estimator_[-1]
    again = pickled(best)
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))
    assert again.get_params() == best.get_params()


# Labels


def test_labels_are_any_array_and_a_column_is_taken_with_a_warning(fitted):
    X, names = noise(4, 10, 10), ["c", "c", "a", "d"]
    expected = copy_of(fitted).partial_fit(X, names)
    for y in (np.array(names), pd.Series(names), np.array(names, object), tuple(names)):
        assert_same(copy_of(fitted).partial_fit(X, y), expected)
    for column in (np.array(names)[:, None], pd.DataFrame({"label": names})):
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
            assert_same(copy_of(fitted).partial_fit(X, column), expected)
    with pytest.raises(BadInput, match=r"shape \(4, 2\)"):
        copy_of(fitted).partial_fit(X, np.array([names, names]).T)


def test_images_may_be_nested_lists(fitted):
    X = noise(3, 10, 10)
    np.testing.assert_array_equal(fitted.predict_proba(X.tolist()), fitted.predict_proba(X))
    for image in ([[0.5, 0.1]], [[0, 256]], [[1, 2], [3]]):
        with pytest.raises(BadImage) as refused:
            fitted.predict([image])
        assert refused.value.name == "X[0]"


def test_the_first_call_of_partial_fit_names_the_classes(fitted):
    X, y = noise(8, 10, 10), ["a", "b"] * 4
    first = NCM(**INSTANT)
    with pytest.raises(NotFittedError, match="call fit first, or name all classes"):
        first.partial_fit(X, y)
    assert_same(first.partial_fit(X, y, classes=["a", "b", "c"]), fitted)
    assert first.classes_.tolist() == ["a", "b"]  # what it has learnt
    first.partial_fit(X[:2], ["c", "c"], classes=np.array(["a", "b", "c"]))
    assert first.classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(BadInput, match="'d', which is not among the classes"):
        first.partial_fit(X[:2], ["c", "d"], classes=["a", "b", "c"])
    first.partial_fit(X[:2], ["d", "d"])  # without a list any label is new
    assert first.classes_.tolist() == ["a", "b", "c", "d"]


def test_a_method_that_must_know_the_number_of_classes_is_told_it():
    X, y = noise(8, 10, 10), ["a", "b"] * 4
    future = {"classes": ["a", "b", "c", "d", "e"]}
    assert len(FACT(**INSTANT).partial_fit(X, y, **future).method_.virtual) == 3
    assert len(FACT(**INSTANT, total_classes=6).fit(X, y).method_.virtual) == 4
    assert len(FACT(**INSTANT).fit(X, y).method_.virtual) == 2
    with pytest.raises(BadSetting, match="total_classes: 1 was given; y holds 2 classes"):
        FACT(**INSTANT, total_classes=1).fit(X, y)


# Weights of images


def test_an_image_of_weight_zero_is_left_out_and_weights_of_one_change_nothing(fitted):
    X, y = noise(10, 10, 10), ["a", "b"] * 5
    weights = np.array([1] * 8 + [0, 0])
    assert_same(NCM(**INSTANT).fit(X, y, sample_weight=weights), fitted)
    assert_same(NCM(**INSTANT).fit(X[:8], y[:8], sample_weight=1.0), fitted)
    assert_same(TOPIC(**INSTANT).fit(X, y, weights), TOPIC(**INSTANT).fit(X[:8], y[:8]))


def test_weights_are_those_of_images_in_the_mean_feature_of_their_class(fitted):
    X, weights = noise(4, 10, 10, seed=1), np.array([3.0, 1.0, 0.5, 2.0])
    taught = copy_of(fitted).partial_fit(X, ["c"] * 4, sample_weight=weights)
    g = taught._features(X)["g"].double()
    wanted = torch.from_numpy(weights)
    mean = torch.einsum("n,nvd->vd", wanted, g) / 6.5
    torch.testing.assert_close(taught.method_.prototypes[2].double(), mean, rtol=1e-6, atol=1e-5)
    assert taught.method_.counts.tolist() == [4, 4, 6.5]
    more = copy_of(taught).partial_fit(X[:1], ["c"], sample_weight=[3.5])
    refined = (6.5 * mean + 3.5 * g[0]) / 10
    torch.testing.assert_close(more.method_.prototypes[2].double(), refined, rtol=1e-6, atol=1e-5)


def test_sss_weighs_images_for_both_kinds_of_features(tmp_path):
    model = SSS(**INSTANT, method={"sr_width": 8}).fit(noise(8, 10, 10), ["a", "b"] * 4)
    X, weights = noise(4, 10, 10, seed=1), [2, 1, 1, 3]
    repeated = [0, 0, 1, 2, 3, 3, 3]
    weighted = copy_of(model).partial_fit(X, ["c", "c", "a", "a"], sample_weight=weights)
    plain = copy_of(model).partial_fit(X[repeated], ["c", "c", "c", "a", "a", "a", "a"])
    for name, value in learnt(plain).items():
        np.testing.assert_allclose(learnt(weighted)[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    weighted.save(tmp_path)
    assert_same(SSS.load(tmp_path), weighted)


def test_base_classes_of_a_few_images_each_are_weighted_too():
    weights = np.array([2.0, 1.0, 0.5, 1.5, 3.0, 1.0, 2.0, 0.5])
    model = ALICE(**INSTANT, method={"projector_width": 8, "fusions_per_image": 1})
    model.fit(noise(8, 10, 10), ["a", "b"] * 4, sample_weight=weights)
    assert model.method_.counts.tolist() == [7.5, 4]
    g = model._features(noise(8, 10, 10))["g"].double()
    mean = torch.einsum("n,nvd->vd", torch.from_numpy(weights[::2]), g[::2]) / 7.5
    torch.testing.assert_close(model.method_.prototypes[0].double(), mean, rtol=1e-5, atol=1e-5)


def test_in_training_images_are_drawn_as_often_as_their_weights_say():
    weights, labels = np.array([0.1, 1.0, 2.5, 4.0, 0.4]), np.arange(5)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([shuffled(labels, rng, weights) for _ in range(2000)])
    np.testing.assert_allclose(np.bincount(drawn) / 2000, 5 * weights / weights.sum(), atol=0.03)
    assert sorted(shuffled(labels, rng, np.full(5, 0.3))) == [0, 1, 2, 3, 4]
    of_class = np.array([0] * 20 + [1] * 20)
    heavy = np.tile(np.where(np.arange(20) < 10, 9.0, 1.0), 2)
    order = np.concatenate([Episode(2, 1, 1).order(of_class, rng, heavy) for _ in range(50)])
    assert np.mean(order % 20 < 10) > 0.8


def test_weights_change_the_training(fitted):
    weights = np.array([1, 1, 1, 1, 5, 5, 5, 5.0])
    other = NCM(**INSTANT).fit(noise(8, 10, 10), ["a", "b"] * 4, sample_weight=weights)
    name = "embedder.backbone.stem.0.weight"
    assert not np.array_equal(learnt(other)[name], learnt(fitted)[name])


@pytest.mark.parametrize(
    "model",
    [
        TOPIC(**INSTANT),
        SSSBGMM(**INSTANT, method={"sr_width": 8}),
        SSS(**INSTANT, method={"sr_width": 8, "whitening": True}),
    ],
    ids=["fine-tuning", "mixtures", "gate"],
)
def test_a_method_that_cannot_weigh_images_says_so(model):
    with pytest.raises(WeightsRefused) as refused:
        clone(model).fit(noise(8, 10, 10), ["a", "b"] * 4, sample_weight=[1, 2] * 4)
    assert refused.value.method == type(model).__name__


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"shape is \(2,\); give one weight per image: \(3,\)"),
        ([[1], [2], [3]], r"shape is \(3, 1\)"),
        ([1, -1, 1], "finite numbers from 0 on"),
        ([1, np.nan, 1], "finite numbers from 0 on"),
        ([0, 0, 0], "zero for all images"),
        (["x", "y", "z"], "expected numbers"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_and_change_nothing(fitted, weights, message):
    model = copy_of(fitted)
    with pytest.raises(BadInput, match=message) as refused:
        model.partial_fit(noise(3, 10, 10), ["a", "b", "c"], sample_weight=weights)
    assert refused.value.name == "sample_weight"
    assert_same(model, fitted)
