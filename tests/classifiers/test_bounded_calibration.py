"""Calibration from a stream: bounded, indifferent to order and repetition, journalled, undone exactly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from fairshot.classifiers.bounded_calibration import absorb, begin, prototypes, relabel, rollback
from fairshot.classifiers.calibration import alphas, moved, recognise
from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.prototypes import prototypes as class_means
from fairshot.classifiers.similarity import similarity

CLASSES, BASE, DIMENSIONS = 12, 8, 32
ALPHA = alphas(CLASSES, BASE, base=0.1, novel=0.6).double()


def make_bounds(**chosen):
    return PrototypeSettings(**chosen).bounds


def world(seed=0, images=60):
    """True class directions, five-shot or hundred-shot prototypes, and unlabelled images of all classes."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # a large part common to all classes, as behind a ReLU: cosines are high, classes close to each other
    centres = 2 * draw(1, 2, DIMENSIONS).abs() + 0.3 * draw(CLASSES, 2, DIMENSIONS)
    shots = torch.tensor([100] * BASE + [5] * (CLASSES - BASE))
    labels = torch.arange(CLASSES).repeat_interleave(shots)
    labelled = class_means(centres[labels] + 0.8 * draw(len(labels), 2, DIMENSIONS), labels, range(CLASSES))
    arriving = torch.arange(CLASSES).repeat(images)
    return labelled, centres[arriving] + 0.8 * draw(len(arriving), 2, DIMENSIONS), arriving


def ids(features, start=0):
    return torch.arange(start, start + len(features))


def accuracy(classifier, features, labels):
    return 100 * (similarity(features, classifier).argmax(1) == labels).double().mean().item()


def test_one_batch_of_enough_samples_is_equation_9():
    labelled, features, _ = world()
    bounds = make_bounds(drift=10, at_most=10)
    state = absorb(begin(labelled, ALPHA), features, ids(features), bounds)
    counts = state.owner.bincount(minlength=CLASSES)
    assert (counts == 10).all()
    absorbed_by = recognise(similarity(features, labelled), bounds.threshold, bounds.at_most)
    torch.testing.assert_close(prototypes(state, bounds), moved(labelled, features, absorbed_by, ALPHA))
    assert sorted(state.ids.tolist()) == (absorbed_by >= 0).nonzero()[:, 0].tolist()


@given(st.integers(0, 1000), st.sampled_from([1, 7, 40, 1000]))
@settings(max_examples=15, deadline=None)
def test_order_batch_size_and_repetition_have_no_effect(seed, batch):
    labelled, features, _ = world(images=6)
    bounds = make_bounds(at_most=4)
    at_once = absorb(begin(labelled, ALPHA), features, ids(features), bounds)
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed))
    order = torch.cat([order, order[: len(order) // 2]])  # some come twice
    state = begin(labelled, ALPHA)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        state = absorb(state, features[part], ids(part, start), bounds)
    torch.testing.assert_close(prototypes(state, bounds), prototypes(at_once, bounds))


def test_few_samples_move_a_class_little():
    labelled, features, _ = world(images=200)
    mine = features[similarity(features, labelled).argmax(1) == CLASSES - 1]
    bounds = make_bounds(drift=10, at_most=20)
    steps = []
    for count in (1, 10, 20):
        state = absorb(begin(labelled, ALPHA), mine[:count], ids(mine[:count]), bounds)
        assert len(state.kept) == count
        moved = prototypes(state, bounds)
        mean = mine[:count].mean(0)
        want = labelled[-1] + 0.6 * count / 20 * (mean - labelled[-1])
        torch.testing.assert_close(moved[-1], want)
        torch.testing.assert_close(moved[:-1], labelled[:-1])
        steps.append((moved - labelled).norm().item())
    assert steps[0] < 0.2 * steps[2]


def test_drift_is_capped_for_each_view():
    labelled, features, _ = world()
    state = absorb(begin(labelled, torch.ones(CLASSES)), features, ids(features), make_bounds())
    free = prototypes(state, make_bounds(drift=10)) - labelled
    capped = prototypes(state, make_bounds(drift=0.05)) - labelled
    limit = torch.empty(CLASSES, 2, dtype=torch.float64)
    for c in range(CLASSES):
        cosines = [similarity(labelled[c : c + 1], labelled[o : o + 1]) for o in range(CLASSES) if o != c]
        gap = math.sqrt(2 - 2 * max(cosines).item())
        limit[c] = 0.05 * gap * labelled[c].norm(dim=-1)
    assert (free.norm(dim=-1) > limit).any()
    assert (capped.norm(dim=-1) <= limit * (1 + 1e-9)).all()
    torch.testing.assert_close(  # the direction stays
        torch.cosine_similarity(free, capped, dim=-1), torch.ones(CLASSES, 2, dtype=torch.float64)
    )


@pytest.mark.parametrize("kind", ["wrong class", "noise", "a copied image"])
@pytest.mark.parametrize("count", [10, 50, 200])
def test_poison_costs_at_most_a_point(kind, count):
    """At the default bounds, before and after the natural samples arrive."""
    labelled, features, labels = world(seed=1)
    test, test_labels = features[: len(features) // 2], labels[: len(labels) // 2]
    natural = features[len(features) // 2 :]
    generator = torch.Generator().manual_seed(2)
    scores = similarity(natural, labelled)
    poison = {
        # images of a base class that look most like a novel one
        "wrong class": natural[scores[:, -1].argsort(descending=True)][: 2 * count][::2],
        "noise": labelled.mean() * torch.rand(count, 2, DIMENSIONS, generator=generator).double() * 2,
        "a copied image": natural[scores[:, -1].argmax()].repeat(count, 1, 1),
    }[kind]
    bounds = make_bounds()
    clean = absorb(begin(labelled, ALPHA), natural, ids(natural), bounds)
    for batches in ([poison, natural], [natural, poison], [poison]):
        state = begin(labelled, ALPHA)
        for number, batch in enumerate(batches):
            state = absorb(state, batch, ids(batch, 10_000 * number), bounds)
        reference = accuracy(prototypes(clean, bounds) if len(batches) == 2 else labelled, test, test_labels)
        assert accuracy(prototypes(state, bounds), test, test_labels) >= reference - 1


def test_an_attacker_who_watches_cannot_walk_a_class_away():
    """Step by step, images just on the side of the novel class that is closest to a base class."""
    labelled, features, labels = world(seed=1)
    alpha = torch.ones(CLASSES)

    def attack(current, step):
        jitter = 0.02 * (features[20 * step : 20 * step + 20] - features[:20])
        return 0.55 * current[-1] + 0.45 * labelled[0] + jitter

    unbounded, state = labelled, begin(labelled, alpha)
    for step in range(1, 11):
        hostile = attack(unbounded, step)
        absorbed_by = recognise(similarity(hostile, unbounded), 0.0, 10_000)
        unbounded = moved(unbounded, hostile, absorbed_by, alpha)
        poison = attack(prototypes(state, make_bounds()), step)
        state = absorb(state, poison, ids(poison, 20 * step), make_bounds())
    plain = accuracy(labelled, features, labels)
    assert accuracy(unbounded, features, labels) < plain - 3
    assert accuracy(prototypes(state, make_bounds()), features, labels) > plain - 1
    assert similarity(unbounded[-1:], labelled[:1]) > 0.999


def test_copies_count_once():
    labelled, features, labels = world()
    one = features[labels == 3][:1]
    bounds = make_bounds()
    once = absorb(begin(labelled, ALPHA), one, ids(one), bounds)
    often = absorb(begin(labelled, ALPHA), one.repeat(50, 1, 1), ids(one.repeat(50, 1, 1)), bounds)
    later = absorb(often, one * 1.0, ids(one, 100), bounds)
    for state in (once, often, later):
        assert len(state.kept) == 1
    torch.testing.assert_close(prototypes(later, bounds), prototypes(once, bounds))


def test_copies_that_are_nearly_exact_count_once_among_others_that_score_alike():
    labelled, features, labels = world()
    one = features[labels == 3][:1]
    axis = normalize(labelled[3], dim=-1)
    mirrored = 2 * (one * axis).sum(-1, keepdim=True) * axis - one  # another picture, as similar to class 3
    assert similarity(one, mirrored) < 0.99
    many = torch.cat([one, mirrored]).repeat(300, 1, 1)
    jitter = torch.randn(many.shape, generator=torch.Generator().manual_seed(0), dtype=many.dtype)
    many = many + 0.003 * jitter
    assert (similarity(many, labelled).argmax(1) == 3).all()
    state = absorb(begin(labelled, ALPHA), many, ids(many), make_bounds())
    assert len(state.kept) == 2
    assert similarity(state.kept, torch.cat([one, mirrored])).argmax(0).unique().numel() == 2


def test_copies_that_are_changed_further_count_as_other_samples():
    labelled, features, labels = world()
    one = features[labels == 3][:1]
    jitter = torch.randn(100, *one.shape[1:], generator=torch.Generator().manual_seed(0), dtype=one.dtype)
    changed = one + 0.03 * one.norm() * normalize(jitter, dim=-1)
    assert similarity(changed, one).min() > 0.99
    state = absorb(begin(labelled, ALPHA), changed, ids(changed), make_bounds())
    assert len(state.kept) == make_bounds().at_most


def test_the_journal_says_who_absorbed_what_and_rollback_undoes_it():
    labelled, features, _ = world()
    bounds = make_bounds(at_most=5)
    states = [begin(labelled, ALPHA)]
    for start in range(0, 300, 60):
        states.append(
            absorb(states[-1], features[start : start + 60], torch.arange(start, start + 60), bounds)
        )
    journal = states[-1].journal
    assert len(journal) == 5
    assert any(len(entry.displaced) for entry in journal)
    kept = set()
    for entry in journal:
        kept |= set(entry.added.tolist())
        assert set(entry.displaced.tolist()) <= kept
        kept -= set(entry.displaced.tolist())
        assert (similarity(features[entry.added], labelled).argmax(1) == entry.added_to).all()
    assert kept == set(states[-1].ids.tolist())
    for batches in range(6):
        back = rollback(states[-1], batches, bounds)
        torch.testing.assert_close(prototypes(back, bounds), prototypes(states[5 - batches], bounds))
        assert len(back.journal) == 5 - batches
    with pytest.raises(ValueError, match="the journal has 5"):
        rollback(states[-1], 6, bounds)


def test_samples_choose_anew_when_classes_are_added():
    labelled, features, _ = world()
    bounds = make_bounds(at_most=200)
    state = absorb(begin(labelled[:BASE], ALPHA[:BASE]), features, ids(features), bounds)
    grown = relabel(state, labelled, ALPHA, bounds)
    torch.testing.assert_close(similarity(grown.kept, labelled).argmax(1), grown.owner)
    assert (grown.owner >= BASE).any()
    assert grown.journal == state.journal


def test_nothing_arriving_changes_nothing():
    labelled, features, _ = world()
    state = absorb(begin(labelled, ALPHA), features[:0], ids(features[:0]), make_bounds())
    assert torch.equal(prototypes(state, make_bounds()), labelled)
    assert len(state.journal) == 1
