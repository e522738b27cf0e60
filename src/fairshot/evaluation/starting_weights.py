"""Starting weights: what the backbone of a run had learnt before the base session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from fairshot.evaluation.result import Result
from fairshot.models.backbones import tagged
from fairshot.models.presets import PRESETS

UNKNOWN_PICTURES = "pictures not known to us"
# Words in tags of timm
WHOLE_IMAGENET = {"in12k", "in21k", "in22k"}  # all its classes, or most; many birds of CUB-200 are among them
IMAGENET = {"in1k", *WHOLE_IMAGENET}
OTHER_PICTURES = {"jft", "swag", "ssld"}  # seen before those of ImageNet, or with them


@dataclass(frozen=True)
class StartingWeights:
    """Weights that a backbone began with, and the pictures from which they were learnt."""

    name: str
    trained_on: str

    def __str__(self) -> str:
        return f"weights {self.name}, learnt from {self.trained_on}"


def start_of(weights: StartingWeights | None) -> str:
    """Return what a backbone began with, in words."""
    return f"began with {weights}" if weights else "was trained from scratch"


def starting_weights(result: Result) -> StartingWeights | None:
    """Return the weights that a run began with; None where its backbone was trained from scratch."""
    model = result.section("model")
    weights, backbone = model.get("weights"), str(model.get("backbone"))
    if weights is None and not model.get("pretrained"):
        return None
    if weights is None:
        return StartingWeights(f"{backbone} of timm", _pictures_of_timm(backbone))
    preset = PRESETS.get(str(weights))
    return StartingWeights(PurePath(str(weights)).name, preset.trained_on if preset else UNKNOWN_PICTURES)


def _pictures_of_timm(backbone: str) -> str:
    """Return the pictures of timm's weights: those of a preset, or as their tag says, `sw_in12k_ft_in1k`."""
    name = tagged(backbone)
    for preset in PRESETS.values():
        if preset.package is None and tagged(preset.backbone) == name:
            return preset.trained_on
    words = name.partition(".")[2].split("_")
    first = words[: words.index("ft")] if "ft" in words else words  # before they were trained further
    if OTHER_PICTURES & {*words} or not IMAGENET & {*first}:
        return UNKNOWN_PICTURES
    return "ImageNet-21k" if WHOLE_IMAGENET & {*words} else "ImageNet"
