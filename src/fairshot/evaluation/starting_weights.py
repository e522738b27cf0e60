"""Starting weights: what the backbone of a run had learnt before the base session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from fairshot.evaluation.result import Result
from fairshot.models.presets import PRESETS

UNKNOWN_PICTURES = "pictures not known to us"


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
    of_timm = {preset.backbone: preset for preset in PRESETS.values() if preset.package is None}
    preset = of_timm.get(backbone) if weights is None else PRESETS.get(str(weights))
    name = f"{backbone} of timm" if weights is None else PurePath(str(weights)).name
    return StartingWeights(name, preset.trained_on if preset else UNKNOWN_PICTURES)
