"""Prototype classifiers against the paper's equations, written out as loops over plain floats."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairshot.classifiers.calibration import NO_CLASS, alphas, calibrate_labelled, moved, recognise
from fairshot.classifiers.combination import combine, joined, separate_answers, separately
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, as_float, no_delta, resist
from fairshot.classifiers.similarity import similarity, view_similarity


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def norm(a):
    return math.sqrt(dot(a, a))


def cosine(a, b):
    return dot(a, b) / (norm(a) * norm(b))


def S(x, p):  # noqa: N802 - the paper's name
    """Take the paper's S of two sets of vectors: cosine of corresponding vectors, averaged."""
    return sum(cosine(a, b) for a, b in zip(x, p, strict=True)) / len(x)


# --- eq. 2


def test_similarity_is_the_mean_cosine_of_corresponding_views():
    features, classifiers = random(7, 2, 5), random(4, 2, 5, seed=1)
    got = similarity(features, classifiers)
    want = [[S(x, p) for p in classifiers.tolist()] for x in features.tolist()]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))
    by_view = view_similarity(features, classifiers)
    assert by_view[3, 2, 1].item() == pytest.approx(
        cosine(features[3, 1].tolist(), classifiers[2, 1].tolist())
    )


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_similarity_ignores_scale_and_stays_between_minus_one_and_one(seed, scale):
    features, classifiers = random(5, 2, 3, seed=seed), random(3, 2, 3, seed=seed + 1)
    plain = similarity(features, classifiers)
    torch.testing.assert_close(similarity(scale * features, classifiers), plain)
    torch.testing.assert_close(similarity(features, scale * classifiers), plain)
    assert plain.abs().max() <= 1 + 1e-12


def test_zero_vectors_are_similar_to_nothing():
    features = torch.zeros(1, 2, 3)
    assert similarity(features, random(2, 2, 3).float()).tolist() == [[0, 0]]


def test_prototypes_are_class_means_of_each_view_in_the_order_asked_for():
    features, labels = random(9, 2, 4), torch.tensor([3, 0, 3, 7, 0, 7, 7, 3, 5])
    got = prototypes(features, labels, [7, 0])
    for row, c in enumerate([7, 0]):
        members = [x for x, y in zip(features.tolist(), labels.tolist(), strict=True) if y == c]
        for j in range(2):
            want = [sum(x[j][k] for x in members) / len(members) for k in range(4)]
            assert got[row, j].tolist() == pytest.approx(want)


def test_a_class_without_features_is_named():
    with pytest.raises(ValueError, match=r"\[2, 4\]"):
        prototypes(random(3, 1, 2), torch.tensor([0, 0, 1]), [0, 2, 4])


# --- Algorithm 1 and tables 3 and 11


def argmax(row):
    return max(range(len(row)), key=lambda c: row[c])


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_the_rules_of_tables_3_and_11(seed, base_classes):
    transferable, specific = random(12, 6, seed=seed), random(12, 6, seed=seed + 1)
    expected = {"separately": [], "anomaly_detection": [], "post": []}
    by_specific = []
    for a, b in zip(transferable.tolist(), specific.tolist(), strict=True):
        by_specific.append(argmax(a) < base_classes)
        expected["separately"].append(argmax(b) if argmax(a) < base_classes else argmax(a))
        expected["anomaly_detection"].append(argmax(a) if argmax(b) >= base_classes else argmax(b))
        expected["post"].append(argmax([s + t for s, t in zip(a, b, strict=True)]))
    for rule, answers in expected.items():
        assert combine(rule, transferable, specific, base_classes).scores.argmax(1).tolist() == answers
    assert separately(transferable, specific, base_classes).by_specific.tolist() == by_specific
    assert torch.equal(combine("transferable_only", transferable, specific, 3).scores, transferable)
    assert torch.equal(combine("specific_only", transferable, specific, 3).scores, specific)
    best = transferable[:, :base_classes].amax(1)
    got = separate_answers(best, transferable[:, base_classes:], specific.argmax(1), base_classes)
    assert got.tolist() == expected["separately"]


def test_class_specific_features_may_answer_a_novel_class():
    transferable = torch.tensor([[0.9, 0.1, 0.2]])
    specific = torch.tensor([[0.1, 0.2, 0.8]])
    assert separately(transferable, specific, base_classes=2).scores.argmax(1).tolist() == [2]


def test_joined_features_give_the_cosine_of_joined_vectors():
    g, g_tilde, p, p_tilde = (
        random(3, 2, 4),
        random(3, 2, 6, seed=1),
        random(2, 2, 4, seed=2),
        random(2, 2, 6),
    )
    got = similarity(joined(g, g_tilde), joined(p, p_tilde))
    want = S(
        [g[1, j].tolist() + g_tilde[1, j].tolist() for j in range(2)],
        [p[0, j].tolist() + p_tilde[0, j].tolist() for j in range(2)],
    )
    assert got[1, 0].item() == pytest.approx(want)


# --- eq. 7 and 8


def test_resistance_over_three_sessions():
    base = random(3, 2, 4)
    sessions = [random(4, 2, 4, seed=s) for s in (1, 2, 3)]
    delta, gamma = no_delta(base), 0.3
    summed = [[[0.0] * 4 for _ in range(2)] for _ in range(3)]
    untouched = base.clone()
    for novel in sessions:
        delta = accumulate(delta, base, novel)
        moved = resist(base, delta, gamma)
        for c in range(3):
            for j in range(2):
                p = base[c, j].tolist()
                for i in range(4):
                    q = novel[i, j].tolist()
                    weight = max(cosine(p, q), 0)
                    summed[c][j] = [s + weight * x / norm(q) for s, x in zip(summed[c][j], q, strict=True)]
                s = summed[c][j]
                want = [x / norm(p) - gamma * y / norm(s) for x, y in zip(p, s, strict=True)]
                assert as_float(delta)[c, j].tolist() == pytest.approx(s)
                assert moved[c, j].tolist() == pytest.approx(want)
        assert torch.equal(base, untouched)


def test_resistance_without_novel_classes_changes_no_direction():
    base = random(3, 2, 4)
    moved = resist(base, no_delta(base), 0.5)
    torch.testing.assert_close(view_similarity(moved, base).diagonal(), torch.ones(2, 3, dtype=torch.float64))


def test_novel_classes_on_the_other_side_do_not_count():
    base = random(1, 2, 4)
    assert not accumulate(no_delta(base), base, -base).any()


@given(st.integers(0, 10_000), st.floats(0.01, 0.9))
@settings(max_examples=30, deadline=None)
def test_a_similar_novel_class_is_resisted_whatever_the_scale(seed, gamma):
    base = random(2, 1, 6, seed=seed)
    novel = base[:1] + 0.3 * random(1, 1, 6, seed=seed + 1)
    delta = accumulate(no_delta(base), base, novel)
    before, after = similarity(novel, base)[0, 0], similarity(novel, resist(base, delta, gamma))[0, 0]
    assert after < before or before > 1 - 1e-9
    scaled = resist(50 * base, accumulate(no_delta(base), 50 * base, 7 * novel), gamma)
    torch.testing.assert_close(scaled, resist(base, delta, gamma))


# --- eq. 9 and 10


def absorb_by_loops(scores, r, R):
    """Eq. 10 as read: argmax is c and the score is above r; at most R, the most similar first."""
    owner = [NO_CLASS] * len(scores)
    for c in range(len(scores[0])):
        candidates = [n for n, row in enumerate(scores) if argmax(row) == c and row[c] > r]
        for n in sorted(candidates, key=lambda n: (-scores[n][c], n))[:R]:
            owner[n] = c
    return owner


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([-1, 0.25, 0.625, 0.875, 0.9]))
@settings(max_examples=60, deadline=None)
def test_who_is_absorbed(seed, R, r):
    scores = (random(25, 4, seed=seed).clamp(-1, 1) * 8).round() / 8  # rounded: ties happen
    assert recognise(scores, r, R).tolist() == absorb_by_loops(scores.tolist(), r, R)


def test_calibration_is_the_weighted_mean_of_prototype_and_absorbed_samples():
    classifiers = random(4, 2, 5)
    features = classifiers.repeat(6, 1, 1) + 0.6 * random(24, 2, 5, seed=1)
    alpha, r, R = [0.1, 0.1, 0.6, 0.6], 0.85, 3
    absorbed_by = recognise(similarity(features, classifiers), r, R)
    got = moved(classifiers, features, absorbed_by, alphas(4, 2, base=0.1, novel=0.6))
    scores = [[S(x, p) for p in classifiers.tolist()] for x in features.tolist()]
    owner = absorb_by_loops(scores, r, R)
    assert absorbed_by.tolist() == owner
    assert {0, 1, NO_CLASS} <= set(owner)
    for c in range(4):
        members = [x for x, o in zip(features.tolist(), owner, strict=True) if o == c]
        assert len(members) <= R
        for j in range(2):
            want = classifiers[c, j].tolist()
            if members:
                mean = [sum(x[j][k] for x in members) / len(members) for k in range(5)]
                want = [(1 - alpha[c]) * p + alpha[c] * m for p, m in zip(want, mean, strict=True)]
            assert got[c, j].tolist() == pytest.approx(want)


def test_calibration_with_nothing_to_absorb_changes_nothing():
    classifiers = random(3, 2, 5)
    far = recognise(similarity(-classifiers, classifiers), 0.999, 40)
    assert far.tolist() == [NO_CLASS] * 3
    for features, absorbed_by in ((classifiers[:0], far[:0]), (-classifiers, far)):
        assert torch.equal(moved(classifiers, features, absorbed_by, torch.ones(3)), classifiers)


def test_labelled_samples_give_the_mean_of_all_samples():
    features, labels = random(20, 2, 3), torch.arange(20) % 3
    early, counts = prototypes(features[:9], labels[:9], range(3)), torch.tensor([3, 3, 3])
    late, counts = calibrate_labelled(early, counts, features[9:15], labels[9:15])
    late, counts = calibrate_labelled(late, counts, features[15:16], labels[15:16])
    late, counts = calibrate_labelled(late, counts, features[16:], labels[16:])
    torch.testing.assert_close(late, prototypes(features, labels, range(3)))
    assert counts.tolist() == [7, 7, 6]


def test_weights_below_one_give_the_weighted_mean_of_all_samples():
    features, labels, weights = random(6, 2, 3), torch.zeros(6, dtype=torch.int64), torch.full((6,), 0.1)
    late, counts = prototypes(features[:2], labels[:2], range(1), weights[:2]), weights[:2].sum()[None]
    for part in (slice(2, 4), slice(4, 6)):
        late, counts = calibrate_labelled(late, counts, features[part], labels[part], weights[part])
    torch.testing.assert_close(late, prototypes(features, labels, range(1)))
    assert counts.tolist() == [pytest.approx(0.6)]
