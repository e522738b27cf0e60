"""ALICE: an angular margin loss over base and fused classes, on a projector that is dropped afterwards."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fairshot.classifiers.prototypes import prototypes
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.mixing import FusedObjective, mixtures
from fairshot.methods.prototype_method import PrototypeMethod, nearest_to_mean
from fairshot.models.embedder import Embedder, Features
from fairshot.models.heads import SR, CosineHead, cosine_cross_entropy
from fairshot.settings import ShareRange


class ALICESettings(MethodSettings):
    """Angular penalty, class augmentation, and the balanced choice of prototype images."""

    scale: float = Field(30.0, gt=0, description="Factor of the cosines in the cross-entropy.")
    margin: float = Field(0.4, ge=0, description="Subtracted from the cosine of the true class in training.")
    projector_width: int = Field(2048, ge=1, description="Width of the projector behind the backbone.")
    fusions_per_image: int = Field(4, ge=0, description="Fused images per image.")
    lam: ShareRange = Field((0.4, 0.6), description="Range of the weight of one image in a fusion.")
    balanced: int = Field(
        5, ge=1, description="Training images behind a base prototype: as few as novel classes have."
    )


class AngularPenalty(FusedObjective):
    """Cosine cross-entropy with a margin over base classes and their pairwise fusions, two views of each."""

    views = 2

    def __init__(self, embedder: Embedder, classes: int, settings: ALICESettings) -> None:
        fusions, width = settings.fusions_per_image, settings.projector_width
        super().__init__(classes, fusions, settings.lam, "beta", fused_weight=1.0)
        self.embedder, self.settings = embedder, settings
        self.projector = SR(embedder.width, width, batch_norm=True)
        self.head = CosineHead(mixtures(classes, inter=fusions > 0), width)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over plain and fused images of both views."""
        images, targets, weights = self.fuse(views, labels, noise)
        g, _ = self.embedder(images)
        cosines = self.head(self.projector(g))
        losses = cosine_cross_entropy(cosines, targets, self.settings.scale, self.settings.margin)
        return (weights * losses).mean()


class ALICE(PrototypeMethod[ALICESettings]):
    """Augmented angular loss incremental classification.

    The base session trains base classes, and fusions of two of them as further classes, under an angular
    margin behind a projector. The projector is then dropped: class means of the features g are compared by
    cosine. Base prototypes are means of the few training images nearest the class mean, so that they have
    no advantage over those of new classes.
    """

    name = "alice"
    Settings = ALICESettings
    card = MethodCard(
        "angular penalty over base and fused classes; balanced class means",
        title="ALICE",
        paper="Peng et al., ECCV",
        year=2022,
        grid={"method.balanced": (1, 2, 5, 10, 20, 50)},
    )
    decision_settings = frozenset({"balanced"})

    def objective(self) -> AngularPenalty:
        return AngularPenalty(self.embedder, self.base_classes, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make base prototypes of the training images nearest the mean of their class."""
        means = prototypes(features["g"], labels, range(self.base_classes), features.get("weights"))
        chosen = nearest_to_mean(features["g"], labels, means, self.settings.balanced)
        super().init_classifiers({name: value[chosen] for name, value in features.items()}, labels[chosen])
