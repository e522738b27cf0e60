"""The trade-off of the gates: every gate is what SSS does with it, and strength trades base for novel."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from fairshot.evaluation.metrics import confusion_matrix, metrics_from_confusions
from fairshot.evaluation.result import Result
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods import build
from fairshot.methods.sss import SSSSettings
from fairshot.models.flips import FlipViews
from fairshot.progress import Reporter
from fairshot.recipes import load_recipe
from fairshot.studies.cached_stream import CachedStream, FeatureBank, LabelledFeatures, Subset, cache_stream
from fairshot.studies.comparison import compare
from fairshot.studies.execute import StudyOptions
from fairshot.studies.gate_search import (
    NoGate,
    _gate_of_run,
    _gated_recipe,
    _set_mirror,
    choose,
    evaluate,
    gate_folders,
    search,
    train_on_pseudo_novel,
)
from fairshot.studies.gates import Gate, Space, common_gates, own_gates
from fairshot.studies.pseudo_novel import pseudo_streams, split_pseudo_novel
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
        return LabelledFeatures(g, torch.cat([g, g.square()], -1), labels)

    base, ids, images = torch.arange(BASE), torch.arange(BASE, BASE + NOVEL), TESTS + max(SHOTS)
    tests = draw(base.repeat(TESTS))
    train = draw(base.repeat(60))
    bank = FeatureBank(train, [tests, draw(ids.repeat_interleave(images))])
    rows = torch.arange(NOVEL * images).reshape(NOVEL, images) + len(tests.labels)

    def stream(rows):
        test, shots = [Subset(torch.arange(len(tests.labels)), tests.labels)], []
        for t in range(SESSIONS):
            mine, names = rows[WAY * t :][:WAY], ids[WAY * t :][:WAY]
            of_class = [one[TESTS:][:k] for one, k in zip(mine, SHOTS, strict=True)]
            test.append(Subset(mine[:, :TESTS].flatten(), names.repeat_interleave(TESTS)))
            shots.append(Subset(torch.cat(of_class), names.repeat_interleave(torch.tensor(SHOTS))))
        return CachedStream(bank, test, shots)

    return train, stream(rows), stream(rows.flip(0, 1))


@pytest.fixture
def train(features):
    return features[0]


@pytest.fixture
def streams(features):
    return features[1:]


@pytest.fixture
def stream(features):
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


def all_through(stream):
    """What every gate gives on a stream."""
    found = {}
    for projection in stream.bank.projections(gate.space for gate in GATES):
        mine = [gate for gate in GATES if gate.space == projection.space]
        found |= zip(mine, stream.through(projection, mine), strict=True)
    return found


def of_sss(stream, train, gate):
    """What SSS itself gives, session by session."""
    bank, tests = stream.bank, stream.tests
    method = build("sss", SSSSettings(**gate.settings()), MODEL, 1, BASE, BASE + NOVEL)
    method.init_classifiers({"g": train.g, "g_tilde": train.g_tilde}, train.labels)
    confusions = []
    for t, images in enumerate(stream.images):
        if t:
            rows = stream.shots[t - 1].rows
            method.add_classes({"g": bank.g[rows], "g_tilde": bank.g_tilde[rows]}, stream.shots[t - 1].labels)
        rows = tests.rows[:images]
        answers = method.scores({"g": bank.g[rows], "g_tilde": bank.g_tilde[rows]}).argmax(1)
        confusions.append(confusion_matrix(tests.labels[:images].numpy(), answers.numpy(), stream.classes[t]))
    return metrics_from_confusions(confusions, np.diff([0, *stream.classes]).tolist())


@pytest.mark.parametrize("draw", [0, 1])
def test_many_gates_at_once_give_what_sss_gives_with_each(streams, train, draw):
    for gate, found in all_through(streams[draw]).items():
        assert found == of_sss(streams[draw], train, gate), gate


SOME = [*GATES[1::5], GATES[-1]]  # of each rule and space, with and without Resistance


def started(gate):
    method = toy_method("sss", **gate.settings())
    method.restore_modules(learnt_base("sss"))
    method.init_base_classifiers(toy_stream().base.train)
    return method


@pytest.mark.parametrize("name", ["ncm", "savc", "nc_fscil"])
def test_gates_decide_on_the_features_of_other_methods_too(name):
    stream, method = toy_stream(), after_base(name)
    plain = cache_stream(method, stream)
    assert plain.bank.g.shape[0] == plain.bank.g_tilde.shape[0]
    if name != "savc":  # without an SR module of its own, g~ is g
        assert torch.equal(plain.bank.g, plain.bank.g_tilde)
    _set_mirror(method, mirror=True)
    mirrored = cache_stream(method, stream)
    assert mirrored.bank.g.shape == plain.bank.g.shape
    flipped = stream.sessions[0].test.pictures
    method.views = FlipViews()
    own = method.embed(flipped)["g"]
    assert not torch.equal(mirrored.bank.g[: len(own)], own)
    gate = Gate("constant", 0.0)
    through = {gate: next(iter(evaluate([plain], [gate])))}
    if name == "ncm":  # the same cosines decide twice: nearest class mean itself
        assert through[gate].overall_avg == pytest.approx(ncm_overall(stream), abs=1e-9)


def ncm_overall(stream):
    outcome = run_sessions(after_base("ncm"), stream)
    sizes = [len(one.classes) for one in stream.sessions]
    return metrics_from_confusions(outcome.confusions, sizes).overall_avg


def test_runs_whose_network_changes_or_that_have_no_prototypes_get_no_gate(tmp_path):
    for name in ("topic", "bidist", "sss_bgmm"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "recipe.yaml").write_text(load_recipe(f"doodles/{name}").as_yaml())
        with pytest.raises(NoGate) as refused:
            _gated_recipe(folder, mirror=True)
        assert (refused.value.run, refused.value.method) == (folder, name)


def test_several_runs_share_a_pseudo_novel_training_per_method(tmp_path):
    names = ("ncm-seed0", "sss-seed0", "sss-seed1")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").touch()
    ncm, first, second = runs = [tmp_path / name for name in names]
    beside = tmp_path / "pseudo-novel"
    several = {ncm: beside / "ncm", first: beside / "sss", second: beside / "sss"}
    assert gate_folders([tmp_path]) == gate_folders(runs) == several
    assert gate_folders([first]) == {first: first / "pseudo-novel"}
    assert gate_folders([first], beside) == {first: beside}
    assert gate_folders([ncm / "none"]) == {ncm / "none": ncm / "none" / "pseudo-novel"}


def test_methods_that_are_trained_alike_share_a_pseudo_novel_training(tmp_path):
    changes = ["benchmark.base_classes=4", "benchmark.way=1", "benchmark.sessions=1", "model.size=12"]
    changes += ["training.epochs=0", "training.learning_rate=0.1"]
    options = StudyOptions("cpu")
    compare(["ncm", "teen"], tmp_path, overrides=changes, options=options).check()
    train_on_pseudo_novel(gate_folders([tmp_path]), options=options)
    first, second = (Result.read(tmp_path / "pseudo-novel" / name / "split1") for name in ("ncm", "teen"))
    assert (first.base, second.base) == (None, "../ncm/split1")


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


def test_further_shots_and_unlabelled_images_move_the_gate_too():
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


def test_strength_trades_base_for_novel_accuracy(stream):
    points = evaluate([stream], [g for g in common_gates() if g.space in (None, Space(0.5, 2.0))])
    families = {point.gate.family for point in points}
    assert len(families) == 7
    for family in families:
        mine = of(points, family)
        weakest, strongest = mine[0], mine[-1]
        assert strongest.inc_avg > weakest.inc_avg, family
        assert strongest.base_avg < weakest.base_avg, family


def test_the_choice_is_the_best_mean_of_overall_accuracy_and_harmonic_mean(stream):
    points = evaluate([stream], [g for g in common_gates() if g.space is None])
    for family, point in choose(points).items():
        both = [(p.overall_avg + p.harmonic_mean_avg) / 2 for p in of(points, family)]
        assert point.both == max(both)


def test_own_covariances_are_tried_near_the_best_whitening(stream):
    points = search([[stream]])
    whitened = [p for p in points if p.gate.space and not p.gate.space.class_covariance_share]
    best = max(whitened, key=lambda p: p.both).gate.space
    own = {p.gate.space for p in points if p.gate.space and p.gate.space.class_covariance_share}
    assert own == {gate.space for gate in own_gates(best)}
    assert {space.power for space in own} == {best.power}
    assert best.shrinkage in {space.shrinkage for space in own}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 2.0)))} == {1.0, 2.0, 4.0}
    assert {s.shrinkage for s in (g.space for g in own_gates(Space(0.5, 8.0)))} == {4.0, 8.0}


def test_an_average_over_streams_is_the_mean_of_each(streams):
    together = evaluate(streams, GATES[3:4])
    apart = [evaluate([one], GATES[3:4])[0].inc_avg for one in streams]
    assert apart[0] != apart[1]
    assert together[0].inc_avg == pytest.approx(np.mean(apart))


def test_a_choice_over_several_splits_is_by_their_mean(streams):
    found = search([[one] for one in streams])
    apart = [evaluate([one], [point.gate for point in found]) for one in streams]
    assert [each.both for each in apart[0]] != [each.both for each in apart[1]]
    for point, *each in zip(found, *apart, strict=True):
        assert point.both == pytest.approx(np.mean([one.both for one in each]))


def test_points_come_in_the_order_of_the_gates_and_progress_counts_all(stream):
    progress = []

    class Listener(Reporter):
        @contextmanager
        def track(self, what, total, done=0):
            progress.append(total)
            yield lambda units=1, note="": progress.append(-units)

    mixed = [*GATES[8:10], *GATES[2:4], *GATES[10:12]]  # the first and the last share a space
    assert [point.gate for point in evaluate([stream], mixed, Listener())] == mixed
    assert progress[0] == len(mixed)
    assert sum(progress) == 0


def test_pseudo_novel_streams_are_drawn_from_base_training_images_the_network_has_not_seen():
    stream, method = toy_stream(), after_base("sss")
    streams = pseudo_streams(method, stream, novel=2, held_out=6, seed=1, draws=3)
    _, pseudo_novel = split_pseudo_novel(stream, 2, np.random.default_rng([1, 3]))
    every = method.embed(stream.base.train.pictures)["g"]
    kept, first_to_come = set(), set()
    for drawn in streams:
        assert drawn.classes == [4, 6]
        assert drawn.images == [24, 36]
        novel = drawn.bank.g[torch.cat([drawn.shots[0].rows, drawn.tests.rows[24:]])]
        assert drawn.shots[0].labels.tolist() == [4] * 5 + [5] * 5
        assert drawn.tests.labels[24:].tolist() == [4] * 6 + [5] * 6
        rows = [int((every - image).abs().sum((1, 2)).argmin()) for image in novel]
        assert torch.allclose(every[rows], novel, atol=1e-6)
        assert len(set(rows)) == len(rows) == 2 * 5 + 2 * 6  # no image is shot and test image
        assert set(stream.base.train.labels[rows]) == set(pseudo_novel)
        kept.add(tuple(rows))
        first_to_come.add(int(stream.base.train.labels[rows[0]]))
    assert len(kept) == 3
    assert first_to_come == set(pseudo_novel)  # which class comes when is drawn anew each time


@pytest.mark.parametrize(
    ("settings", "gate"),
    [
        (["gamma=0.3"], Gate("plain", 0.0, gamma=0.3)),
        (["gamma=0.3", "resistance=false"], Gate("plain", 0.0)),
        (["decision=post"], None),
        (["calibration=true"], None),
        (["gate=constant", "gate_strength=0.1"], None),
        (["whitening=true"], None),
    ],
)
def test_a_run_that_decides_otherwise_than_by_resistance_is_on_no_curve(settings, gate):
    assert _gate_of_run(load_recipe("doodles/sss", [f"method.{each}" for each in settings])) == gate
