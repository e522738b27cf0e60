"""TEEN: prototypes of new classes are calibrated by the base classes they resemble, without training."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import COSINE, CosineMethod, CosineSettings
from fairshot.models.embedder import Features
from fairshot.settings import Share


class TEENSettings(CosineSettings):
    """How far, and how selectively, base classes draw a new prototype towards themselves."""

    shift: Share = Field(0.5, description="Weight of the base classes in a calibrated prototype (alpha).")
    selectivity: float = Field(
        16.0, gt=0, description="The larger, the more the most similar base class counts (tau)."
    )


class TEEN(CosineMethod[TEENSettings]):
    """Training-free prototype calibration.

    The base session is that of nearest class mean. A prototype of a few shots is biased towards base
    classes, yet its similarities to their prototypes are reliable: it is moved towards their
    softmax-weighted mean. Base prototypes stay.
    """

    name = "teen"
    trained_as = COSINE
    Settings = TEENSettings
    card = MethodCard(
        "new prototypes move towards the base prototypes they resemble; no training",
        title="TEEN",
        paper="Wang et al., NeurIPS",
        year=2023,
        grid={"method.shift": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)},
    )
    decision_settings = frozenset({"shift", "selectivity"})

    def similarities(self, features: Features) -> Tensor:
        return similarity(features["g"], self.calibrated_prototypes())

    def calibrated_prototypes(self) -> Tensor:
        """Return the stored prototypes of the base classes, and calibrated ones of the new classes."""
        base, novel = self.prototypes[: self.base_classes], self.prototypes[self.base_classes :]
        return torch.cat([base, calibrated(novel, base, self.settings.shift, self.settings.selectivity)])


def calibrated(novel: Tensor, base: Tensor, shift: float, selectivity: float) -> Tensor:
    """Move new prototypes (C, V, d) towards the base prototypes (B, V, d) they resemble, view by view.

    The weights of the base prototypes are a softmax of scaled cosines.
    """
    novel, base = normalize(novel, dim=-1), normalize(base, dim=-1)
    weights = (selectivity * torch.einsum("cvd,bvd->cbv", novel, base)).softmax(dim=1)
    mean = normalize(torch.einsum("cbv,bvd->cvd", weights, base), dim=-1)
    return (1 - shift) * novel + shift * mean
