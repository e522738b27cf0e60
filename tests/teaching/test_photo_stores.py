"""Stores on the packaged weights: whitened from the first class on, and they know what they do not know."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fairshot.models.presets import DEFAULT_PRESET, PRESETS
from fairshot.speed import photo_stores
from fairshot.speed.photo_stores import (
    BIRDS,
    EVERYDAY,
    KINDS,
    MORE_BIRDS,
    REPORTED,
    PhotoFeatures,
    Task,
    Taught,
    as_features,
    measure_accuracy,
    measure_unknown,
    photo_features,
    taught_classifier,
)
from fairshot.teaching import Store, from_backbone
from fairshot.teaching.background import background_of
from fairshot.teaching.confidence import NEAREST, Decisions, Trials
from fairshot.teaching.network import Photo

WIDTH, NAMES = 1280, ("ant", "bee", "cow", "dog")
pytestmark = pytest.mark.skipif(
    find_spec(str(PRESETS[DEFAULT_PRESET].package)) is None, reason="the extra photos is not installed"
)


def made_up(classes: range, each: int, seed: int = 0) -> PhotoFeatures:
    """Draw features of photos, which resemble each other within a class."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(list(classes), each)
    means = draw.gamma(0.3, 0.5, (len(classes), WIDTH)).repeat(each, 0)
    return PhotoFeatures(torch.tensor(means * draw.gamma(2, 0.5, means.shape), dtype=torch.float32), labels)


def as_photos(g: Tensor) -> list[Photo]:
    return [Photo(row.numpy().tobytes()[-32:], b"", row[None], row[None]) for row in g]


@pytest.fixture(scope="module")
def known() -> PhotoFeatures:
    return made_up(range(6), 12)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, known: PhotoFeatures) -> Iterator[Store]:
    """Teach a store four classes, one after the other."""
    with Store.create(tmp_path_factory.mktemp("photos") / "store", from_backbone()) as made:
        for label, name in enumerate(NAMES):
            made.teach(name, as_photos(known.g[known.labels == label][:5]))
        yield made


def asked(known: PhotoFeatures, label: int) -> dict[str, Tensor]:
    g = known.g[known.labels == label][5:, None]
    return {"g": g, "g_tilde": g}


def test_a_store_answers_as_it_was_measured(store: Store, known: PhotoFeatures) -> None:
    """`fairshot bench photos` measures the very classifier and confidence of a store."""
    background = background_of(DEFAULT_PRESET)
    assert background is not None
    rows = np.concatenate([np.flatnonzero(known.labels == label)[:5] for label in range(4)])
    taught = Taught.by(background, known.g[rows], torch.from_numpy(known.labels[rows]))
    for label in (1, 5):
        answers, sure, p_known = taught.judge(asked(known, label)["g"][:, 0])
        found = store.predict(asked(known, label), top=1)
        assert [each.top[0].name for each in found] == [NAMES[answer] for answer in answers]
        assert [each.confidence for each in found] == pytest.approx(sure.tolist(), abs=2e-4)
        assert [each.p_known for each in found] == pytest.approx(p_known.tolist(), abs=2e-4)
    assert store.snapshot().confidence.threshold == pytest.approx(taught.confidence.threshold, abs=1e-4)


def test_the_first_class_is_not_the_answer_to_everything(store: Store, known: PhotoFeatures) -> None:
    before = store.digest(), store.predict(asked(known, 0))
    for _ in NAMES[1:]:
        store.undo()
    assert store.snapshot().confidence.source == "photos of 100 bird species and 20 everyday things"
    own, foreign = store.predict(asked(known, 0)), store.predict(asked(known, 5))
    assert all(each.answer == "ant" for each in own)
    assert all(each.answer is None for each in foreign)
    assert min(each.confidence for each in own) > max(each.confidence for each in foreign)
    assert all(each.confidence < 0.5 for each in foreign)
    assert foreign[0].sentence() == f"unknown (perhaps ant, {foreign[0].confidence:.0%})"
    for label, name in enumerate(NAMES[1:], 1):
        store.teach(name, as_photos(known.g[known.labels == label][:5]))
    assert (store.digest(), store.predict(asked(known, 0))) == before
    assert "and 20 taught photos, each answered" in store.snapshot().confidence.source


def test_a_single_photo_per_class_will_do(store: Store, known: PhotoFeatures) -> None:
    for label in (4, 5):
        store.teach(f"single {label}", as_photos(known.g[known.labels == label][:1]))
    found = store.predict(asked(known, 5))
    assert {each.top[0].name for each in found} == {"single 5"}
    for _ in range(2):
        store.undo()


def test_a_taught_photo_is_as_near_to_its_class_as_a_held_out_one_may_be(known: PhotoFeatures) -> None:
    """At no distance from a class of one photo, the logarithm would decide alone: 0 % sure of it."""
    background = background_of(DEFAULT_PRESET)
    assert background is not None
    rows = [*range(0, 5), *range(12, 17), 24]
    classifier = taught_classifier(background.space(), known.g[rows], torch.from_numpy(known.labels[rows]))
    only = as_features(known.g[24:25])
    decision = classifier.decide(only)
    assert decision.scores.argmax() == 2
    distance = Decisions.of(classifier, decision, only["g"]).signals[0, 4]
    assert float(distance) == pytest.approx(NEAREST)


def test_a_single_class_has_a_confidence_of_its_own() -> None:
    background = background_of(DEFAULT_PRESET)
    assert background is not None
    prior, none = (
        background.settings.prior,
        Trials(Decisions.none(), torch.zeros(0) > 0, torch.zeros(0), Decisions.none()),
    )
    assert prior.alone is not None
    single, several = prior.confidence(none, 1), prior.confidence(none, 2)
    assert single.known.transferable == prior.alone.known != several.known.transferable
    assert single.threshold == prior.alone.threshold
    made_before = prior.model_copy(update={"alone": None})
    assert made_before.confidence(none, 1).known == several.known


def test_a_few_base_photos_leave_unknown_to_the_prior(tmp_path: Path) -> None:
    """Three held-out photos cannot be fitted to, and photos taught later tell nothing of base classes."""
    for channel, name in enumerate(("red", "green", "blue")):
        (tmp_path / "base" / name).mkdir(parents=True)
        for index in range(5):
            noise = np.random.default_rng(index).integers(0, 256, (60, 60, 3), dtype=np.uint8)
            noise[..., channel] //= 8
            Image.fromarray(noise).save(tmp_path / "base" / name / f"{index}.png")
    with Store.create(tmp_path / "store", from_backbone(base=tmp_path / "base")) as store:
        (black,) = store.predict([np.zeros((60, 60, 3), dtype=np.uint8)])
        assert black.answer is None
        store.teach("black", [np.zeros((60, 60, 3), dtype=np.uint8)])
        assert store.snapshot().confidence.threshold > 0


def test_every_classifier_is_measured_on_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_stores, "TASKS", (Task("three", BIRDS, 3),))
    monkeypatch.setattr(photo_stores, "SIZES", (1, 3))
    sets = {name: made_up(REPORTED[name][:6], 9, len(name)) for name in REPORTED} | {
        MORE_BIRDS: made_up(range(4), 9, 2)
    }
    monkeypatch.setattr(photo_stores, "REPORTED", {name: REPORTED[name][:6] for name in REPORTED})
    (row,) = measure_accuracy(sets, 2)
    assert set(row.mean) == {"nearest mean", "logistic regression", "shrinkage LDA", "store"}
    assert row.mean["store"] == 1
    assert row.store_at_least["logistic regression"] == 2
    unknown = measure_unknown(sets, 2)
    assert [(each.taught, each.foreign) for each in unknown[::2]] == list(KINDS)
    assert all(each.auroc > 0.9 and each.draws == 2 for each in unknown)
    assert all(0 <= each.calibration_error < 0.5 for each in unknown)


def test_features_of_photos_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_stores.platformdirs, "user_cache_path", lambda _: tmp_path / "cache")
    folder = tmp_path / "data" / "miniImageNet" / "n01532829"
    folder.mkdir(parents=True)
    for index in range(3):
        noise = np.random.default_rng(index).integers(0, 256, (84, 84, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.jpg")
    first = photo_features(EVERYDAY, [0], 2, tmp_path / "data")
    assert first.g.shape == (2, WIDTH)
    (kept,) = (tmp_path / "cache" / "features").iterdir()
    monkeypatch.setattr(photo_stores, "Embedder", None)
    assert torch.equal(photo_features(EVERYDAY, [0], 2, tmp_path / "data").g, first.g)
    kept.write_bytes(b"damaged")
    with pytest.raises(TypeError):  # it is embedded anew
        photo_features(EVERYDAY, [0], 2, tmp_path / "data")
