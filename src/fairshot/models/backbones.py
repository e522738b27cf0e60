"""Backbones without a classifier, most of them from timm: from images to features (N, d)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import timm
import torch
from huggingface_hub import constants as hub  # timm downloads its weights from there
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from fairshot.errors import BadSetting, UserError
from fairshot.models.errors import CannotEmbed, PretrainedWeightsMissing, UnknownBackbone
from fairshot.models.presets import PRESETS
from fairshot.models.weights import load_weights

if TYPE_CHECKING:
    from fairshot.models.embedder import ModelSettings

SECONDS_TO_ANSWER = 3  # after which the hub counts as unreachable


def build_backbone(settings: ModelSettings, channels: int) -> nn.Module:
    """Build a backbone, one of `SMALL` or any model of timm, with the weights it is to begin with."""
    backbone = _build(settings, channels)
    if settings.weights is not None and not _downloaded(settings):
        load_weights(backbone, settings.backbone, channels, settings.weights, settings.weights_sha256)
    if settings.small_stem and settings.backbone not in SMALL:
        _shrink_stem(backbone, settings, channels)
    elif settings.stem == "3x3/2":
        raise BadSetting(
            "model.stem", settings.stem, f"{settings.backbone!r} has a stem of its own; leave it out"
        )
    if settings.initialisation == "torch":
        _initialise_as_torch(backbone)
    return backbone


def model_settings(name: str, weights: str | None = None) -> ModelSettings:
    """Return a preset, or a backbone of timm with the input that timm records, as the settings of a model.

    It begins with the weights of the preset, of the file `weights`, or else of timm.
    """
    from fairshot.models.embedder import ModelSettings

    preset = PRESETS.get(name)
    if preset is not None:
        section = preset.section()
    elif name in SMALL or not timm.is_model(name):
        raise UnknownBackbone(name, list(PRESETS), timm.list_models())
    else:
        section = _section_of(name)
    if weights is not None:
        section |= {"weights": weights}
    elif preset is None:
        section |= {"pretrained": True}
    return ModelSettings(**section).pinned()


def _section_of(name: str) -> dict[str, Any]:
    """Return the section `model` of a backbone of timm, with the input that timm records."""
    wanted = timm.get_pretrained_cfg(name)
    size = wanted.input_size[-1]
    return {
        "backbone": name,
        "small_stem": False,
        "size": size,
        "resize": round(size / wanted.crop_pct),
        "mean": wanted.mean,
        "std": wanted.std,
    }


def tagged(name: str) -> str:
    """Return the name of a model of timm with the tag of its weights, which timm chooses if it has none."""
    known = None if "." in name else timm.get_pretrained_cfg(name)
    return f"{name}.{known.tag}" if known else name


def _downloaded(settings: ModelSettings) -> bool:
    """Whether timm loads the weights."""
    preset = PRESETS.get(settings.weights or "")
    return settings.pretrained or (preset is not None and preset.package is None)


def _initialise_as_torch(backbone: nn.Module) -> None:
    """Give convolutions and batch norms the default initialisation of torch.

    timm draws the convolutions of a ResNet-18 2.4 times larger than torch. Before a batch norm the scale of a
    weight does not change the output, but the larger a weight is, the less a step changes its direction.
    timm also initialises the last batch norm of each residual block with zero.
    """
    for module in backbone.modules():
        if isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._BatchNorm):
            module.reset_parameters()


def _build(settings: ModelSettings, channels: int) -> nn.Module:
    """Build the network; the weights of timm are loaded here."""
    name, pretrained = settings.backbone, _downloaded(settings)
    if name in SMALL:
        if pretrained:
            raise BadSetting(
                "model.pretrained",
                pretrained,
                f"there are no pretrained weights of {name!r}; set it to false",
            )
        return SMALL[name](channels)
    if not timm.is_model(name):
        raise UnknownBackbone(name, list(SMALL), timm.list_models(), "model.backbone")
    try:
        with _without_retries() if pretrained else nullcontext():
            model = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=channels, **_input_size(settings)
            )
    except UserError:
        raise
    except Exception as problem:
        if pretrained:
            raise PretrainedWeightsMissing(name, str(problem)) from problem
        raise CannotEmbed(name, settings.size, str(problem)) from problem
    _remove_empty_layers(model)
    return cast(nn.Module, model)


def _remove_empty_layers(model: nn.Module) -> None:
    """Remove classifiers of no classes, which some models of timm end with when they are asked for none."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and layer.out_features == 0:
                setattr(parent, name, nn.Identity())


def _input_size(settings: ModelSettings) -> dict[str, int]:
    """Return the argument by which networks of one input size, such as transformers, get another."""
    wanted = timm.get_pretrained_cfg(settings.backbone)
    if wanted is None or not wanted.fixed_input_size or wanted.input_size[-1] == settings.size:
        return {}
    return {"img_size": settings.size}


@contextmanager
def _without_retries() -> Iterator[None]:
    """Look for weights only on this disk if the hub does not answer, which would be tried for a minute."""
    before = hub.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = before or not _hub_answers()
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = before


def _hub_answers() -> bool:
    try:
        get_session().head(hub.ENDPOINT, timeout=SECONDS_TO_ANSWER)
    except Exception:  # which one depends on the library that the hub uses
        return False
    return True


def _shrink_stem(model: nn.Module, settings: ModelSettings, channels: int) -> None:
    if not isinstance(model, ResNet) or not isinstance(model.conv1, nn.Conv2d):
        raise BadSetting(
            "model.small_stem",
            True,
            f"only ResNets have a stem to shrink, and {settings.backbone!r} is none; set it to false",
        )
    stride = 2 if settings.stem == "3x3/2" else 1
    model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()


def stages(backbone: nn.Module) -> list[nn.Sequential]:
    """Split a residual network into its stages, which share its weights and are applied in this order."""
    match backbone:
        case SmallResNet():
            each = len(backbone.stages) // 3
            bodies = [backbone.stages[i : i + each] for i in range(0, 3 * each, each)]
            return _with_ends(bodies, [backbone.stem], _Mean())
        case ResNet12():
            return _with_ends(list(backbone.blocks), [], _Mean())
        case ResNet():
            first = [backbone.conv1, backbone.bn1, backbone.act1, backbone.maxpool]
            bodies = [backbone.layer1, backbone.layer2, backbone.layer3, backbone.layer4]
            return _with_ends(bodies, first, backbone.global_pool)
        case _:
            raise BadSetting(
                "model.backbone",
                type(backbone).__name__,
                "this method works between the stages of a residual network; use resnet18, for example",
            )


def _with_ends(
    bodies: Sequence[nn.Module], first: Sequence[nn.Module], last: nn.Module
) -> list[nn.Sequential]:
    parts = [[*first, bodies[0]], *([body] for body in bodies[1:-1]), [bodies[-1], last]]
    return [nn.Sequential(*modules) for modules in parts]


class _Mean(nn.Module):
    """Global average pooling."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class SmallResNet(nn.Module):
    """Three stages of basic residual blocks after a 3x3 stem; the second and third halve the resolution."""

    def __init__(self, channels: int, widths: tuple[int, int, int], blocks: int, stem_stride: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, stride=stem_stride, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        )
        layers: list[nn.Module] = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(BasicBlock(inputs, width, stride, downsample=_shortcut(inputs, width, stride)))
                inputs = width
        self.stages = nn.Sequential(*layers)
        self.num_features = inputs

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(self.stem(images))
        return features.mean(dim=(2, 3))


def _shortcut(inputs: int, width: int, stride: int) -> nn.Module | None:
    if inputs == width and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))


class ResNet12(nn.Module):
    """The ResNet-12 of the few-shot literature: four blocks, each followed by max-pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = (64, 160, 320, 640)
        inputs = (channels, *widths[:-1])
        self.blocks = nn.Sequential(*(_TripleBlock(a, b) for a, b in zip(inputs, widths, strict=True)))
        self.num_features = widths[-1]

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(images)
        return features.mean(dim=(2, 3))


class _TripleBlock(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(3):
            layers += [
                nn.Conv2d(inputs if index == 0 else width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1),
            ]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.max_pool2d(
            nn.functional.leaky_relu(self.body(images) + self.shortcut(images), 0.1), 2
        )


# Of 0.3, 0.27 and 12.4 million parameters. timm has none of them.
SMALL: dict[str, Callable[[int], nn.Module]] = {
    "tiny": lambda channels: SmallResNet(channels, (32, 64, 128), blocks=1, stem_stride=2),
    "resnet20": lambda channels: SmallResNet(channels, (16, 32, 64), blocks=3, stem_stride=1),
    "resnet12": ResNet12,
}


@torch.no_grad()
def feature_width(backbone: nn.Module, settings: ModelSettings, channels: int) -> int:
    """Return d, the number of features that a backbone gives, measured on two blank pictures.

    What timm records, `num_features`, is often the width before the last layers.
    """
    if isinstance(backbone, SmallResNet | ResNet12):
        return backbone.num_features
    weights = next(backbone.parameters())
    blank = torch.zeros(2, channels, settings.size, settings.size, dtype=weights.dtype, device=weights.device)
    training = backbone.training
    try:
        features = backbone.eval()(blank)
    except Exception as problem:
        reason = str(problem).partition("\n")[0] or type(problem).__name__
        raise CannotEmbed(settings.backbone, settings.size, reason) from problem
    finally:
        backbone.train(training)
    if not isinstance(features, Tensor):
        raise CannotEmbed(
            settings.backbone, settings.size, f"it gives a {type(features).__name__}, not features"
        )
    if features.ndim != 2 or len(features) != 2 or features.shape[1] == 0:
        shape = tuple(features.shape[1:])
        raise CannotEmbed(
            settings.backbone, settings.size, f"it gives {shape} for each, not a row of features"
        )
    return features.shape[1]
