"""What SSS with prototypes and SSS with mixtures share: Stimulation, and a DualClassifier of g and g~."""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, TypeVar, cast

import torch
from pydantic import Field
from torch import Tensor

from fairshot.classifiers.decision_settings import DecisionSettings, MixtureSettings, PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.methods.method import Method, MethodSettings
from fairshot.methods.mixing import Distribution, FusedObjective, mixtures
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.flips import FlipViews, flipped
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.settings import ShareRange

CLASSIFIER = "classifier."  # before the names of its tensors


class DualMethodSettings(MethodSettings):
    """Stimulation and the features; each component of the paper can be switched off."""

    # Stimulation (section 3.1)
    intra: bool = Field(True, description="Vertical flips as a second component of each mixture.")
    inter: bool = Field(True, description="Fusions of two classes as surplus mixtures.")
    fusions_per_image: int = Field(1, ge=1, description="How many other images each image is fused with.")
    lam: ShareRange = Field((0.4, 0.6), description="Range of the fusion weight lambda (eq. 5).")
    lam_distribution: Distribution = Field("uniform", description="Of lambda; beta: Beta(20, 20), clamped.")
    fused_weight: float = Field(1.0, gt=0, description="Weight of fused images in the loss.")
    fused_views: int = Field(
        2, ge=1, le=2, description="Views that are fused; one spares a quarter of images."
    )
    scale: float = Field(16.0, gt=0, description="Scale of the cosines in the loss.")
    # Transferable features g and class-specific features g~ (section 3.2)
    sr: bool = Field(True, description="Whether the SR module stands behind the backbone (eq. 6).")
    sr_width: int = Field(2048, ge=1, description="Width of both layers of SR.")
    mirror: bool = Field(
        False, description="Average features with those of the mirror image: twice the passes."
    )
    corner_crops: float | None = Field(
        None,
        ge=0.25,
        lt=1,
        description="Average features with those of four corner crops, each this share of a side: five times "
        "the passes.",
    )
    calibration: bool = Field(
        False, description="Calibrate with unlabelled test images: with it the setting is transductive."
    )
    calibration_timing: Literal["before", "after"] = Field(
        "before", description="Whether test images calibrate before or after they are classified themselves."
    )


SettingsT = TypeVar("SettingsT", bound=DualMethodSettings)


class Stimulation(FusedObjective):
    """Mapping ability stimulation: map fused and flipped images to surplus mixtures of two components."""

    views = 2

    def __init__(self, embedder: Embedder, classes: int, settings: DualMethodSettings) -> None:
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
            images, rows = torch.cat([images, flipped(images)]), torch.cat([rows, rows + 1])
            weights = weights.repeat(2)
        _, features = self.embedder(images)
        losses = cosine_cross_entropy(self.head(features), rows, self.settings.scale)
        return (weights * losses).mean()


class DualMethod(Method[SettingsT], Generic[SettingsT]):
    """Trained by Stimulation; decides by a DualClassifier, whatever that is made of."""

    trained_as = "dual"
    buffers = ()
    classifier: DualClassifier
    decision_settings: ClassVar[frozenset[str]] = frozenset(
        {"mirror", "corner_crops", "calibration", "calibration_timing"}
    )

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """Twice as many if flipped images are a component, and more with mirror images and crops."""
        return _views(cast(DualMethodSettings, settings)).passes

    @classmethod
    def weighs_images(cls, settings: MethodSettings) -> bool:
        """Prototypes can be weighted; mixtures and gates weigh all images alike."""
        return cast(DecisionSettings, settings).weighs_images

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the SR module behind the backbone."""
        chosen = self.settings
        self.views = _views(chosen)
        return Embedder(model, channels, chosen.sr_width if chosen.sr else None)

    def objective(self) -> Stimulation:
        """Return mapping ability stimulation."""
        return Stimulation(self.embedder, self.base_classes, self.settings)

    @property
    def decision(self) -> PrototypeSettings | MixtureSettings:
        """The settings of the classifier, which are among those of the method."""
        return cast(PrototypeSettings | MixtureSettings, self.settings)

    @property
    def transductive(self) -> bool:
        """Calibration looks at unlabelled test images."""
        return self.settings.calibration

    @property
    def classifies_first(self) -> bool:
        """The paper does not say when Calibration takes place: a setting."""
        return self.settings.calibration_timing == "after"

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make h and h~ of the base classes."""
        self.classifier = DualClassifier.fit(self.decision, features, labels, self.base_classes)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Extend h and h~ by new classes; labelled images of known classes refine them."""
        self.classifier = self.classifier.extend(features, labels)

    def adapt(self, features: Features) -> None:
        """Calibrate h with unlabelled images."""
        self.classifier = self.classifier.adapt(features)

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the scores of the features that decide (Algorithm 1)."""
        return self.classifier.decide(features, novel_only).scores

    def precomputed(self, features: Features) -> Features:
        """Return the lengths of images under the metrics of base classes, if these have their own."""
        return self.classifier.precomputed(features)

    @property
    def seen_classes(self) -> int:
        """How many classes h knows."""
        return self.classifier.classes

    def tensors(self) -> dict[str, Tensor]:
        """Return the network and the classifier."""
        learnt = {f"{CLASSIFIER}{name}": value for name, value in self.classifier.tensors().items()}
        return super().tensors() | learnt

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned earlier."""
        super().restore(tensors)
        own = self._own(CLASSIFIER, tensors)
        self.classifier = DualClassifier.from_tensors(self.decision, self.base_classes, own, self.views.count)


def _views(settings: DualMethodSettings) -> FlipViews:
    return FlipViews(flip=settings.intra, mirror=settings.mirror, corner_crops=settings.corner_crops)
