"""How networks begin: as timm draws them, or as torch does."""

import math

import pytest
import torch
from torch import nn

from fairshot.errors import UserError
from fairshot.models.backbones import build_backbone
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.recipes import load_recipe


def drawn(initialisation: str, seed: int = 0, name: str = "resnet18") -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_backbone(ModelSettings(backbone=name, initialisation=initialisation), 3)


def layers(network: nn.Module, kind: type[nn.Module]) -> list:
    return [module for module in network.modules() if isinstance(module, kind)]


@pytest.mark.parametrize("name", ["resnet18", "tiny", "resnet12"])
def test_torch_draws_convolutions_uniformly_by_their_inputs_and_batch_norms_begin_at_one(name):
    network = drawn("torch", name=name)
    for convolution in layers(network, nn.Conv2d):
        bound = 1 / math.sqrt(convolution.weight[0].numel())
        assert 0.99 * bound < convolution.weight.abs().max() <= bound
        assert convolution.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    for norm in layers(network, nn.BatchNorm2d):
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()


def test_timm_draws_a_resnet_larger_and_lets_blocks_begin_at_zero():
    ours, theirs = drawn("torch"), drawn("timm")
    square = [
        layers(one.layer3, nn.Conv2d)[-1].weight.std().item() for one in (theirs, ours)
    ]  # as many in as out
    assert square[0] / square[1] == pytest.approx(math.sqrt(6), rel=0.02)
    assert [(norm.weight == 0).all().item() for norm in layers(theirs.layer3[1], nn.BatchNorm2d)] == [
        False,
        True,
    ]


def test_the_seed_decides_what_torch_draws():
    first, again, other = (drawn("torch", seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_the_setting_reaches_the_network():
    norms = layers(Embedder(ModelSettings(initialisation="torch"), channels=3).backbone, nn.BatchNorm2d)
    assert all((norm.weight == 1).all() for norm in norms)


def test_pretrained_weights_are_not_drawn_again():
    with pytest.raises(UserError, match=r"model\.initialisation: .* model\.pretrained .* expected timm"):
        load_recipe("cifar100/sss", ["model.pretrained=true", "model.initialisation=torch"])
