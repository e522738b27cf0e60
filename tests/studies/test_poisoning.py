"""Bounded Calibration from the method's side: journal, rollback, kept state; and what attacks cost."""

import json

import numpy as np
import pytest
import torch

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.bounded_calibration import Bounds
from fairshot.errors import BadSetting
from fairshot.studies.poisoning import measure_poisoning
from support.commands import TINY, fairshot
from support.toys import after_base, toy_method, toy_stream

BOUNDED = {"bounded": True, "threshold": 0.5, "at_most": 8, "alpha_base": 0.4}


def taught(**options):
    method = after_base("sss", **BOUNDED | options)
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    return method


def test_sss_calibrates_within_bounds():
    method, stream = taught(), toy_stream()
    labelled = method.classifier.prototypes.clone()
    features = method.embed(stream.seen_test(2).pictures)
    alpha = torch.where(torch.arange(10) < 6, 0.4, 0.6)
    bounds = Bounds(threshold=0.5, at_most=8, drift=0.2)
    state = bounded_calibration.absorb(
        bounded_calibration.begin(labelled, alpha), features["g"], torch.arange(200), bounds
    )
    method.adapt(features)
    torch.testing.assert_close(method.classifier.prototypes, bounded_calibration.prototypes(state, bounds))
    assert not torch.equal(method.classifier.prototypes, labelled)
    assert method.classifier.journal[0].added.tolist() == state.journal[0].added.tolist()


def test_batches_are_journalled_numbered_through_and_rolled_back():
    method, stream = taught(), toy_stream()
    labelled = method.classifier.prototypes.clone()
    features = method.embed(stream.seen_test(2).pictures)
    states = []
    for start in range(0, 200, 50):
        method.adapt({name: value[start : start + 50] for name, value in features.items()})
        states.append(method.classifier.prototypes.clone())
    assert [entry.arrived.tolist() for entry in method.classifier.journal] == [
        list(range(start, start + 50)) for start in range(0, 200, 50)
    ]
    for batches in (1, 2):  # one, then two more
        method.classifier = method.classifier.rollback(batches)
    torch.testing.assert_close(method.classifier.prototypes, states[0])
    with pytest.raises(BadSetting, match="batches: 5 was given; the journal has 1"):
        method.classifier.rollback(5)
    torch.testing.assert_close(method.classifier.rollback().prototypes, labelled)


def test_learning_goes_on_from_labelled_prototypes_and_keeps_what_was_absorbed():
    """The same, whenever in between the unlabelled images came."""
    stream, base = toy_stream(), toy_stream().base.test
    features = after_base("sss").embed(base.pictures)
    more = base.take(np.flatnonzero(base.labels == 1)[:5])
    early, late = after_base("sss", **BOUNDED), after_base("sss", **BOUNDED)
    early.adapt(features)
    for method in (early, late):
        method.learn(stream.sessions[1].train)
        method.learn(more)  # labelled samples of an old class
    late.adapt(features)
    torch.testing.assert_close(early.classifier.memory.labelled, late.classifier.memory.labelled)
    kept = set(early.classifier.memory.ids.tolist())
    assert kept <= set(range(len(base)))
    copy = toy_method("sss", **BOUNDED)
    copy.restore({name: value.clone() for name, value in early.tensors().items()})
    assert torch.equal(copy.scores(features), early.scores(features))
    torch.testing.assert_close(copy.classifier.rollback().prototypes, late.classifier.memory.labelled)


def test_the_cost_of_an_attack_is_the_accuracy_it_takes():
    """With the whole way to go and nothing to hold it back, an attack does harm; bounds spare most of it."""
    open_to_all = {"threshold": -1.0, "alpha_base": 1.0, "alpha_novel": 1.0}
    found = measure_poisoning(after_base("sss", **open_to_all), toy_stream(), counts=(5, 40))
    assert len(found.damages) == 2 * 3 * 2
    worst = {
        bounded: max(one.cost for one in found.damages if one.bounded == bounded) for bounded in (True, False)
    }
    assert worst[False] > worst[True] + 5
    assert set(found.natural) == {"bounded", "as in eq. 9"}
    assert {one.target for one in found.damages} <= {8, 9}


def test_the_command_writes_what_attacks_cost(tmp_path):
    done = fairshot(tmp_path, "run", "doodles/sss", "--out", "run", *TINY)
    assert done.process.exitcode == 0, done.stderr
    done = fairshot(tmp_path, "poison", "run", "--device", "cpu")
    assert done.process.exitcode == 0, done.stderr
    found = json.loads((tmp_path / "run" / "poisoning.json").read_text())
    assert [(one["kind"], one["images"]) for one in found["damages"][:4]] == [
        ("wrong class", 10),
        ("wrong class", 50),
        ("wrong class", 200),
        ("noise", 10),
    ]
    assert "| a copied image | 200 |" in (tmp_path / "run" / "poisoning.md").read_text()
    calibrated = ["--set", "method.calibration=true", "--set", "method.bounded=true", "--out", "calibrated"]
    done = fairshot(tmp_path, "run", "doodles/sss", "--base", "run", *TINY, *calibrated)
    assert done.process.exitcode == 0, done.stderr
