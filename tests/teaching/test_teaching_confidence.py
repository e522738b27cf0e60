"""Confidence and p_known: fitted to held-out answers, which are those of a store that knew less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fairshot.models.presets import DEFAULT_PRESET
from fairshot.speed.photo_stores import Taught, as_features, taught_classifier
from fairshot.teaching.background import background_of, no_background
from fairshot.teaching.confidence import AS_SOFTMAX, PRIOR_TRIALS, Confidence, Decisions, Logistic, Trials
from fairshot.teaching.held_out import leave_one_out, trials_of
from support.stores import drawings, make_store

WORDS = ("okapi", "yak", "emu")


def made_up_trials(count: int, seed: int) -> Trials:
    """Draw answers whose chance of being right follows a rule, another for each kind of features."""
    draw = np.random.default_rng(seed)
    similarity, lead = draw.uniform(0.4, 1, count), draw.uniform(0, 0.3, count)
    specific = draw.random(count) < 0.5
    chance = 1 / (1 + np.exp(-np.where(specific, -6 + 6 * similarity + 10 * lead, -1 + 12 * lead)))
    constant = np.full(count, 3.0), np.full(count, 0.2), np.zeros(count)
    unknown = np.stack([draw.uniform(0.1, 0.7, count), draw.uniform(0, 0.2, count), *constant], 1)
    return Trials(
        Decisions(
            torch.tensor(np.stack([similarity, lead, *constant], 1)).float(), torch.from_numpy(specific)
        ),
        torch.from_numpy(draw.random(count) < chance),
        torch.ones(count),
        Decisions(torch.tensor(unknown).float(), torch.from_numpy(draw.random(count) < 0.5)),
    )


def test_confidence_is_the_share_of_right_answers() -> None:
    chosen = Confidence.fit(made_up_trials(4000, 0), "made up")
    fresh = made_up_trials(4000, 1)
    sure = chosen.right.probability(fresh.known)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        among = (sure >= low) & (sure < low + 0.2)
        if among.sum() > 100:
            assert float(sure[among].mean()) == pytest.approx(
                float(fresh.right[among].float().mean()), abs=0.06
            )
    kept = (chosen.known.probability(fresh.known) >= chosen.threshold).float().mean()
    assert float(kept) == pytest.approx(0.9, abs=0.03)
    assert (chosen.known.probability(fresh.unknown) >= chosen.threshold).float().mean() < 0.5


def test_too_few_images_choose_nothing() -> None:
    assert Confidence.fit(made_up_trials(10, 0), "made up") == Confidence()
    all_right = made_up_trials(200, 0)
    chosen = Confidence.fit(
        Trials(all_right.known, torch.ones(200, dtype=torch.bool), all_right.weights, all_right.unknown), "x"
    )
    assert chosen.right == AS_SOFTMAX  # nothing tells right from wrong
    assert chosen.threshold > 0


def test_parts_weigh_the_same_whatever_their_number() -> None:
    many, few = made_up_trials(3000, 0), made_up_trials(300, 5)
    wrong = Trials(few.known, torch.zeros(300, dtype=torch.bool), few.weights, few.unknown)
    both = Trials.concatenate([many, wrong])
    chosen = Confidence.fit(both, "x").right.probability(both.known)
    share = float((both.weights * both.right).sum() / both.weights.sum())
    assert float((both.weights * chosen).sum() / both.weights.sum()) == pytest.approx(share, abs=0.02)


def test_left_out_photos_are_answered_as_by_a_store_that_never_saw_them(tmp_path: Path) -> None:
    store = make_store(tmp_path / "all", base=(), sr_width=None)
    photos = {word: drawings(word, 3) for word in WORDS}
    for word in WORDS:
        store.teach(word, photos[word])
    trials = store.leave_one_out()
    signals = {tuple(np.round(row[:2], 5)) for row in trials.known.signals.numpy()}
    unknown = {tuple(np.round(row[:2], 5)) for row in trials.unknown.signals.numpy()}
    for number, (word, index) in enumerate((word, index) for word in WORDS for index in range(3)):
        less = make_store(tmp_path / f"{number}", base=(), sr_width=None)
        for other in WORDS:
            less.teach(other, [photo for i, photo in enumerate(photos[other]) if (other, i) != (word, index)])
        assert _nearby(less.predict([photos[word][index]], 2)[0], signals)
        less.forget(word)
        assert _nearby(less.predict([photos[word][index]], 2)[0], unknown)


def _nearby(prediction, signals: set) -> bool:
    best, runner_up = (candidate.similarity for candidate in prediction.top)
    return any(abs(best - a) < 2e-5 and abs(best - runner_up - b) < 2e-5 for a, b in signals)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_a_left_out_class_does_not_tell_by_the_number_of_those_left(classes: int) -> None:
    draw = torch.Generator().manual_seed(classes)
    means = torch.rand(2 * classes, 1, 64, generator=draw)
    photos = means + 0.4 * torch.randn(2 * classes, 40, 64, generator=draw)
    taught, own, foreign = photos[:classes, :12], photos[:classes, 12:], photos[classes:]
    labels = torch.arange(classes).repeat_interleave(12)
    classifier = taught_classifier(no_background(1, 64), taught.flatten(0, 1), labels)
    fitted = Confidence.fit(leave_one_out(classifier, as_features(taught.flatten(0, 1)), labels), "made up")
    p_known = [Taught(classifier, fitted).judge(each.flatten(0, 1))[2] for each in (own, foreign)]
    assert float((p_known[0][:, None] > p_known[1]).float().mean()) > 0.95  # AUROC
    assert float(sum(each.mean() for each in p_known)) == pytest.approx(1, abs=0.25)  # half of each are known


def test_images_of_no_known_class_are_the_unknown_ones(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    store.teach("yak", drawings("yak", 3))
    shown = drawings("yak", 6)[3:] + drawings("sample of ant", 2) + drawings("yeti", 4)
    features = store.network.embed(store.read(shown).pictures)
    snapshot = store.snapshot()
    labels = torch.tensor([snapshot.names.index("yak")] * 3 + [snapshot.names.index("ant")] * 2 + [-1] * 4)
    mixed = trials_of(snapshot.classifier, features, labels)
    assert (len(mixed.known), len(mixed.unknown)) == (5, 4)
    only_known = {key: value[:5] for key, value in features.items()}
    pretended = trials_of(snapshot.classifier, only_known, labels[:5])
    assert (len(pretended.known), len(pretended.unknown)) == (5, 5)
    assert torch.equal(pretended.right, mixed.right)


def test_features_without_trials_keep_their_model() -> None:
    trials = made_up_trials(500, 0)
    chosen = ~trials.known.specific
    only = Decisions(trials.known.signals[chosen], trials.known.specific[chosen])
    default = Logistic(transferable=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), specific=(6.0, 7.0, 8.0, 9.0, 0.0, 1.0))
    fitted = Logistic.fit(only, trials.right[chosen], trials.weights[chosen], default)
    assert fitted.specific == default.specific
    assert fitted.transferable != default.transferable


def test_a_prior_is_moved_to_the_most_probable_model_whatever_the_photos_say() -> None:
    """Also when photos of unknown classes are more like a class than its own, as with wrong labels."""
    background = background_of(DEFAULT_PRESET)
    assert background is not None
    prior = background.settings.prior.known
    draw = torch.Generator().manual_seed(0)
    known = torch.arange(300) < 150
    similarity = torch.where(known, 0.35, 0.55) + 0.1 * torch.rand(300, generator=draw)
    lead = torch.where(known, 0.01, 0.1) * torch.rand(300, generator=draw)
    distance = torch.where(known, 0.5, 0.0) + 0.3 * torch.randn(300, generator=draw)
    signals = [similarity, lead, torch.full((300,), 3.4), torch.full((300,), 0.2), distance]
    decisions = Decisions(torch.stack(signals, dim=1), torch.zeros(300, dtype=torch.bool))
    found = torch.tensor(prior.moved(decisions, known, torch.ones(300)).transferable, dtype=torch.float64)
    X = torch.cat([torch.ones(300, 1), decisions.signals], dim=1).double()
    pull = (
        PRIOR_TRIALS
        * torch.tensor(prior.information).double()
        @ (found - torch.tensor(prior.weights).double())
    )
    gradient = X.T @ (torch.sigmoid(X @ found) - known.double()) + pull
    assert float(gradient.abs().max()) < 1e-3  # whole steps of Newton's method end above 100 here
