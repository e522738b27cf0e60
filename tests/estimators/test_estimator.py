"""The estimator: scikit-learn's conventions, images and labels of any kind, and never a half-learnt state."""

import copy
import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from fairshot import SSS
from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import LabelledPictures, StreamSettings
from fairshot.documents import write_json
from fairshot.errors import BadInput, BadSetting, DamagedFile, PathUnusable, TrainingStopped, UserError
from fairshot.estimators.inputs import Targets
from fairshot.files import PARTIAL
from fairshot.methods import sss
from fairshot.training.batches import seed_of
from fairshot.training.loop import Trainer
from fairshot.training.views import ViewSettings

LEARNING = {"size": 14, "epochs": 5, "batch": 15, "learning_rate": 0.05, "training": {"momentum": 0.8}}
VIEWS = {"views": {"crop_area": [0.7, 1.3], "rotation": 10, "jitter": 0}, "method": {"sr_width": 64}}
INSTANT = {"size": 8, "epochs": 1, "batch": 8, "method": {"sr_width": 8}}


def arrays(given: LabelledPictures) -> np.ndarray:
    return np.stack(list(given.pictures))[..., 0]


@pytest.fixture(scope="module")
def stream():
    return load_stream("doodles", StreamSettings(base_classes=5, way=3, sessions=1))


@pytest.fixture(scope="module")
def names(stream):
    return np.array(stream.class_names)


@pytest.fixture(scope="module")
def fitted(stream, names):
    base = stream.base.train
    return SSS(**LEARNING, **VIEWS).fit(arrays(base), names[base.labels])


@pytest.fixture(scope="module")
def taught(fitted, stream, names):
    shots = stream.sessions[1].train
    return copy_of(fitted).partial_fit(arrays(shots), names[shots.labels])


def copy_of(estimator: SSS) -> SSS:
    """Another estimator that has learnt the same; learning replaces what is learnt, it never changes it."""
    other = clone(estimator)
    other.__dict__.update({key: value for key, value in vars(estimator).items() if key.endswith("_")})
    return other


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(scope="module")
def instant():
    """Fitted in no time, on noise: for what does not depend on learning well."""
    return SSS(**INSTANT).fit(noise(8, 10, 10, 3), ["a", "b"] * 4)


def state(estimator: SSS) -> dict[str, np.ndarray]:
    tensors = {name: value.clone().numpy() for name, value in estimator.method_.tensors().items()}
    return tensors | {"classes": estimator.classes_.copy()}


def assert_same(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> None:
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


# Conventions


def test_the_constructor_stores_its_arguments_and_nothing_else():
    views = {"rotation": 3}
    estimator = SSS(epochs=3, views=views, gamma=0.1)
    assert vars(estimator) == estimator.get_params(deep=False)
    assert estimator.views is views
    assert clone(estimator).get_params() == estimator.get_params()
    assert clone(estimator).set_params(seed=4).seed == 4
    assert repr(SSS(epochs=3)) == "SSS(epochs=3)"


def test_what_is_not_fitted_says_so(tmp_path):
    X = noise(2, 8, 8)
    for use in (
        lambda: SSS().predict(X),
        lambda: SSS().predict_proba(X),
        lambda: SSS().score(X, [0, 1]),
        lambda: SSS().partial_fit(X, [0, 1]),
        lambda: SSS().adapt(X),
        lambda: SSS().save(tmp_path),
    ):
        with pytest.raises(NotFittedError):
            use()
    assert not list(tmp_path.iterdir())


def test_importing_the_package_imports_no_torch():
    code = "import sys, fairshot; assert 'torch' not in sys.modules; fairshot.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "AttributeError: module 'fairshot' has no attribute 'nothing'" in done.stderr


def test_it_works_inside_scikit_learn():
    X, y = noise(12, 8, 8, 3), np.array(["a", "b"] * 6)
    assert len(cross_val_score(SSS(**INSTANT), X, y, cv=2)) == 2
    assert is_classifier(SSS())


def test_few_images_are_seen_more_often():
    assert SSS()._trainer(images=2250, channels=1).settings.epochs == 25
    few = SSS()._trainer(images=20, channels=1).settings
    assert (few.epochs, few.warmup_epochs) == (600, 120)
    assert SSS(epochs=3)._trainer(images=20, channels=1).settings.epochs == 3
    assert SSS(training={"epochs": 4})._trainer(images=20, channels=1).settings.epochs == 4
    assert SSS()._trainer(images=20, channels=1).views.jitter == 0
    assert SSS()._trainer(images=20, channels=3).views == ViewSettings()


# Learning


def test_base_classes_are_learnt(fitted, stream, names):
    test = stream.base.test
    assert fitted.score(arrays(test), names[test.labels]) > 0.6
    assert fitted.classes_.tolist() == sorted(names[:5])
    assert len(fitted.history_) == 5
    assert fitted.history_[-1]["loss"] < fitted.history_[0]["loss"]


def test_new_classes_are_learnt_from_five_images_each(taught, fitted, stream, names):
    test = stream.sessions[1].test
    assert taught.score(arrays(test), names[test.labels]) > 0.45  # 8 classes
    assert taught.classes_.tolist() == sorted(names[:5]) + sorted(names[5:8])
    assert len(fitted.classes_) == 5


def test_shuffled_labels_teach_nothing(stream, names):
    """What the floors above are worth."""
    base, test = stream.base.train, stream.base.test
    wrong = np.random.default_rng(0).permutation(names[base.labels])
    estimator = SSS(**LEARNING, **VIEWS).fit(arrays(base), wrong)
    assert estimator.score(arrays(test), names[test.labels]) < 0.4


def test_probabilities_are_the_softmax_of_the_scaled_cosines_that_decide(taught, stream):
    X = arrays(stream.sessions[1].test)[:20]
    method = taught.method_
    scores = method.scores(method.embed(stream.sessions[1].test.pictures.take(range(20)))).double().numpy()
    expected = np.exp(method.settings.scale * scores)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(taught.predict_proba(X), expected, atol=1e-5)
    np.testing.assert_allclose(taught.predict_proba(X).sum(1), 1)
    best = taught.classes_[taught.predict_proba(X).argmax(1)]
    assert taught.predict(X).tolist() == best.tolist()


def test_labelled_images_of_known_classes_refine_them(taught, stream, names):
    """A prototype stays the mean of all labelled images; no class is added."""
    estimator, test = copy_of(taught), stream.sessions[1].test
    novel = test.take(np.flatnonzero(test.labels == 5)[:3])
    column = estimator.classes_.tolist().index(names[5])
    before = estimator.method_.classifier.prototypes[column]
    estimator.partial_fit(arrays(novel), names[novel.labels])
    mean = estimator.method_.embed(novel.pictures)["g"].mean(0)
    torch.testing.assert_close(estimator.method_.classifier.prototypes[column], (5 * before + 3 * mean) / 8)
    assert estimator.classes_.tolist() == taught.classes_.tolist()
    assert estimator.method_.classifier.counts[column] == 8


def test_known_and_new_labels_may_come_together_and_in_any_order(fitted, stream, names):
    """One call or one for each class: the classifiers are the same, only the columns may differ."""
    shots = stream.sessions[1].train
    together = copy_of(fitted).partial_fit(arrays(shots), names[shots.labels])
    singly = copy_of(fitted)
    for label in (7, 5, 6):
        chosen = shots.take(np.flatnonzero(shots.labels == label)[::-1].copy())
        singly.partial_fit(arrays(chosen), names[chosen.labels])
    assert singly.classes_.tolist()[5:] == names[[7, 5, 6]].tolist()
    order = [singly.classes_.tolist().index(name) for name in together.classes_]
    X = arrays(stream.sessions[1].test)
    np.testing.assert_allclose(singly.predict_proba(X)[:, order], together.predict_proba(X), atol=1e-4)


def test_adapting_moves_only_h_and_only_when_asked(taught, stream):
    estimator = copy_of(taught)
    before = state(estimator)
    estimator.predict(arrays(stream.sessions[1].test))
    assert_same(before, state(estimator))
    labelled = estimator.method_.classifier.prototypes
    estimator.adapt(arrays(stream.sessions[1].test))
    assert not torch.equal(estimator.method_.classifier.prototypes, labelled)
    after = {name: value for name, value in state(estimator).items() if ".memory." not in name}
    assert_same(before, after)


def test_what_adapting_did_is_told_kept_and_undone(taught, stream, tmp_path):
    estimator = copy_of(taught)
    X = arrays(stream.sessions[1].test)
    estimator.adapt(X[::2]).adapt(X[1::2]).adapt(X)  # what comes again does nothing
    assert len(estimator.journal) == 3
    assert sum(estimator.journal[0].values()) > 0
    assert set(estimator.journal[0]) <= set(estimator.classes_.tolist())
    assert estimator.journal[2] == {}
    estimator.save(tmp_path)
    again = SSS.load(tmp_path)
    assert again.journal == estimator.journal
    with pytest.raises(BadSetting, match="the journal has 3"):
        again.rollback(4)
    again.rollback(2)
    first = copy_of(taught).adapt(X[::2])
    np.testing.assert_allclose(again.predict_proba(X), first.predict_proba(X), atol=1e-6)
    again.rollback()
    np.testing.assert_array_equal(again.predict_proba(X), taught.predict_proba(X))


def test_the_same_seed_gives_the_same_estimator():
    X, y = noise(12, 9, 9), [0, 1, 2] * 4
    first, again = (state(SSS(**INSTANT, seed=3).fit(X, y)) for _ in range(2))
    assert_same(first, again)
    other = state(SSS(**INSTANT, seed=4).fit(X, y))
    assert not np.array_equal(first["classifier.h.means"], other["classifier.h.means"])


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    def states() -> tuple:
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()

    before = states()
    estimator = SSS(**INSTANT).fit(noise(6, 9, 9), [0, 1] * 3)
    estimator.partial_fit(noise(2, 9, 9), [2, 2]).adapt(noise(2, 9, 9)).save(tmp_path)
    SSS.load(tmp_path).predict(noise(2, 9, 9))
    assert states() == before


def test_a_learnt_state_is_of_the_method_itself(stream):
    """The same seed and settings through the method and the trainer give the same tensors."""
    base = stream.base.train.take(range(0, 375, 15))
    estimator = SSS(**INSTANT | {"size": 14}).fit(arrays(base), base.labels)
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(0, 2))
        method = sss.SSS(estimator.method_.settings, estimator.method_.embedder.settings, 1, 5)
        trainer = estimator._trainer(len(base), channels=1)
        trainer.size = 14
        method.fit_base(base, trainer)
    for name, value in method.tensors().items():
        assert torch.equal(value, estimator.method_.tensors()[name])


# Labels


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "c"],
        [3, 1, 2],
        [2.0, 0.0, 1e300],
        [(1, "x"), (0, "y"), (0, ("z", None))],
        [None, "a", 3],
        [2**70, 1, 2],
        [2**63, 1, 2],
        [frozenset({1}), "a", b"bytes"],
    ],
)
def test_labels_of_any_hashable_kind_come_back_as_they_are(labels):
    X = noise(6, 8, 8)
    estimator = SSS(**INSTANT).fit(X[:4], labels[:2] * 2).partial_fit(X[4:], labels[2:] * 2)
    answers = estimator.predict(X).tolist()
    assert set(estimator.classes_.tolist()) == set(labels)
    for answer in answers:
        (same,) = [label for label in labels if label == answer]
        assert type(answer) is type(same)
    assert estimator.predict_proba(X).shape == (6, 3)


def test_numpy_and_python_labels_are_the_same_labels(instant):
    X = noise(4, 8, 8)
    estimator = SSS(**INSTANT).fit(X, np.array([0, 1, 0, 1], np.int8))
    estimator.partial_fit(X, [0, 1, 2, 2]).partial_fit(X, torch.tensor([2, 1, 0, 2]))
    assert estimator.classes_.tolist() == [0, 1, 2]
    assert estimator.classes_.dtype.kind == "i"
    estimator.partial_fit(X, np.array(["2", "2", "2", "2"]))
    assert estimator.classes_.tolist() == [0, 1, 2, "2"]
    assert SSS(**INSTANT).fit(X, [True, False] * 2).classes_.dtype == bool


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a"], ["b"]] * 4, r"y\[0\]: \['a'\] cannot be a label, because it is not hashable"),
        ([("a", []), "b"] * 4, r"not hashable"),
        ([float("nan"), 1.0] * 4, r"y\[0\]: nan cannot be a label"),
        (np.zeros((8, 2)), r"one label per image, got the shape \(8, 2\)"),
        ([0.5, 1.0] * 4, r"y\[0\]: Unknown label type: 0.5 is a continuous value"),
        ("abababab", r"sequence of labels"),
        (3, r"sequence of labels"),
        (["a", "b"] * 3, "6 labels, but X holds 8 images"),
        (["a"] * 8, "at least 2 classes; it holds 1 class: 'a'"),
        ([], r"at least 2 classes"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(y, message):
    estimator = SSS(**INSTANT)
    with pytest.raises(BadInput, match=message):
        estimator.fit(noise(8, 8, 8), y)
    assert not [name for name in vars(estimator) if name.endswith("_")]


# Images


def test_colour_grey_and_transparent_images_are_brought_to_the_channels_of_fit(instant, fitted):
    rgb, grey = noise(3, 12, 12, 3), noise(3, 12, 12)
    rgba = np.concatenate([rgb, np.full((3, 12, 12, 1), 255, np.uint8)], axis=3)
    np.testing.assert_array_equal(instant.predict_proba(rgba), instant.predict_proba(rgb))
    same = np.repeat(grey[..., None], 3, axis=3)
    np.testing.assert_array_equal(instant.predict_proba(grey), instant.predict_proba(same))
    np.testing.assert_array_equal(fitted.predict_proba(same), fitted.predict_proba(grey))


def test_files_are_read_as_a_viewer_shows_them(instant, tmp_path):
    upright = noise(1, 9, 12, 3)[0]
    Image.fromarray(upright).save(tmp_path / "plain.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    Image.fromarray(np.rot90(upright).copy()).save(tmp_path / "turned.png", exif=exif)
    deep = noise(1, 9, 12)[0]
    Image.fromarray(deep.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    files = [tmp_path / "plain.png", str(tmp_path / "turned.png"), tmp_path / "deep.png"]
    expected = instant.predict_proba([upright, upright, deep])
    np.testing.assert_allclose(instant.predict_proba(files), expected, atol=1e-6)


def test_images_of_different_sizes_come_together(instant):
    images = [noise(1, height, width, 3)[0] for height, width in ((5, 9), (40, 30), (8, 8))]
    together = instant.predict_proba(images)
    singly = np.concatenate([instant.predict_proba(image[None]) for image in images])
    np.testing.assert_allclose(together, singly, atol=1e-5)


def test_photographs_shrink_before_they_are_kept_and_doodles_stay():
    photographs = [noise(1, 300, 400, 3)[0], noise(1, 500, 260, 3)[0]]
    pictures, model = SSS(backbone="tiny")._base_pictures(photographs, Targets.of([0, 1]))
    assert model.size == 64
    assert pictures.sizes.min(axis=1).tolist() == [128, 128]
    pictures, model = SSS()._base_pictures(noise(4, 28, 28), Targets.of([0, 1, 2, 3]))
    assert (model.size, pictures.channels) == (28, 1)
    assert pictures.sizes.tolist() == [[28, 28]] * 4
    pictures, model = SSS(backbone="resnet18", size=32)._base_pictures(photographs, Targets.of([0, 1]))
    assert (model.size, model.small_stem) == (32, True)
    assert pictures.sizes.min(axis=1).tolist() == [64, 64]


def test_the_input_is_normalised_by_the_images_of_fit():
    images = [noise(1, 9, 12, 3)[0], noise(1, 8, 8, 3)[0] // 2]
    _, model = SSS(size=8)._base_pictures(images, Targets.of([0, 1]))
    values = np.concatenate([image.reshape(-1, 3) for image in images]) / 255
    np.testing.assert_allclose(model.mean, values.mean(0))
    np.testing.assert_allclose(model.std, values.std(0))


# Never a half-learnt state


@pytest.fixture
def broken_file(tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0 this is no picture")
    return path


@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_what_cannot_be_learnt_changes_nothing(instant, broken_file, monkeypatch, verb):
    estimator = copy_of(instant)
    before, good = state(estimator), noise(2, 8, 8, 3)
    bad = {
        "a file that is no image": (
            [good[0], broken_file],
            ["c", "d"],
            "jpg: this file cannot be read",
        ),
        "a file that is not there": ([good[0], broken_file.with_name("x.png")], ["c", "d"], "no such file"),
        "images that are no bytes": (good / 255, ["c", "d"], "images are uint8"),
        "no images": ([], ["c", "d"], "no images"),
        "a label too many": (good, ["c", "d", "e"], "3 labels, but X holds 2 images"),
        "one path": (str(broken_file), ["c", "d"], "give a list of paths"),
        "a generator": ((image for image in good), ["c", "d"], "array of images or a list"),
    }
    for X, y, message in bad.values():
        with pytest.raises(BadInput, match=message):
            getattr(estimator, verb)(X, y)
        assert_same(before, state(estimator))


def test_a_failure_amid_learning_changes_nothing(instant, monkeypatch):
    estimator, before = copy_of(instant), state(instant)

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("fairshot.classifiers.prototype_classifier.accumulate", fail)
    with pytest.raises(MemoryError):
        estimator.partial_fit(noise(4, 8, 8, 3), ["a", "b", "c", "d"])
    assert_same(before, state(estimator))
    monkeypatch.undo()
    monkeypatch.setattr("fairshot.estimators.estimator.as_array", fail)
    with pytest.raises(MemoryError):
        estimator.partial_fit(noise(2, 8, 8, 3), ["c", "d"])
    assert_same(before, state(estimator))
    monkeypatch.setattr("fairshot.classifiers.dual.bounded_calibration.absorb", fail)
    with pytest.raises(MemoryError):
        estimator.adapt(noise(2, 8, 8, 3))
    assert_same(before, state(estimator))


def test_threads_that_teach_one_estimator_lose_no_class(instant, monkeypatch):
    estimator, learn = copy_of(instant), sss.SSS.learn

    def slowly(*arguments):
        time.sleep(0.02)
        learn(*arguments)

    monkeypatch.setattr(sss.SSS, "learn", slowly)
    new = [f"new {number}" for number in range(6)]
    with ThreadPoolExecutor(len(new)) as threads:
        list(threads.map(lambda name: estimator.partial_fit(noise(2, 8, 8, 3), [name] * 2), new))
    assert sorted(estimator.classes_) == ["a", "b", *new]
    assert estimator.method_.seen_classes == 2 + len(new)
    assert_same(state(copy.deepcopy(estimator)), state(estimator))  # a lock could not be copied


def test_half_written_files_of_a_killed_save_are_removed_by_the_next(instant, tmp_path):
    (tmp_path / f".estimator.json.x{PARTIAL}").write_bytes(b"half")
    instant.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_ctrl_c_in_fit_is_ctrl_c_and_keeps_what_was_learnt(instant, monkeypatch):
    def stop(*_):
        raise TrainingStopped("stopped after 1 of 9 steps")

    estimator, before = copy_of(instant), state(instant)
    monkeypatch.setattr(Trainer, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(noise(4, 8, 8), [0, 1] * 2)
    assert_same(before, state(estimator))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epochs": -1}, r"training\.epochs: "),
        ({"batch": 1}, r"training\.batch: "),
        ({"batch": "many"}, r"training\.batch: "),
        ({"size": 0}, r"model\.size: "),
        ({"gamma": -1}, r"method\.gamma: "),
        ({"intra": "perhaps"}, r"method\.intra: "),
        ({"views": {"crop_areas": 1}}, r"views\.crop_areas: unknown key; did you mean crop_area\?"),
        ({"method": {"lam": [0.4, 1.2]}}, r"method\.lam\.1: "),
        ({"backbone": "resnet7"}, "model.backbone: 'resnet7' is neither"),
        ({"seed": -1}, "seed: -1 was given"),
        ({"device": "tpu"}, r"device: 'tpu' was given"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(parameters, message):
    with pytest.raises(UserError, match=message):
        SSS(**INSTANT | parameters).fit(noise(4, 8, 8), [0, 1] * 2)


# Saving


def test_what_was_saved_is_loaded_and_learns_on(taught, stream, names, tmp_path):
    taught.save(tmp_path / "model")
    assert sorted(path.suffix for path in (tmp_path / "model").iterdir()) == [".json", ".safetensors"]
    loaded = SSS.load(tmp_path / "model")
    assert loaded.get_params() == taught.get_params()
    assert_same(state(taught), state(loaded))
    X = arrays(stream.sessions[1].test)
    np.testing.assert_array_equal(loaded.predict_proba(X), taught.predict_proba(X))
    more = arrays(stream.base.test)[:5]
    both = [copy_of(one).partial_fit(more, ["new"] * 5) for one in (loaded, taught)]
    assert_same(*map(state, both))
    assert loaded.history_ == taught.history_


LABELS = ["1", 1.5, True, None, 7, ("x", (2, None, 0.5)), float("inf"), ()]


def test_labels_are_loaded_with_their_types(tmp_path):
    X = noise(len(LABELS), 8, 8)
    estimator = SSS(**INSTANT).fit(X, LABELS)
    estimator.save(tmp_path)
    loaded = SSS.load(tmp_path)
    assert list(map(repr, loaded.classes_)) == list(map(repr, estimator.classes_))
    assert set(map(repr, loaded.classes_)) == set(map(repr, LABELS))


@pytest.mark.parametrize("label", [frozenset({1}), b"bytes", ("a", b"b"), 1j])
def test_labels_that_cannot_be_saved_are_refused_and_nothing_is_written(tmp_path, label):
    estimator = SSS(**INSTANT).fit(noise(4, 8, 8), [label, "b"] * 2)
    with pytest.raises(BadInput, match="cannot be saved; use strings"):
        estimator.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_save_that_fails_leaves_the_last_one(instant, tmp_path, monkeypatch):
    instant.save(tmp_path)
    taught = copy_of(instant).partial_fit(noise(2, 8, 8, 3), ["c", "c"])
    from fairshot import documents

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(documents, "write_atomically", fail)  # of the note, not of the tensors
    with pytest.raises(OSError, match="no space"):
        taught.save(tmp_path)
    assert_same(state(SSS.load(tmp_path)), state(instant))
    monkeypatch.undo()
    taught.save(tmp_path)
    assert_same(state(SSS.load(tmp_path)), state(taught))
    assert len(list(tmp_path.iterdir())) == 2


def test_damaged_and_missing_files_are_refused_by_name(instant, tmp_path):
    with pytest.raises(PathUnusable) as refused:
        SSS.load(tmp_path)
    assert refused.value.path == tmp_path
    instant.save(tmp_path)
    note, (tensors,) = tmp_path / "estimator.json", tmp_path.glob("*.safetensors")
    text, content = note.read_text(), tensors.read_bytes()
    assert b"pickle" not in content
    tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedFile, match="not the file that was saved"):
        SSS.load(tmp_path)
    tensors.write_bytes(content)
    for damaged in ("", text[:100], text.replace('"a"', '"c"'), json.dumps(json.loads(text))):
        note.write_text(damaged)
        with pytest.raises(DamagedFile) as refused:
            SSS.load(tmp_path)
        assert refused.value.path == note
    values = json.loads(text)
    del values["sha256"]
    note.write_text(json.dumps(values | {"classes": ["a"]}))  # changed by hand, without a checksum
    with pytest.raises(DamagedFile) as refused:
        SSS.load(tmp_path)
    assert refused.value.path == note
    write_json(note, json.dumps(values | {"format": 9}))
    with pytest.raises(PathUnusable, match="format 9"):
        SSS.load(tmp_path)
    note.write_text(text)
    assert_same(state(SSS.load(tmp_path, device="cpu")), state(instant))
