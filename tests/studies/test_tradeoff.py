"""The trade-off of the gates: every rule is what SSS does with it, and strength trades base for novel."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from fairshot.evaluation.confusion import confusion_matrix
from fairshot.evaluation.metrics import metrics_from_confusions
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods import build
from fairshot.methods.sss import SSSSettings
from fairshot.progress import Reporter
from fairshot.studies.cached_stream import CachedStream, Embedded, FeatureBank, Subset, cache_stream
from fairshot.studies.gates import Gate, Space, common_gates, own_gates
from fairshot.studies.pseudo_novel import pseudo_streams
from fairshot.studies.tradeoff import choose, search, tradeoff
from fairshot.studies.tuning import split_pseudo_novel
from support.toys import MODEL, after_base, learnt_base, toy_method, toy_stream

BASE, WAY, SESSIONS, TESTS = 8, 3, 2, 30
SHOTS = (5, 3, 1)  # of the classes of a session
NOVEL = WAY * SESSIONS


@pytest.fixture(scope="module")
def features():
    """Classes around random directions; novel ones have few shots, base ones sixty, which is the bias.

    Two streams over the same images: the second takes the novel classes the other way round, and learns from
    other images of theirs.
    """
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(0.3, 1.4, 24)
    centres = 1 + 0.3 * torch.randn(BASE + NOVEL, 2, 24, generator=generator)

    def draw(labels):
        g = (centres[labels] + spread * torch.randn(len(labels), 2, 24, generator=generator)).clamp(min=0)
        return Embedded(g, torch.cat([g, g.square()], -1), labels)

    base, ids, images = torch.arange(BASE), torch.arange(BASE, BASE + NOVEL), TESTS + max(SHOTS)
    tests = draw(base.repeat(TESTS))
    train = draw(base.repeat(60))
    gallery = FeatureBank(train, [tests, draw(ids.repeat_interleave(images))])
    rows = torch.arange(NOVEL * images).reshape(NOVEL, images) + len(tests.labels)

    def course(rows):
        test, shots = [Subset(torch.arange(len(tests.labels)), tests.labels)], []
        for t in range(SESSIONS):
            mine, names = rows[WAY * t :][:WAY], ids[WAY * t :][:WAY]
            of_class = [one[TESTS:][:k] for one, k in zip(mine, SHOTS, strict=True)]
            test.append(Subset(mine[:, :TESTS].flatten(), names.repeat_interleave(TESTS)))
            shots.append(Subset(torch.cat(of_class), names.repeat_interleave(torch.tensor(SHOTS))))
        return CachedStream(gallery, test, shots)

    return train, course(rows), course(rows.flip(0, 1))


@pytest.fixture
def train(features):
    return features[0]


@pytest.fixture
def courses(features):
    return features[1:]


@pytest.fixture
def course(features):
    return features[1]


SPACES = (None, Space(0.5, 1.0), Space(0.7, 2.0), Space(0.7, 2.0, 0.2), Space(0.7, 2.0, 0.6))
GATES = [
    *(Gate("plain", 0.0, gamma=gamma) for gamma in (0.0, 0.4)),
    *(
        Gate(rule, strength, space)
        for space in SPACES
        for rule, strengths in (
            ("constant", (0.03, 0.1)),
            ("unbiased", (0.5, 1.25)),
            ("left_out", (0.2, 0.7)),
        )
        for strength in strengths
    ),
    Gate("left_out", 0.7, Space(0.5, 1.0), gamma=0.2),
]


def all_through(course):
    """What every gate gives on a course."""
    found = {}
    for sighting in course.gallery.sightings(gate.space for gate in GATES):
        mine = [gate for gate in GATES if gate.space == sighting.space]
        found |= zip(mine, course.through(sighting, mine), strict=True)
    return found


def of_sss(course, train, gate):
    """What SSS itself gives, session by session."""
    gallery, tests = course.gallery, course.tests
    method = build("sss", SSSSettings(**gate.settings()), MODEL, 1, BASE, BASE + NOVEL)
    method.init_classifiers({"g": train.g, "g_tilde": train.g_tilde}, train.labels)
    confusions = []
    for t, images in enumerate(course.images):
        if t:
            rows = course.shots[t - 1].rows
            method.add_classes(
                {"g": gallery.g[rows], "g_tilde": gallery.g_tilde[rows]}, course.shots[t - 1].labels
            )
        rows = tests.rows[:images]
        answers = method.scores({"g": gallery.g[rows], "g_tilde": gallery.g_tilde[rows]}).argmax(1)
        confusions.append(confusion_matrix(tests.labels[:images].numpy(), answers.numpy(), course.classes[t]))
    return metrics_from_confusions(confusions, np.diff([0, *course.classes]).tolist())


@pytest.mark.parametrize("draw", [0, 1])
def test_many_gates_at_once_give_what_sss_gives_with_each(courses, train, draw):
    for gate, found in all_through(courses[draw]).items():
        assert found == of_sss(courses[draw], train, gate), gate


SOME = [*GATES[1::5], GATES[-1]]  # of each rule and space, with and without Resistance


def started(gate):
    method = toy_method("sss", **gate.settings())
    method.restore_modules(learnt_base("sss"))
    method.init_base_classifiers(toy_stream().base.train)
    return method


def test_the_stream_of_a_run_is_what_sss_goes_through():
    stream = toy_stream()
    found = all_through(cache_stream(after_base("sss"), stream))
    for gate in SOME:
        outcome = run_sessions(started(gate), stream)
        sizes = [len(one.classes) for one in stream.sessions]
        assert found[gate] == metrics_from_confusions(outcome.confusions, sizes), gate


@pytest.mark.parametrize("gate", SOME, ids=str)
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
    method, stream = started(Gate("constant", 0.05, Space(0.5, 1.0))), toy_stream()
    method.learn(stream.sessions[1].train)
    before = method.classifier.gate.prototypes.clone()
    method.learn(stream.sessions[1].test)
    refined = method.classifier.gate.prototypes.clone()
    assert not torch.equal(refined[6:], before[6:])
    assert torch.equal(refined[:6], before[:6])
    method.adapt(method.embed(stream.base.test.pictures))
    assert not torch.equal(method.classifier.gate.prototypes[:6], refined[:6])
    assert method.classifier.gate.counts.tolist() == method.classifier.counts.tolist()


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
    whitened = [p for p in points if p.gate.space and not p.gate.space.class_covariance_share]
    best = max(whitened, key=lambda p: p.both).gate.space
    own = {p.gate.space for p in points if p.gate.space and p.gate.space.class_covariance_share}
    assert own == {gate.space for gate in own_gates(best)}
    assert {space.power for space in own} == {best.power}
    assert best.shrinkage in {space.shrinkage for space in own}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 2.0)))} == {1.0, 2.0, 4.0}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 8.0)))} == {4.0, 8.0}


def test_an_average_over_streams_is_the_mean_of_each(courses):
    together = tradeoff(courses, GATES[3:4])
    apart = [tradeoff([one], GATES[3:4])[0].inc_avg for one in courses]
    assert apart[0] != apart[1]
    assert together[0].inc_avg == pytest.approx(np.mean(apart))


def test_points_come_in_the_order_of_the_gates_and_progress_counts_all(course):
    told = []

    class Listener(Reporter):
        @contextmanager
        def track(self, what, total, done=0):
            told.append(total)
            yield lambda units=1, note="": told.append(-units)

    mixed = [*GATES[8:10], *GATES[2:4], *GATES[10:12]]  # the first and the last share a space
    assert [point.gate for point in tradeoff([course], mixed, Listener())] == mixed
    assert told[0] == len(mixed)
    assert sum(told) == 0


def test_pseudo_novel_courses_are_drawn_from_base_training_images_the_network_has_not_seen():
    stream, method = toy_stream(), after_base("sss")
    courses = pseudo_streams(method, stream, novel=2, held_out=6, seed=1, draws=3)
    _, cast = split_pseudo_novel(stream, 2, np.random.default_rng([1, 3]))
    every = method.embed(stream.base.train.pictures)["g"]
    kept, first_to_come = set(), set()
    for course in courses:
        assert course.classes == [4, 6]
        assert course.images == [24, 36]
        novel = course.gallery.g[torch.cat([course.shots[0].rows, course.tests.rows[24:]])]
        assert course.shots[0].labels.tolist() == [4] * 5 + [5] * 5
        assert course.tests.labels[24:].tolist() == [4] * 6 + [5] * 6
        rows = [int((every - image).abs().sum((1, 2)).argmin()) for image in novel]
        assert torch.allclose(every[rows], novel, atol=1e-6)
        assert len(set(rows)) == len(rows) == 2 * 5 + 2 * 6  # no image is shot and test image
        assert set(stream.base.train.labels[rows]) == set(cast)
        kept.add(tuple(rows))
        first_to_come.add(int(stream.base.train.labels[rows[0]]))
    assert len(kept) == 3
    assert first_to_come == set(cast)  # which class comes when is drawn anew each time
