"""Backbones: how they begin, as timm draws them or as torch does, and how wide their features are."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import BadSetting, BadSettings, UserError
from fairshot.models.backbones import build_backbone, feature_width, model_settings
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.errors import CannotEmbed
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


def test_a_stem_of_stride_two_quarters_the_maps_of_every_stage():
    sides, image = [], torch.zeros(1, 3, 84, 84)
    for stem in ("3x3", "3x3/2"):
        recipe = load_recipe("mini_imagenet/sss", [f"model.stem={stem}"])
        network = build_backbone(recipe.model, 3).eval()
        assert isinstance(network.maxpool, nn.Identity)
        sides.append(network.layer1(network.act1(network.bn1(network.conv1(image)))).shape[2:])
    assert sides == [(84, 84), (42, 42)]


@pytest.mark.parametrize("change", ["model.small_stem=false", "model.backbone=resnet20"])
def test_a_network_that_keeps_its_stem_is_not_asked_for_another(change):
    with pytest.raises((BadSetting, BadSettings), match=r"model\.stem: "):
        build_backbone(load_recipe("mini_imagenet/sss", ["model.stem=3x3/2", change]).model, 3)


def test_pretrained_weights_are_not_drawn_again():
    with pytest.raises(UserError, match=r"model\.initialisation: .* model\.pretrained .* expected timm"):
        load_recipe("cifar100/sss", ["model.pretrained=true", "model.initialisation=torch"])


# Families whose features are wider or narrower than timm records, and others.
FAMILIES = {
    "mobilenetv3_small_050": 1024,
    "mobilenetv4_conv_small_035": 1280,
    "ghostnet_050": 1280,
    "lcnet_035": 1280,
    "hgnetv2_b0": 2048,
    "inception_next_atto": 960,
    "repghostnet_050": 1280,
    "efficientvit_b0": 1280,
    "tinynet_e": 1280,
    "test_vit": 64,
    "test_mambaout": 256,
    "test_nfnet": 192,
    "edgenext_xx_small": 168,
    "convnext_zepto_rms": 256,
    "regnetx_002": 368,
    "pit_ti_224": 256,
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_width_of_features_is_what_the_network_gives(name):
    if not timm.is_model(name):
        pytest.skip(f"this version of timm has no {name}")
    fixed = timm.get_pretrained_cfg(name).fixed_input_size
    settings = ModelSettings(backbone=name, small_stem=False, size=model_settings(name).size if fixed else 64)
    embedder = Embedder(settings, channels=3)
    assert embedder.backbone.training  # as it was before it was measured
    pictures = Pictures.from_array(np.zeros((2, 40, 50, 3), dtype=np.uint8))
    assert embedder.embed(pictures)["g"].shape == (2, 1, embedder.width)
    assert embedder.width == FAMILIES[name]


SMALLEST = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "embed_timm_families.py"))["SMALLEST"]


@pytest.mark.parametrize("family", sorted(timm.list_modules()))
def test_every_family_of_timm_embeds(family):
    """Weights are not drawn, which takes minutes: shapes alone go through; a refusal is an error."""
    name = SMALLEST.get(family) or timm.list_models(module=family)[0]
    settings = model_settings(name).without_weights()
    if family == "sequencer":  # it goes through the rows and columns one by one
        settings = settings.model_copy(update={"size": 56})
    with torch.device("meta"):
        embedder = Embedder(settings, channels=3)
    assert embedder.width == (FAMILIES | {"vgg11": 4096}).get(name, embedder.width) > 0


class Maps(nn.Module):
    def __init__(self, output) -> None:
        super().__init__()
        self.weight, self.output = nn.Parameter(torch.zeros(1)), output

    def forward(self, images):
        return self.output(images)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (lambda images: images, r"it gives \(3, 32, 32\) for each"),
        (lambda images: images[:, 0, 0, 0], r"it gives \(\) for each"),
        (lambda images: images.reshape(1, -1), r"it gives \(6144,\) for each"),
        (lambda images: images.flatten(1)[:, :0], r"it gives \(0,\) for each"),
        (lambda images: [images], "it gives a list"),
        (lambda images: images @ torch.zeros(7), "size mismatch|mat1|shape"),
    ],
)
def test_what_gives_no_row_of_features_for_each_picture_is_refused(output, reason):
    with pytest.raises(CannotEmbed, match=reason):
        feature_width(Maps(output), ModelSettings(backbone="maps"), 3)


def test_networks_of_one_input_size_are_built_for_the_one_asked_for():
    assert (
        Embedder(ModelSettings(backbone="test_vit", small_stem=False, size=48), 3).backbone.pos_embed.shape[1]
        == 10
    )
    with pytest.raises(CannotEmbed, match="divisible by patch size"):
        Embedder(ModelSettings(backbone="test_vit", small_stem=False, size=20), 3)
