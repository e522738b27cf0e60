"""DualClassifier: one object decides, and what it decides does not depend on how it got there."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.decision_settings import MixtureSettings, PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.gate import TransferableClassifier
from fairshot.classifiers.left_out import left_out_distances, left_out_scores
from fairshot.classifiers.whitening import Whitening, WithinClassCovariance
from fairshot.errors import BadSetting

BASE, NOVEL, VIEWS = 6, 4, 2
WIDTH = 12
GATES = {
    "plain": {},
    "constant": {"gate": "constant", "gate_strength": 0.05},
    "whitened unbiased": {"gate": "unbiased", "gate_strength": 1.0, "whitening": True, "shrinkage": 2.0},
    "whitened left out": {"gate": "left_out", "gate_strength": 0.6, "whitening": True},
    "class covariance": {
        **{"gate": "constant", "gate_strength": 0.1, "whitening": True},
        "class_covariance_share": 0.3,
    },
}
KINDS = [
    *(PrototypeSettings(gamma=0.4, **gate) for gate in GATES.values()),
    *(PrototypeSettings(decision=rule) for rule in ("transferable_only", "specific_only", "pre", "post")),
    PrototypeSettings(decision="anomaly_detection", resistance=False),
    MixtureSettings(components_base=2, gamma=0.5),
    MixtureSettings(components_base=2, **GATES["whitened unbiased"]),
]
every_kind = pytest.mark.parametrize(
    "chosen", KINDS, ids=lambda one: f"{one.decision} {one.gate} {type(one).__name__[:3]}"
)


def draw(classes, each, seed=0):
    """Float32 features around a mean per class, positive as those behind a ReLU."""
    rng = np.random.default_rng([seed, 1])
    labels = np.repeat(np.arange(classes.start, classes.stop), each)
    features = {}
    for name, width in (("g", 12), ("g_tilde", 20)):
        means = np.random.default_rng(width).gamma(1.0, size=(BASE + NOVEL, VIEWS, width))
        noise = rng.gamma(1.0, size=(len(labels), VIEWS, width))
        features[name] = torch.from_numpy((means[labels] + 0.7 * noise).astype(np.float32))
    return features, torch.from_numpy(labels)


def take(features, rows):
    return {name: value[rows] for name, value in features.items()}


def learnt(chosen):
    classifier = DualClassifier.fit(chosen, *draw(range(BASE), 15), BASE)
    shots, labels = draw(range(BASE, BASE + NOVEL), 5, seed=1)
    return classifier.extend(shots, labels), shots, labels


TESTS = draw(range(BASE + NOVEL), 20, seed=2)[0]


@every_kind
def test_what_was_learnt_is_kept_in_tensors(chosen):
    classifier, _, _ = learnt(chosen)
    tensors = {name: value.clone() for name, value in classifier.tensors().items()}
    again = DualClassifier.from_tensors(chosen, BASE, tensors, VIEWS)
    assert torch.equal(again.decide(TESTS).scores, classifier.decide(TESTS).scores)
    more = draw(range(BASE + NOVEL - 1, BASE + NOVEL), 3, seed=4)
    assert torch.equal(
        again.extend(*more).decide(TESTS).scores, classifier.extend(*more).decide(TESTS).scores
    )


@pytest.mark.parametrize("gate", GATES.values(), ids=list(GATES))
@settings(max_examples=12, deadline=None)
@given(order=st.permutations(range(5)))
def test_a_class_is_the_same_to_the_bit_whether_learnt_alone_or_with_others(gate, order):
    """A store is taught class by class, its images in another order; a run learns a session at once."""
    chosen = PrototypeSettings(gamma=0.4, **gate)
    together, shots, labels = learnt(chosen)
    one_by_one = DualClassifier.fit(chosen, *draw(range(BASE), 15), BASE)
    for label in range(BASE, BASE + NOVEL):
        rows = torch.nonzero(labels == label)[:, 0][list(order)]
        one_by_one = one_by_one.extend(take(shots, rows), labels[rows])
    for name, value in together.tensors().items():
        pair = value, one_by_one.tensors()[name]
        if name == "gate.margins":  # the shots came in another order
            pair = pair[0].sort().values, pair[1].sort().values
        assert torch.equal(*pair), name
    assert torch.equal(one_by_one.decide(TESTS).scores, together.decide(TESTS).scores)


@every_kind
def test_extending_and_adapting_leave_the_former_object_as_it_was(chosen):
    classifier, _, _ = learnt(chosen)
    before = {name: value.clone() for name, value in classifier.tensors().items()}
    scores = classifier.decide(TESTS).scores.clone()
    classifier.extend(*draw(range(3), 2, seed=5))
    classifier.adapt(TESTS)
    classifier.decide(TESTS, novel_only=True)
    assert all(torch.equal(classifier.tensors()[name], value) for name, value in before.items())
    assert torch.equal(classifier.decide(TESTS).scores, scores)


@every_kind
def test_with_novel_only_no_base_class_is_answered(chosen):
    classifier, _, _ = learnt(chosen)
    assert classifier.decide(TESTS, novel_only=True).scores.argmax(1).min() >= BASE


def test_the_gate_decides_by_biased_scores_of_the_whitened_space():
    """Algorithm 1 written out for the whitened gate with a constant."""
    chosen = PrototypeSettings(resistance=False, gate="constant", gate_strength=0.1, whitening=True)
    classifier, shots, labels = learnt(chosen)
    base, base_labels = draw(range(BASE), 15)
    space = WithinClassCovariance.fit(base["g"], base_labels, BASE, chosen.power).whitening(chosen.shrinkage)
    everything = {name: torch.cat([base[name], shots[name]]) for name in base}
    every_label = torch.cat([base_labels, labels])
    scores, decided = classifier.decide(TESTS)
    for i, c in itertools.product(range(0, len(scores), 7), range(BASE + NOVEL)):
        cosines = {}
        for name, change in (("g", space.transform), ("g_tilde", lambda x: x)):
            mine = change(everything[name][every_label == c]).double().mean(0)
            image = change(TESTS[name][i : i + 1])[0].double()
            cosines[name] = torch.cosine_similarity(mine, image, dim=-1).mean().item()
        if c >= BASE:
            cosines["g"] += 0.1
        expected = cosines["g_tilde"] if decided[i] else cosines["g"]
        assert scores[i, c].item() == pytest.approx(expected, abs=1e-5)
    answers_base = classifier.transferable_scores(TESTS).argmax(1) < BASE
    assert torch.equal(decided, answers_base)
    assert 0 < decided.sum() < len(decided)


def test_calibration_by_answers_moves_classes_towards_what_they_answered():
    """Eq. 9 written out: each class absorbs its answers, the most similar in the whitened space first."""
    chosen = PrototypeSettings(
        **{"gate": "constant", "gate_strength": 0.1, "whitening": True},
        **{"recognised_by": "answers", "threshold": 0.2, "at_most": 5},
    )
    classifier, _, _ = learnt(chosen)
    gate, adapted = classifier.gate, classifier.adapt(TESTS)
    answers, g = classifier.decide(TESTS).scores.argmax(1), TESTS["g"]
    certainty = gate.scores(g).gather(1, answers[:, None])[:, 0]
    assert not torch.equal(answers, gate.scores(g).argmax(1))  # the decision is not that of the scores of g
    for c in range(BASE + NOVEL):
        rows = [i for i in certainty.argsort(descending=True).tolist() if answers[i] == c]
        rows = [i for i in rows if certainty[i] > chosen.threshold][: chosen.at_most]
        alpha = (chosen.alpha_base if c < BASE else chosen.alpha_novel) if rows else 0
        for before, after, values in (
            (classifier.h.means, adapted.h.means, g),
            (gate.prototypes, adapted.gate.prototypes, gate.values(g)),
        ):
            mean = values[rows].mean(0) if rows else 0
            torch.testing.assert_close(after[c], (1 - alpha) * before[c] + alpha * mean, rtol=1e-4, atol=1e-5)


def test_bounded_calibration_recognises_by_similarity():
    with pytest.raises(ValueError, match="bounded recognises by similarity"):
        PrototypeSettings(bounded=True, recognised_by="answers")


def test_a_gate_goes_with_bounded_calibration_in_its_own_space():
    chosen = PrototypeSettings(
        bounded=True, threshold=0.5, at_most=8, drift=0.5, **GATES["whitened unbiased"]
    )
    classifier, _, _ = learnt(chosen)
    adapted = classifier.adapt(TESTS)
    assert adapted.memory is not None
    memory, gate = adapted.memory, adapted.gate
    assert isinstance(gate, TransferableClassifier)
    projected = replace(memory, labelled=gate.prototypes, kept=gate.values(memory.kept))
    expected = bounded_calibration.prototypes(projected, chosen.bounds)
    images = gate.values(TESTS["g"])
    plain = torch.cosine_similarity(images[:, None], expected[None], dim=-1).mean(-1)
    biased = gate.novel_bias("unbiased", torch.tensor(1.0)).added_to(plain[:, BASE:])
    torch.testing.assert_close(
        adapted.transferable_scores(TESTS),
        torch.cat([plain[:, :BASE], biased], dim=1),
        rtol=1e-4,
        atol=1e-5,
    )
    assert not torch.equal(adapted.decide(TESTS).scores, classifier.decide(TESTS).scores)
    assert torch.equal(adapted.rollback().decide(TESTS).scores, classifier.decide(TESTS).scores)
    with pytest.raises(BadSetting, match="the journal has 1"):
        adapted.rollback(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gate": "left_out", "gate_strength": 1.5},
        {"gate": "constant", "decision": "post"},
        {"whitening": True, "decision": "pre"},
        {"gate": "plain", "gate_strength": 0.1},
        {"class_covariance_share": 0.2},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong):
    with pytest.raises(ValueError, match=r"gate|whitening"):
        PrototypeSettings(**wrong)


def test_new_classes_follow_the_known_ones():
    classifier, shots, labels = learnt(PrototypeSettings())
    with pytest.raises(ValueError, match="without a gap"):
        classifier.extend(shots, labels + NOVEL + 1)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_score_is_the_same_to_the_bit_wherever_its_class_stands(gate):
    classifier, *_ = learnt(PrototypeSettings(gamma=0.4, **gate))
    order = [*range(BASE), *reversed(range(BASE, BASE + NOVEL))]
    tensors = classifier.tensors()
    for name, value in tensors.items():
        if name != "gate.margins" and len(value) == BASE + NOVEL:
            tensors[name] = value[order]
        elif name == "gate.noise":
            tensors[name] = value.flip(0)
    other = DualClassifier.from_tensors(classifier.settings, BASE, tensors, VIEWS)
    for rows in (1, 7, len(TESTS["g"])):
        tests = take(TESTS, slice(rows))
        assert torch.equal(other.decide(tests).scores, classifier.decide(tests).scores[:, order])


@pytest.mark.parametrize(
    "chosen",
    [
        PrototypeSettings(resistance=False, **GATES["plain"]),
        PrototypeSettings(resistance=False, **GATES["constant"]),
        PrototypeSettings(resistance=False, gate="constant", gate_strength=0.1, whitening=True),
        *(PrototypeSettings(resistance=False, decision=rule) for rule in ("specific_only", "pre", "post")),
        PrototypeSettings(resistance=False, decision="transferable_only"),
    ],
    ids=lambda one: f"{one.decision} {one.gate} {one.whitening}",
)
def test_a_left_out_shot_is_scored_as_by_its_class_without_it(chosen):
    classifier, shots, labels = learnt(chosen)
    found = left_out_scores(classifier, shots, labels)
    base = DualClassifier.fit(chosen, *draw(range(BASE), 15), BASE)
    for left in (0, 7, 19):
        others = torch.arange(len(labels)) != left
        less = base.extend(take(shots, others), labels[others])
        expected = less.scores(take(shots, slice(left, left + 1)))
        own = int(labels[left])
        for got, want in zip(found, expected, strict=True):
            if want is not None:
                torch.testing.assert_close(got[left, own], want[0, own], atol=1e-6, rtol=0)
    assert torch.equal(found.transferable[:, :BASE], classifier.scores(shots).transferable[:, :BASE])


@pytest.mark.parametrize("whitening", [20, 12], ids=["all shots whiten", "some shots whiten"])
def test_the_covariance_of_shots_whitens_too(whitening):
    """Each score, and each left-out one, against the metric written out."""
    torch.manual_seed(0)
    space = Whitening(0.5, 0.3 * torch.rand(1, WIDTH), torch.eye(WIDTH)[None] + 0.1)
    chosen = PrototypeSettings(decision="transferable_only", whitening=True, power=0.5)
    g, labels, weight = torch.rand(20, 1, WIDTH), torch.arange(20) % 4, 0.5
    shots = {"g": g, "g_tilde": g}
    base = DualClassifier.fit(chosen, take(shots, slice(0)), labels[:0], 0, space)
    classifier = base.extend(shots, labels).with_shot_covariance(
        take(shots, slice(whitening)), labels[:whitening], weight
    )
    values = space.transform(g.double())[:, 0]

    def scattered(rows):
        rows = rows & (torch.arange(20) < whitening)
        means = torch.stack([values[rows & (labels == c)].mean(0) for c in range(4)])
        return values[rows] - means[labels[rows]]

    def expected(x, rows, factor):
        P = torch.stack([values[rows & (labels == c)].mean(0) for c in range(4)])
        residuals = scattered(rows)
        metric = torch.linalg.inv(torch.eye(WIDTH).double() + factor * residuals.T @ residuals)
        distance = ((x - P) @ metric * (x - P)).sum(1)
        return P @ metric @ x / ((x @ metric @ x) * (P @ metric * P).sum(1)).sqrt(), distance

    every = torch.ones(20, dtype=torch.bool)
    factor = weight * WIDTH / float(scattered(every).square().sum())
    scores, left_out = classifier.decide(shots).scores, left_out_scores(classifier, shots, labels)
    distances = left_out_distances(classifier, shots, labels)
    for row in (0, 7, 19):
        close = {"atol": 1e-5, "rtol": 0, "check_dtype": False}
        torch.testing.assert_close(scores[row], expected(values[row], every, factor)[0], **close)
        similar, distance = expected(values[row], every & (torch.arange(20) != row), factor)
        torch.testing.assert_close(left_out.transferable[row], similar, **close)
        torch.testing.assert_close(distances[row], distance, **close)
