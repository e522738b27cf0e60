"""A training that became NaN: it stops within an epoch, says where, and keeps the last good checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from fairshot.cli.advice import advice
from fairshot.errors import NotFinite, TrainingDiverged
from fairshot.estimators import SSS
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods.ncm import NCM
from fairshot.training.checkpoints import Checkpoints
from support.commands import TINY, fairshot
from support.toys import after_base, fit_toy, toy_stream

STEPS = 8  # of an epoch of the toy


def break_at(monkeypatch, step: int, weights: bool = False) -> None:
    """Make the loss, or the weights after it, infinite at a step; checkpoints are due after every step."""
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    build = NCM.objective

    def objective(self):
        made = build(self)
        forward, done = made.forward, [0]

        def broken(views, labels, noise):
            done[0] += 1
            loss = forward(views, labels, noise)
            return loss * torch.inf if done[0] == step and not weights else loss

        def after_step():
            if done[0] == step and weights:
                with torch.no_grad():
                    next(made.parameters()).view(-1)[0] = torch.nan

        made.forward, made.after_step = broken, after_step
        return made

    monkeypatch.setattr(NCM, "objective", objective)


@pytest.mark.parametrize("step", [1, 2, STEPS, STEPS + 3, 4 * STEPS])
@pytest.mark.parametrize("weights", [False, True])
def test_it_stops_at_the_step_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, step, weights):
    break_at(monkeypatch, step, weights)
    with pytest.raises(TrainingDiverged) as stopped:
        fit_toy("ncm", folder=tmp_path)
    assert (stopped.value.step, stopped.value.total) == (step, 4 * STEPS)
    last = Checkpoints(tmp_path / "base").read_last()
    assert (last.step if last else 0) == step - 1
    if last:
        assert all(value.isfinite().all() for value in last.tensors.values())


def test_without_checkpoints_it_is_noticed_within_the_epoch(monkeypatch):
    steps = []
    break_at(monkeypatch, STEPS + 3)
    take = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD, "step", lambda self, *given: (steps.append(1), take(self, *given))[1]
    )
    with pytest.raises(TrainingDiverged) as stopped:
        fit_toy("ncm")
    assert stopped.value.step == STEPS + 3
    assert len(steps) == 2 * STEPS


def test_the_message_says_what_to_change():
    base, later = TrainingDiverged(7, 30, 0.5), TrainingDiverged(7, 30, 0.5, "episodes")
    assert "step 7 of 30" in str(base)
    assert "0.5" in str(base)
    assert "--set training.learning_rate=0.05 --fresh" in advice(base)
    assert "of episodes" in str(later)
    assert advice(later) == ""


def test_a_run_ends_with_an_error_and_no_result(tmp_path):
    hot = [*TINY, "--set", "training.learning_rate=1e30", "--set", "training.warmup_epochs=0"]
    refused = fairshot(tmp_path, "run", "doodles/sss", "--out", "run", *hot)
    assert refused.process.exitcode == 2
    assert "Traceback" not in refused.stderr
    assert "at step " in refused.stderr
    assert "--set training.learning_rate=1e+29 --fresh" in refused.stderr
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_the_estimator_raises_and_stays_unfitted():
    images = np.random.default_rng(0).integers(0, 256, (16, 12, 12), dtype=np.uint8)
    estimator = SSS(epochs=2, batch=8, learning_rate=1e30, method={"sr_width": 16}, device="cpu")
    with pytest.raises(TrainingDiverged):
        estimator.fit(images, [0, 1] * 8)
    with pytest.raises(NotFittedError):
        estimator.predict(images)


def test_a_network_or_a_classifier_of_nan_is_not_evaluated():
    method = after_base("ncm")
    with torch.no_grad():
        next(method.embedder.parameters()).view(-1)[0] = torch.nan
    with pytest.raises(NotFinite) as refused:
        run_sessions(method, toy_stream())
    assert refused.value.session == 0
    method = after_base("ncm")
    scores = method.scores
    method.scores = lambda features, novel_only=False: scores(features, novel_only) * torch.nan
    with pytest.raises(NotFinite) as refused:
        run_sessions(method, toy_stream())
    assert refused.value.session == 1
