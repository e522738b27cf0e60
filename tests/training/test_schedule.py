"""The learning rate rises to the highest one, never beyond, and falls to zero."""

from types import SimpleNamespace

import pytest

from fairshot.training.loop import Phase, TrainingSettings


@pytest.mark.parametrize(
    ("total", "warmup_epochs", "steps_per_epoch"),
    [(20, 2, 5), (20, 0.1, 5), (10, 0.5, 5), (5, 2, 5), (7, 0, 7)],
)
def test_the_highest_learning_rate_is_the_one_asked_for(total, warmup_epochs, steps_per_epoch):
    state, batches = SimpleNamespace(step=0), SimpleNamespace(steps_per_epoch=steps_per_epoch)
    settings = TrainingSettings(warmup_epochs=warmup_epochs, learning_rate=0.1)
    phase = Phase("base", settings, batches, total, state, None)
    rates = []
    for state.step in range(total):
        rates.append(phase.learning_rate())
    assert max(rates) <= 0.1
    assert max(rates) == pytest.approx(0.1, rel=0.02)
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
