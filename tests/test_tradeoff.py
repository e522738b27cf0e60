"""The trade-off of the gates: the rules on features that are biased towards base classes."""

import numpy as np
import pytest
import torch

from fairshot.classifiers.dual import separately
from fairshot.classifiers.gate import favour, fit_whitening, noise_ratio, unbias
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.similarity import similarity
from fairshot.evaluation.tradeoff import Embedded, EmbeddedSession, Situation, best, rules, tradeoff

BASE, WAY, SESSIONS, SHOTS = 8, 3, 2, 5


@pytest.fixture(scope="module")
def sessions():
    """Classes around random directions; novel ones have five shots, base ones sixty, which is the bias."""
    generator = torch.Generator().manual_seed(0)
    classes = BASE + WAY * SESSIONS
    spread = torch.linspace(0.3, 1.4, 24)
    centres = 1 + 0.3 * torch.randn(classes, 2, 24, generator=generator)

    def draw(labels):
        g = (centres[labels] + spread * torch.randn(len(labels), 2, 24, generator=generator)).clamp(min=0)
        return Embedded(g, torch.cat([g, g.square()], -1), labels)

    def session(first, count, shots):
        ids = torch.arange(first, first + count)
        return EmbeddedSession(draw(ids.repeat(shots)), draw(ids.repeat(30)))

    return [session(0, BASE, 60), *(session(BASE + WAY * t, WAY, SHOTS) for t in range(SESSIONS))]


@pytest.fixture(scope="module")
def points(sessions):
    return tradeoff(sessions, rules())


def of(points, rule):
    return {point.strength: point.metrics for point in points if point.rule == rule}


def test_without_strength_every_plain_rule_is_algorithm_1(sessions, points):
    plain = [of(points, name)[0.0] for name in ("Resistance", "constant", "unbiased")]
    assert plain[0] == plain[1] == plain[2]
    now = Situation(sessions)
    first = similarity(now.test.g, prototypes(now.train.g, now.train.labels, range(now.classes)))
    second = similarity(now.test.g_tilde, prototypes(now.train.g_tilde, now.train.labels, range(now.classes)))
    answers = separately(first, second, BASE).argmax(1)
    assert plain[0].last == pytest.approx(100 * (answers == now.test.labels).double().mean().item())


def test_each_rule_is_what_its_name_says(sessions):
    now = Situation(sessions)
    by_name = {rule.name: rule.looks for rule in rules(power=0.7, shrinkage=3.0)}
    P_tilde = prototypes(now.train.g_tilde, now.train.labels, range(now.classes))
    delta = torch.zeros_like(P_tilde[:BASE])
    for t in range(SESSIONS):
        delta = accumulate(delta, P_tilde[:BASE], P_tilde[BASE + WAY * t : BASE + WAY * (t + 1)])
    moved = torch.cat([resist(P_tilde[:BASE], delta, 0.3), P_tilde[BASE:]])
    first, second = by_name["Resistance"](now, 0.3)
    torch.testing.assert_close(second, similarity(now.test.g_tilde, moved))
    torch.testing.assert_close(by_name["constant"](now, 0.1)[0], favour(first, BASE, 0.1))
    space = fit_whitening(sessions[0].train.g, sessions[0].train.labels, BASE, 0.7, 3.0)
    train = space.transform(now.train.g)
    look = similarity(space.transform(now.test.g), prototypes(train, now.train.labels, range(now.classes)))
    torch.testing.assert_close(by_name["whitened, constant"](now, 0.1)[0], favour(look, BASE, 0.1))
    both = by_name["both whitened, constant"](now, 0.1)
    torch.testing.assert_close(both[0], favour(look, BASE, 0.1))
    space = fit_whitening(sessions[0].train.g_tilde, sessions[0].train.labels, BASE, 1.0, 3.0)
    P_white = prototypes(space.transform(now.train.g_tilde), now.train.labels, range(now.classes))
    torch.testing.assert_close(both[1], similarity(space.transform(now.test.g_tilde), P_white))
    ratio = noise_ratio(train, now.train.labels, range(BASE, now.classes))
    shots = torch.full((WAY * SESSIONS,), SHOTS)
    torch.testing.assert_close(by_name["whitened, unbiased"](now, 1.0)[0], unbias(look, BASE, shots, ratio))


@pytest.mark.parametrize(
    "rule", ["Resistance", "constant", "unbiased", "whitened, constant", "whitened, unbiased"]
)
def test_strength_trades_base_for_novel_accuracy(points, rule):
    curve = of(points, rule)
    weakest, strongest = curve[min(curve)], curve[max(curve)]
    assert strongest.inc_avg > weakest.inc_avg
    assert strongest.base_avg < weakest.base_avg


def test_best_is_the_highest_of_the_metric_asked_for(points):
    assert best(points, "inc_avg").metrics.inc_avg == max(point.metrics.inc_avg for point in points)
    overall = best(points, "overall_avg")
    assert overall.metrics.overall_avg == np.max([point.metrics.overall_avg for point in points])
