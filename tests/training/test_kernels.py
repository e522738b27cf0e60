"""cuDNN times its kernels while a base session is trained, and only then."""

import pytest
import torch
from lightning_fabric import Fabric

from fairshot.recipes import load_recipe
from fairshot.speed.train import base_objective, random_pictures
from fairshot.training.loop import Trainer

SMALL = load_recipe("doodles/sss", ["training.epochs=1", "training.batch=10", "method.sr_width=8"])


@pytest.fixture
def trainer():
    fabric = Fabric(accelerator="cpu", devices=1)
    return Trainer(fabric, SMALL.training, SMALL.views, SMALL.model.size, seed=0)


@pytest.mark.parametrize("before", [False, True])
def test_kernels_are_timed_in_training_alone(trainer, before, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    seen = []
    trainer.after_epoch = lambda _: seen.append(torch.backends.cudnn.benchmark)
    trainer.train(base_objective(SMALL, 4, 1), random_pictures(SMALL, 4, 20))
    assert seen == [True]
    assert torch.backends.cudnn.benchmark is before
