"""Statistics of the features of a backbone on photos of many things, which come with fairshot.

They are what a store begins with before it has seen a photo of its own: a whitened space in which photos are
compared, and how sure an answer is there (data/BACKGROUND.md says what they were made from).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fairshot.classifiers.whitening import Whitening, WithinClassCovariance
from fairshot.teaching.base_classifier import PhotoSpace
from fairshot.teaching.confidence import Prior
from fairshot.tensor_files import read_tensors

_FOLDER = Path(__file__).parent / "data"


class BackgroundSettings(BaseModel):
    """What is not a tensor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    power: float
    rest: float  # variance along the directions that are left out, in units of the mean variance
    shrinkage: float
    within_variance: float  # of a class, summed over the whitened space
    prior: Prior


@dataclass(frozen=True)
class Background:
    """The covariance within classes along its main directions, and the prior of confidence."""

    settings: BackgroundSettings
    centre: Tensor  # (d,) mean of class means, of features after `tukey`
    directions: Tensor  # (d, r) in columns
    variances: Tensor  # (r,) along them, in the same unit

    @classmethod
    def of(cls, covariance: WithinClassCovariance, rank: int, shrinkage: float, prior: Prior) -> Background:
        """Keep the main directions of a covariance; along the others it is taken to be the same."""
        variances, directions = covariance.variances[0], covariance.directions[0]
        settings = BackgroundSettings(
            power=covariance.power,
            rest=float(variances[:-rank].mean()),
            shrinkage=shrinkage,
            within_variance=within_variance(covariance, shrinkage),
            prior=prior,
        )
        centre = covariance.means.mean(0)[0]
        return cls(settings, centre, directions[:, -rank:].contiguous(), variances[-rank:])

    def space(self) -> PhotoSpace:
        """Return the space in which photos are compared, with one view of each."""
        chosen, V = self.settings, self.directions.double()
        rest = (chosen.rest + chosen.shrinkage) ** -0.5
        scales = (self.variances.double() + chosen.shrinkage).rsqrt() - rest
        matrix = rest * torch.eye(len(V), dtype=torch.float64) + V * scales @ V.T
        whitening = Whitening(chosen.power, self.centre.float()[None], matrix.float()[None])
        return PhotoSpace(whitening, chosen.within_variance)

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file of them holds; half precision is enough for directions."""
        return {
            "centre": self.centre.float(),
            "directions": self.directions.half(),
            "variances": self.variances.float(),
        }


def background_of(preset: str) -> Background | None:
    """Return the statistics of a preset, if they come with fairshot."""
    path = _FOLDER / f"{preset}.safetensors"
    if not path.is_file():
        return None
    settings = BackgroundSettings.model_validate_json((_FOLDER / f"{preset}.json").read_text())
    return Background(settings, **read_tensors(path))


def within_variance(covariance: WithinClassCovariance, shrinkage: float) -> float:
    """Return the variance within a class, summed over the space that whitening makes."""
    variances = covariance.variances[0].clamp(min=0)
    return float(covariance.unit[0] * (variances / (variances + shrinkage)).sum())


def no_background(views: int, width: int) -> PhotoSpace:
    """Return the space of features as they are."""
    return PhotoSpace(Whitening(1.0, torch.zeros(views, width), torch.eye(width).repeat(views, 1, 1)))
