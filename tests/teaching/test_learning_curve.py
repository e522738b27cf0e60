"""The accuracy of a class at 1, 2, ... photos, against plain loops over the same definition."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.gate import TransferableClassifier
from fairshot.classifiers.left_out import gated_few_shot_scores
from fairshot.classifiers.whitening import Whitening
from fairshot.teaching import Store, learning_curve
from fairshot.teaching.database import DATABASE
from fairshot.teaching.learning_curve import ClassCurve
from support.stores import drawings, make_store

TAUGHT = {"okapi": 5, "yak": 4, "emu": 3, "gnu": 1, "auk": 7}
SHOTS_PER_CLASS = 6
SETTINGS = {
    "as the paper": {},
    "nearest means": {"decision": "transferable_only"},
    "pre": {"decision": "pre"},
    "whitened, left-out gate": {"whitening": True, "gate": "left_out", "gate_strength": 0.6},
    "class covariance": {
        **{"whitening": True, "class_covariance_share": 0.3},
        **{"gate": "constant", "gate_strength": 0.1},
    },
}


def confusable(word: str, count: int) -> list:
    """Draw photos of which every second one looks like those of another class."""
    return [drawings(word if index % 2 else "common", index + 1)[-1] // (index + 1) for index in range(count)]


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    opened = make_store(tmp_path / "store", **request.param)
    for position, (name, count) in enumerate(TAUGHT.items()):
        opened.teach(name, [photo + position for photo in confusable(name, count)])
    return opened


def ordered_photos(store: Store, name: str) -> list[dict[str, torch.Tensor]]:
    """Read the features of the photos of a class, in the order of their fingerprints."""
    with closing(sqlite3.connect(store.folder / DATABASE)) as connection:
        rows = connection.execute(
            "SELECT g, g_tilde FROM images JOIN classes ON classes.id = class WHERE name = ? ORDER BY sha256",
            (name,),
        ).fetchall()
    return [store.layout.features([row]) for row in rows]


def answer(classifier: DualClassifier, column: int, photo: dict, shots: list[dict]) -> int:
    """Answer for one photo with one class made of shots: it is added as a new class, whose scores count."""
    features = {kind: torch.cat([shot[kind] for shot in shots]) for kind in photo}
    added = classifier.extend(features, torch.full((len(shots),), classifier.classes))
    now, with_added = classifier.scores(photo), list(added.scores(photo))
    if classifier.gate is not None:  # the bias stays what it is without the added class
        bare = added.gate.scores(photo["g"])[:, -1] + classifier._bias.constant
        with_added[0] = torch.cat([with_added[0][:, :-1], bare[:, None]], 1)
    replaced = []
    for before, after in zip(now, with_added, strict=True):
        scores = None if before is None else before.clone()
        if scores is not None:
            scores[0, column] = after[0, -1]
        replaced.append(scores)
    return int(classifier.combine(*replaced).scores.argmax())


def test_curves_are_those_of_plain_loops(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairshot.teaching.learning_curve.SHOTS_PER_CLASS", SHOTS_PER_CLASS)
    classifier, names = store.snapshot().classifier, store.snapshot().names
    expected = {}
    for name, count in TAUGHT.items():
        photos = ordered_photos(store, name)[:SHOTS_PER_CLASS]
        column, accuracy, wrong = names.index(name), [], Counter()
        for shots in range(1, len(photos)):
            found = []
            for position, photo in enumerate(photos):
                following = [photos[(position + step) % len(photos)] for step in range(1, shots + 1)]
                found.append(answer(classifier, column, photo, following))
            accuracy.append(found.count(column) / len(photos))
            wrong = Counter(names[each] for each in found if each != column)
        expected[name] = ClassCurve(name, count, tuple(accuracy), tuple(wrong.most_common()))
    for at_once in (learning_curve.AT_ONCE, 1):  # all together, and class by class
        monkeypatch.setattr(learning_curve, "AT_ONCE", at_once)
        found = store.learning_curves()
        assert {curve.name: curve.accuracy for curve in found} == {
            name: pytest.approx(curve.accuracy) for name, curve in expected.items()
        }
        assert {curve.name: (curve.photos, dict(curve.mistaken)) for curve in found} == {
            name: (curve.photos, dict(curve.mistaken)) for name, curve in expected.items()
        }
    assert found[0].name == "gnu"
    assert [curve.accuracy[-1] for curve in found[1:]] == sorted(curve.accuracy[-1] for curve in found[1:])
    assert any(
        0 < share < 1 for curve in found for share in curve.accuracy
    )  # the loops had something to tell


@pytest.mark.parametrize("whitening", [5, 3], ids=["all shots whiten", "some shots whiten"])
def test_a_space_that_photos_whiten_is_that_without_the_class(whitening: int) -> None:
    draw = torch.Generator().manual_seed(0)
    g = torch.randn(20, 2, 6, generator=draw)
    labels = torch.arange(4).repeat_interleave(5)
    g += 2 * torch.randn(4, 2, 6, generator=draw)[labels]
    space = Whitening(1.0, torch.zeros(2, 6), torch.randn(2, 6, 6, generator=draw))
    empty = TransferableClassifier.of_base(torch.zeros(0, 2, 6), torch.zeros(0, dtype=torch.int64), space)
    before = empty.extended(empty.project(g.double()), labels, range(4))
    chosen = torch.arange(20) % 5 < whitening
    gate = before.with_shot_covariance(g[chosen], labels[chosen], 0.5)
    assert gate.scatter is not None
    others = torch.tensor([[5 * (i // 5) + (i + step) % 5 for step in (1, 2)] for i in range(20)])
    (found,) = gated_few_shot_scores(gate, gate.project(g.double()), labels, [others])
    values = before.project(g.double()).values
    for shot in range(20):
        for column in range(4):
            cosines = []
            for view in range(2):
                scatter = torch.eye(6, dtype=torch.float64)
                for each in range(4):
                    some = values[chosen & (labels == each), view]
                    residuals = some - some.mean(0)
                    if each != labels[shot]:
                        scatter += gate.scatter.factors[view] * residuals.T @ residuals
                metric, x = torch.linalg.inv(scatter), values[shot, view]
                members = others[shot] if column == labels[shot] else labels == column
                p = values[members, view].mean(0)
                cosines.append(x @ metric @ p / (x @ metric @ x * (p @ metric @ p)).sqrt())
            assert float(found[shot, column]) == pytest.approx(float(sum(cosines) / 2), abs=1e-5)


def test_a_store_without_taught_classes_has_no_curves(tmp_path: Path) -> None:
    assert make_store(tmp_path / "store").learning_curves() == []


@pytest.mark.parametrize(
    ("photos", "accuracy", "verdict", "words"),
    [
        (1, (), "more", "One photo cannot be judged; give about 4 more."),
        (3, (1.0, 1.0), "more", "100% right when taught from 2 photos; 3 are few, give more."),
        (5, (0.6, 0.8, 1.0, 1.0), "enough", "Enough: 100% right when taught from 4 photos."),
        (5, (0.2, 0.4, 0.4, 0.6), "more", "60% right when taught from 4 photos, else mostly yak, and rising"),
        (5, (0.4, 0.4, 0.4, 0.4), "others", "not rising; give clearer or more varied photos"),
    ],
)
def test_advice(photos: int, accuracy: tuple[float, ...], verdict: str, words: str) -> None:
    wrong = (("yak", 2),) if accuracy and accuracy[-1] < 1 else ()
    curve = ClassCurve("emu", photos, accuracy, wrong)
    assert curve.verdict == verdict
    assert words in curve.advice()
