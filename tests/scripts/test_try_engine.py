"""The script that times changes of the engine: they compute the same, and each is timed in rounds."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from fairshot.recipes import load_recipe
from fairshot.speed.train import base_objective

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/try_engine.py"
SMALL = load_recipe("cifar100/sss", ["model.size=8", "method.sr_width=8"])


@pytest.fixture(scope="module")
def engine():
    spec = importlib.util.spec_from_file_location("try_engine", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("variant", ["padded-stem", "groups-128-two-stages"])
def test_a_changed_network_gives_the_same_features(engine, variant):
    trial = engine.Trial(SMALL, base_objective(SMALL, 4, 3), "32-true")
    trial.backbone.eval()
    images = torch.rand(130, 3, 8, 8)
    before = trial.backbone(images)
    changed = engine.VARIANTS[variant](trial).backbone
    assert isinstance(changed.conv1, engine.PaddedConvolution | engine.Grouped)
    torch.testing.assert_close(changed(images), before)


def test_batch_norms_by_sums_train_as_the_usual_ones(engine):
    usual, by_sums = torch.nn.BatchNorm2d(3), engine.SumBatchNorm(3)
    images = torch.randn(6, 3, 4, 4, requires_grad=True)
    found = []
    for norm in (usual, by_sums):
        output = norm(images)
        (gradient,) = torch.autograd.grad(output.square().mul(output).sum(), images)
        found.append((output, gradient, norm.running_mean, norm.running_var))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_batch_norms_of_groups_have_their_own_statistics(engine):
    trial = engine.groups(2, 1, engine.Trial(SMALL, base_objective(SMALL, 4, 3), "32-true"))
    first = torch.nn.Sequential(*trial.backbone.conv1.layers).train()
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(
        trial.backbone.conv1(images), torch.cat([first(images[:2]), first(images[2:])])
    )


def test_variants_are_timed_in_rounds(engine, monkeypatch, capsys):
    """Each process that trains is a real one."""
    small = ["--set", "model.size=12", "--set", "method.sr_width=16", "--images", "120", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "reference", "--recipe", "doodles/sss", *small])
    engine.main()
    (row,) = capsys.readouterr().out.splitlines()
    name, *speeds = row.split()
    assert name == "reference"
    assert [float(speed.replace(",", "")) > 0 for speed in speeds] == [True, True]


def test_an_unknown_variant_is_refused(engine, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "fp8"])
    with pytest.raises(SystemExit, match="2"):
        engine.main()
    assert "unknown: fp8; expected some of reference" in capsys.readouterr().err
