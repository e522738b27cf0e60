"""TEEN: new prototypes move towards similar base prototypes, and nothing else moves."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairshot.methods.teen import calibrated
from support.toys import after_base, toy_stream, uniform


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def calibrated_by_hand(new: list[float], base: list[list[float]], shift: float, selectivity: float):
    new, base = unit(new), [unit(row) for row in base]
    weights = [math.exp(selectivity * sum(x * y for x, y in zip(new, row, strict=True))) for row in base]
    total = sum(weights)
    mean = [sum(w / total * row[i] for w, row in zip(weights, base, strict=True)) for i in range(len(new))]
    return [(1 - shift) * x + shift * y for x, y in zip(new, unit(mean), strict=True)]


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0.1, 32), st.integers(0, 99))
def test_it_is_the_papers_rule_in_every_view(shift, selectivity, seed):
    novel, base = uniform(3, 2, 5, seed=seed), uniform(4, 2, 5, seed=seed + 100)
    found = calibrated(novel, base, shift, selectivity)
    for c in range(3):
        for v in range(2):
            expected = calibrated_by_hand(novel[c, v].tolist(), base[:, v].tolist(), shift, selectivity)
            torch.testing.assert_close(found[c, v], torch.tensor(expected, dtype=torch.float64))


def test_similar_base_classes_draw_and_others_hardly_do():
    base = torch.eye(4, dtype=torch.float64)[:, None]  # four classes that have nothing in common
    novel = torch.tensor([[[0.9, 0.1, 0.0, 0.0]]], dtype=torch.float64)
    moved = calibrated(novel, base, shift=0.5, selectivity=16)
    before, after = (torch.nn.functional.normalize(p, dim=-1)[0, 0] for p in (novel, moved))
    assert after[0] > before[0]  # towards the one it resembles
    assert (after[2:] < 1e-4).all()  # and not towards those it does not


def test_base_prototypes_and_what_is_stored_stay():
    method = after_base("teen", shift=0.7)
    base = method.prototypes.clone()
    method.learn(toy_stream().sessions[1].train)
    calibrated_now = method.calibrated_prototypes()
    assert torch.equal(calibrated_now[:6], base)
    assert torch.equal(method.prototypes[:6], base)
    assert not torch.allclose(calibrated_now[6:], method.prototypes[6:])
    expected = calibrated(method.prototypes[6:], base, 0.7, 16.0)
    assert torch.equal(calibrated_now[6:], expected)


def test_without_a_shift_it_answers_as_the_nearest_mean():
    teen, ncm = after_base("teen", shift=0.0), after_base("ncm")
    ncm.restore(teen.tensors())
    for method in (teen, ncm):
        method.learn(toy_stream().sessions[1].train)
    features = teen.embed(toy_stream().base.test.pictures)
    torch.testing.assert_close(teen.scores(features), ncm.scores(features))
