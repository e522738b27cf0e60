"""The trade-off of the gates: every rule is what SSS does with it, and strength trades base for novel."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairshot.classifiers.gate import Space
from fairshot.evaluation.metrics import metrics_from_confusions
from fairshot.evaluation.pseudo import pseudo_courses
from fairshot.evaluation.sessions import run_sessions
from fairshot.evaluation.tradeoff import (
    BaseSession,
    Course,
    Embedded,
    EmbeddedSession,
    Gate,
    choose,
    common_gates,
    embed_stream,
    own_gates,
    search,
    tradeoff,
)
from fairshot.evaluation.tuning import cast_roles
from toys import after_base, learnt_base, toy_method, toy_stream

BASE, WAY, SESSIONS, SHOTS = 8, 3, 2, 5


@pytest.fixture(scope="module")
def course():
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

    sessions = [session(0, BASE, 60), *(session(BASE + WAY * t, WAY, SHOTS) for t in range(SESSIONS))]
    return Course(BaseSession(sessions[0].train), sessions)


GATES = [
    Gate("plain", 0.0),
    Gate("plain", 0.0, gamma=0.4),
    Gate("constant", 0.03),
    Gate("unbiased", 1.0),
    Gate("left_out", 0.8),
    Gate("constant", 0.1, Space(0.5, 1.0)),
    Gate("unbiased", 1.25, Space(0.7, 2.0)),
    Gate("left_out", 0.7, Space(0.5, 0.5), gamma=0.2),
    Gate("constant", 0.1, Space(0.5, 1.0, 0.2)),
]


def started(gate):
    method = toy_method("sss", **gate.settings())
    method.restore_parts(learnt_base("sss"))
    method.start_base(toy_stream().base.train)
    return method


@pytest.mark.parametrize("gate", GATES, ids=str)
def test_a_gate_is_what_sss_does_with_its_settings(gate):
    stream = toy_stream()
    sessions = embed_stream(after_base("sss"), stream)
    outcome = run_sessions(started(gate), stream)
    expected = metrics_from_confusions(outcome.confusions, [len(one.classes) for one in stream.sessions])
    assert Course(BaseSession(sessions[0].train), sessions).through(gate) == expected


@pytest.mark.parametrize("gate", GATES[2:], ids=str)
def test_all_that_sss_has_learnt_with_a_gate_is_in_its_tensors(gate):
    method, stream = started(gate), toy_stream()
    for session in stream.sessions[1:]:
        copy = toy_method("sss", **gate.settings())
        copy.restore({key: value.clone() for key, value in method.tensors().items()})
        method.learn(session.train)
        copy.learn(session.train)
        features = method.embed(session.test.pictures)
        assert torch.equal(copy.scores(features), method.scores(features))


def test_further_shots_and_unlabelled_images_move_the_first_look_too():
    method, stream = started(replace(GATES[5], strength=0.05)), toy_stream()
    method.learn(stream.sessions[1].train)
    before = method.look.prototypes.clone()
    method.learn(stream.sessions[1].test)
    refined = method.look.prototypes.clone()
    assert not torch.equal(refined[6:], before[6:])
    assert torch.equal(refined[:6], before[:6])
    method.adapt(method.embed(stream.base.test.pictures))
    assert not torch.equal(method.look.prototypes[:6], refined[:6])
    assert method.look.counts.tolist() == method.counts.tolist()


def of(points, family):
    return [point for point in points if point.gate.family == family]


def test_strength_trades_base_for_novel_accuracy(course):
    points = tradeoff([course], [g for g in common_gates() if g.space in (None, Space(0.5, 2.0))])
    families = {point.gate.family for point in points}
    assert len(families) == 7
    for family in families:
        mine = of(points, family)
        weakest, strongest = mine[0], mine[-1]
        assert strongest.inc_avg > weakest.inc_avg, family
        assert strongest.base_avg < weakest.base_avg, family


def test_the_choice_is_the_best_mean_of_overall_accuracy_and_harmonic_mean(course):
    points = tradeoff([course], [g for g in common_gates() if g.space is None])
    for family, point in choose(points).items():
        both = [(p.overall_avg + p.harmonic_mean_avg) / 2 for p in of(points, family)]
        assert point.both == max(both)


def test_own_covariances_are_tried_near_the_best_whitening(course):
    points = search([course])
    whitened = [p for p in points if p.gate.space and not p.gate.space.own_share]
    best = max(whitened, key=lambda p: p.both).gate.space
    own = {p.gate.space for p in points if p.gate.space and p.gate.space.own_share}
    assert own == {gate.space for gate in own_gates(best)}
    assert {space.power for space in own} == {best.power}
    assert best.shrinkage in {space.shrinkage for space in own}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 2.0)))} == {1.0, 2.0, 4.0}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 8.0)))} == {4.0, 8.0}


def test_an_average_over_streams_is_the_mean_of_each(course):
    other = Course(course.base, [_first(course), *reversed(_later(course))])
    gate = GATES[3]
    together, apart = (
        tradeoff([course, other], [gate]),
        [tradeoff([one], [gate])[0] for one in (course, other)],
    )
    assert together[0].inc_avg == pytest.approx(np.mean([one.inc_avg for one in apart]))


def _first(course):
    images = slice(course.images[0])
    test = Embedded(course.g[images], course.g_tilde[images], torch.from_numpy(course.labels[images]))
    return EmbeddedSession(course.base.train, test)


def _later(course):
    """The later sessions; told to come in another order, their classes get other ids."""
    found = []
    for t, shots in enumerate(course.shots):
        images = slice(course.images[t], course.images[t + 1])
        shift = (SESSIONS - 1 - 2 * t) * WAY
        labels = torch.from_numpy(course.labels[images]) + shift
        test = Embedded(course.g[images], course.g_tilde[images], labels)
        found.append(EmbeddedSession(replace(shots, labels=shots.labels + shift), test))
    return found


def test_pseudo_novel_courses_are_drawn_from_base_training_images_the_network_has_not_seen():
    stream, method = toy_stream(), after_base("sss")
    courses = pseudo_courses(method, stream, novel=2, held_out=6, seed=1, draws=3)
    _, cast = cast_roles(stream, 2, np.random.default_rng([1, 3]))
    every = method.embed(stream.base.train.pictures)["g"]
    kept = set()
    for course in courses:
        assert course.sizes == [4, 2]
        assert course.images == [24, 36]
        novel = torch.cat([course.shots[0].g, course.g[24:]])
        rows = [int((every - image).abs().sum((1, 2)).argmin()) for image in novel]
        assert torch.allclose(every[rows], novel, atol=1e-6)
        assert len(set(rows)) == len(rows) == 2 * 5 + 2 * 6  # no image is shot and test image
        assert set(stream.base.train.labels[rows]) == set(cast)
        kept.add(tuple(rows))
    assert len(kept) == 3
