"""The session loop beside itself written as loops: who is asked when, and what is counted."""

import numpy as np
import pytest
import torch

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.stream import StreamSettings
from fairshot.classifiers.whitening import ClassMetrics
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods import method_named
from fairshot.models.embedder import ModelSettings

STREAM = load_stream("doodles", StreamSettings(base_classes=4, way=2, shots=3, sessions=2))


def untrained(name: str, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        system, model = method_named(name), ModelSettings(backbone="tiny", size=10)
        method = system(system.Settings(**options), model, channels=1, base_classes=4)
    base = STREAM.base.train
    method.init_classifiers(method.embed(base.pictures), torch.from_numpy(base.labels))
    return method


def test_confusions_and_novel_only_accuracy_count_every_image_seen():
    method = untrained("ncm")
    outcome = run_sessions(method, STREAM)
    means = method.prototypes[:, 0].double().numpy()
    for t, confusion in enumerate(outcome.confusions):
        seen, expected, right, novel = 4 + 2 * t, np.zeros((4 + 2 * t, 4 + 2 * t), int), 0, 0
        for one in STREAM.sessions[: t + 1]:
            features = method.embed(one.test.pictures)["g"][:, 0].double().numpy()
            for x, label in zip(features, one.test.labels.tolist(), strict=True):
                cosines = [x @ p / np.linalg.norm(x) / np.linalg.norm(p) for p in means[:seen]]
                expected[label, int(np.argmax(cosines))] += 1
                if label >= 4:
                    novel += 1
                    right += 4 + int(np.argmax(cosines[4:])) == label
        assert confusion.tolist() == expected.tolist()
        assert (
            outcome.novel_only[t] is None
            if t == 0
            else abs(outcome.novel_only[t] - 100 * right / novel) < 1e-4
        )


def test_unlabelled_test_images_are_shown_after_learning_and_only_if_asked_for(monkeypatch):
    for calibration, expected in ((True, [(6, 6 * 25), (8, 8 * 25)]), (False, [])):
        method, shown = untrained("sss", sr_width=8, calibration=calibration), []
        monkeypatch.setattr(
            method,
            "adapt",
            lambda features, m=method, s=shown: s.append((m.seen_classes, len(features["g"]))),
        )
        run_sessions(method, STREAM)
        assert shown == expected


@pytest.mark.parametrize(
    ("timing", "expected"), [("before", ["adapt", "predict"]), ("after", ["predict", "adapt"])]
)
def test_calibration_comes_before_or_after_the_images_are_classified(monkeypatch, timing, expected):
    method, calls = untrained("sss", sr_width=8, calibration=True, calibration_timing=timing), []
    predict = method.predict
    monkeypatch.setattr(method, "adapt", lambda _: calls.append("adapt"))
    monkeypatch.setattr(method, "predict", lambda features: calls.append("predict") or predict(features))
    run_sessions(method, STREAM)
    assert calls == ["predict", *expected, *expected]


@pytest.mark.parametrize("calibration", [False, True])
def test_what_holds_for_all_sessions_is_computed_once_per_test_image(monkeypatch, calibration):
    chosen = {"gate": "constant", "gate_strength": 0.1, "whitening": True, "class_covariance_share": 0.3}
    chosen |= {"sr_width": 8, "calibration": calibration, "recognised_by": "answers", "threshold": 0.1}
    anew, once, measured = untrained("sss", **chosen), untrained("sss", **chosen), []
    monkeypatch.setattr(anew, "precomputed", lambda _: {})
    expected, squares = run_sessions(anew, STREAM), ClassMetrics.squares
    monkeypatch.setattr(
        ClassMetrics, "squares", lambda own, values: measured.append(len(values)) or squares(own, values)
    )
    got = run_sessions(once, STREAM)
    shots = [len(one.train.labels) for one in STREAM.sessions[1:]]
    assert sum(measured) == len(got.labels) + sum(shots)
    for one, other in zip(got.confusions, expected.confusions, strict=True):
        assert one.tolist() == other.tolist()
    assert got.novel_only == expected.novel_only
    assert set(got.features) == {"g", "g_tilde"}  # the files of a run are as they were
