"""Backbones without a classifier, most of them from timm: from images to features (N, d)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, cast

import timm
from huggingface_hub import constants as hub  # timm downloads its weights from there
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from fairshot.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from fairshot.models.embedder import Initialisation

Backbone = nn.Module
SECONDS_TO_ANSWER = 3  # after which the hub counts as unreachable


def build_backbone(
    name: str,
    channels: int,
    small_stem: bool,
    pretrained: bool = False,
    initialisation: Initialisation = "timm",
) -> Backbone:
    """Build a backbone by name: one of `SMALL`, or any model of timm.

    `small_stem` replaces the first 7x7 stride-2 convolution and the max-pooling of a timm ResNet by a
    3x3 stride-1 convolution, for pictures of 32 and 84 pixels. `pretrained` loads timm's weights. The
    initialisation `torch` gives convolutions and batch norms the default initialisation of torch.
    """
    backbone = _build(name, channels, small_stem, pretrained)
    if initialisation == "torch":
        _initialise_as_torch(backbone)
    return backbone


def _initialise_as_torch(backbone: Backbone) -> None:
    """Give convolutions and batch norms the default initialisation of torch.

    timm draws the convolutions of a ResNet-18 2.4 times larger than torch. Before a batch norm the scale of a
    weight does not change the output, but the larger a weight is, the less a step changes its direction.
    timm also initialises the last batch norm of each residual block with zero.
    """
    for module in backbone.modules():
        if isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._BatchNorm):
            module.reset_parameters()


def _build(name: str, channels: int, small_stem: bool, pretrained: bool) -> Backbone:
    if name in SMALL:
        if pretrained:
            raise UserError(f"model.pretrained: there are no pretrained weights of {name!r}; set it to false")
        return SMALL[name](channels)
    if not timm.is_model(name):
        raise UserError(
            f"model.backbone: {name!r} is neither one of {', '.join(SMALL)} nor a model of timm"
            f"{did_you_mean(name, [*SMALL, *timm.list_models()])}"
        )
    try:
        with _without_retries() if pretrained else nullcontext():
            model = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels)
    except Exception as problem:
        if not pretrained:
            raise
        raise UserError(
            f"model.pretrained: the weights of {name!r} could not be loaded ({problem}). "
            "Go online once so that they are cached, or set model.pretrained to false"
        ) from problem
    if small_stem:
        _shrink_stem(model, name, channels)
    return cast(Backbone, model)


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


def _shrink_stem(model: nn.Module, name: str, channels: int) -> None:
    if not isinstance(model, ResNet) or not isinstance(model.conv1, nn.Conv2d):
        raise UserError(
            f"model.small_stem: only ResNets have a stem to shrink, and {name!r} is none; set it to false"
        )
    model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()


def stages(backbone: Backbone) -> list[nn.Sequential]:
    """Split a residual network into its stages, which share its weights; one after the other they are it."""
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
            raise UserError(
                f"model.backbone: this method works between the stages of a residual network, and a "
                f"{type(backbone).__name__} is none; use resnet18, for example"
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
SMALL: dict[str, Callable[[int], Backbone]] = {
    "tiny": lambda channels: SmallResNet(channels, (32, 64, 128), blocks=1, stem_stride=2),
    "resnet20": lambda channels: SmallResNet(channels, (16, 32, 64), blocks=3, stem_stride=1),
    "resnet12": ResNet12,
}


def feature_width(backbone: Backbone) -> int:
    """Return d, the number of features a backbone gives."""
    return cast(int, backbone.num_features)
