"""What SSS has in common with prototypes and with mixtures: Stimulation, and two kinds of features."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from fairshot.benchmarks.pictures import Pictures
from fairshot.classifiers.dual import (
    anomaly_detection,
    integrated_features,
    integrated_similarities,
    separately,
)
from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import Method, MethodSettings
from fairshot.methods.mixing import Distribution, FusedObjective, mixtures
from fairshot.models.embedder import Embedder, Features, ModelSettings, unchanged, upside_down
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.progress import SILENT, Reporter
from fairshot.settings import ShareRange

Decision = Literal["separately", "transferable_only", "specific_only", "pre", "post", "anomaly_detection"]


class DualSettings(MethodSettings):
    """The components of the paper, each of which can be switched off, and their strengths."""

    # Stimulation (section 3.1)
    intra: bool = Field(True, description="Vertical flips are a second component of each class.")
    inter: bool = Field(True, description="Fusions of two classes are surplus classes.")
    fusions_per_image: int = Field(1, ge=1, description="Fused images per image.")
    lam: ShareRange = Field(
        (0.4, 0.6), description="Range of the weight of one image in a fusion (lambda of eq. 5)."
    )
    lam_distribution: Distribution = Field(
        "uniform", description="Distribution of that weight; beta: Beta(20, 20) clamped to the range."
    )
    fused_weight: float = Field(1.0, gt=0, description="Weight of fused images in the loss.")
    fused_views: int = Field(
        2, ge=1, le=2, description="Views that are fused; one instead of two saves a quarter of the images."
    )
    scale: float = Field(16.0, gt=0, description="Factor of the cosines in the cross-entropy.")
    # Separately dual-feature classification (section 3.2)
    sr: bool = Field(True, description="The SR module, and with it two kinds of features.")
    sr_width: int = Field(2048, ge=1, description="Width of the features g~ of the SR module.")
    decision: Literal[
        "separately", "transferable_only", "specific_only", "pre", "post", "anomaly_detection"
    ] = Field(
        "separately",
        description="How the two kinds of features decide; the paper's tables 3 and 11 compare the rules.",
    )
    mirror: bool = Field(
        False, description="Average features over each picture and its mirror image: twice the passes."
    )
    # Self-optimizing classifiers (section 3.3)
    resistance: bool = Field(True, description="Move base prototypes away from similar novel classes.")
    calibration: bool = Field(
        False, description="Move prototypes towards unlabelled test images (transductive)."
    )
    threshold: float = Field(
        0.8,
        ge=-1,
        le=1,
        description="Similarity from which an unlabelled image counts as recognised (r of eq. 10).",
    )
    at_most: int = Field(40, ge=1, description="Recognised images per class that are used (R of eq. 10).")


SettingsT = TypeVar("SettingsT", bound=DualSettings)


class Stimulation(FusedObjective):
    """Mapping ability stimulation: map fused and flipped images to surplus mixtures of two components."""

    views = 2

    def __init__(self, embedder: Embedder, classes: int, settings: DualSettings) -> None:
        fusions = settings.fusions_per_image if settings.inter else 0
        blend = (settings.lam, settings.lam_distribution, settings.fused_weight, settings.fused_views)
        super().__init__(classes, fusions, *blend)
        self.embedder, self.settings = embedder, settings
        self.components = 2 if settings.intra else 1
        self.head = CosineHead(self.components * mixtures(classes, settings.inter), embedder.width_tilde)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over plain and fused images, plain and flipped, of both views."""
        images, targets, weights = self.fuse(views, labels, noise)
        rows = self.components * targets
        if self.settings.intra:  # flip and fusion commute: fuse first, flip once
            images, rows = torch.cat([images, images.flip(2)]), torch.cat([rows, rows + 1])
            weights = weights.repeat(2)
        _, features = self.embedder(images)
        losses = cosine_cross_entropy(self.head(features), rows, self.settings.scale)
        return (weights * losses).mean()


class Dual(Method[SettingsT], Generic[SettingsT]):
    """Two kinds of features, g for h and g~ for h~, whatever the classifiers are made of."""

    trained_as = "dual"
    decision_settings: ClassVar[frozenset[str]] = frozenset(
        {"decision", "mirror", "resistance", "calibration", "threshold", "at_most"}
    )
    prototypes: Tensor  # P of h, (C, V, d)

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """Twice as many if flipped pictures are a component, and again if mirror images are looked at."""
        assert isinstance(settings, DualSettings)
        return (1 + settings.intra) * (1 + settings.mirror)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the SR module behind the backbone; look at flipped pictures too if they are a component."""
        chosen = self.settings
        self.flips = (False, True) if chosen.intra else (False,)
        return Embedder(model, channels, chosen.sr_width if chosen.sr else None)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return features, averaged with those of the mirror images if the settings say so."""
        if not self.settings.mirror:
            return super().embed(pictures, reporter)
        upright = [upside_down if flip else unchanged for flip in self.flips]
        looks = [*upright, *(lambda images, turn=turn: turn(images.flip(3)) for turn in upright)]
        found = self.embedder.embed_transformed(pictures, looks, reporter=reporter)
        halves = {name: value.chunk(2, dim=1) for name, value in found.items()}
        return {name: (plain + mirrored) / 2 for name, (plain, mirrored) in halves.items()}

    def objective(self) -> Stimulation:
        """Return mapping ability stimulation."""
        return Stimulation(self.embedder, self.base_classes, self.settings)

    @property
    def transductive(self) -> bool:
        """Calibration looks at unlabelled test images."""
        return self.settings.calibration

    def first_look(self, g: Tensor) -> Tensor:
        """Return what g and h say of every class (N, C)."""
        return similarity(g, self.prototypes)

    @abstractmethod
    def resisting_prototypes(self) -> Tensor:
        """Return P~ with the base classes moved for this inference (C, V, d~); what is stored stays."""

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosines of the look that decides (Algorithm 1): g, or g~ where g sees a base class."""
        P_tilde = self.resisting_prototypes()
        first = self.first_look(features["g"])
        second = similarity(features["g_tilde"], P_tilde)
        if novel_only:
            first[:, : self.base_classes] = second[:, : self.base_classes] = -torch.inf
        match self.settings.decision:
            case "separately":
                return separately(first, second, self.base_classes)
            case "transferable_only":
                return first
            case "specific_only":
                return second
            case "post":
                return integrated_similarities(first, second)
            case "anomaly_detection":
                return anomaly_detection(first, second, self.base_classes)
            case "pre":
                joined = integrated_features(features["g"], features["g_tilde"])
                scores = similarity(joined, integrated_features(self.prototypes, P_tilde))
                return torch.where(first > -torch.inf, scores, first)

    @property
    def seen_classes(self) -> int:
        """How many classes h knows."""
        return len(self.prototypes)
