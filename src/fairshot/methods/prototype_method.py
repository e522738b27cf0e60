"""The skeleton most systems share: cosine cross-entropy, class means as prototypes, answers by cosine."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from fairshot.classifiers.calibration import calibrate_labelled
from fairshot.classifiers.dual import split_known
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import Method, MethodSettings, SettingsT
from fairshot.models.embedder import Embedder, Features
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.training.loop import Objective


class CosineSettings(MethodSettings):
    """Settings of the cosine cross-entropy."""

    scale: float = Field(16.0, gt=0)
    views: int = Field(2, ge=1)  # random views of each picture in a step


class CosineObjective(Objective):
    """Scaled-cosine cross-entropy over the base classes, on every view."""

    def __init__(
        self, embedder: Embedder, classes: int, views: int, scale: float, margin: float = 0.0
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.head = CosineHead(classes, embedder.width_tilde)
        self.views, self.scale, self.margin = views, scale, margin

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over views and pictures."""
        del noise
        _, features = self.embedder(torch.cat(views))
        rows = labels.repeat(len(views))
        return cosine_cross_entropy(self.head(features), rows, self.scale, self.margin).mean()


class PrototypeMethod(Method[SettingsT], Generic[SettingsT]):
    """Prototypes of g, one a class and view; nothing learnt is ever changed by a new class."""

    buffers: ClassVar[tuple[str, ...]] = ("prototypes", "counts")
    prototypes: Tensor  # (C, V, d)
    counts: Tensor  # (C,) pictures behind each prototype

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Replace the trained rows by the mean feature of each base class."""
        self.prototypes = prototypes(features["g"], labels, range(self.base_classes))
        self.counts = labels.bincount(minlength=self.base_classes)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Add the mean feature of each new class; further pictures of known ones refine their mean."""
        self.prototypes, self.counts = self.extended(features, labels)

    def extended(self, features: Features, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return prototypes and counts with these pictures, and change nothing."""
        known, fresh = split_known(labels, self.seen_classes)
        g = features["g"]
        P, counts = calibrate_labelled(self.prototypes, self.counts, g[known], labels[known])
        if fresh:
            P = torch.cat([P, prototypes(g, labels, fresh)])
            counts = torch.cat([counts, labels.bincount()[fresh.start :]])
        return P, counts

    def answering_prototypes(self) -> Tensor:
        """Return the prototypes that answer (C, V, d); here they are the means as they are stored."""
        return self.prototypes

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosine with each prototype (eq. 2)."""
        cosines = similarity(features["g"], self.answering_prototypes())
        if novel_only:
            cosines[:, : self.base_classes] = -torch.inf
        return cosines

    @property
    def seen_classes(self) -> int:
        """How many classes have a prototype."""
        return len(self.prototypes)


PlainT = TypeVar("PlainT", bound=CosineSettings)


class CosineMethod(PrototypeMethod[PlainT], Generic[PlainT]):
    """A skeleton trained by the plain cosine cross-entropy; what is its own comes after."""

    def objective(self) -> CosineObjective:
        """Return the plain cosine cross-entropy."""
        return CosineObjective(self.embedder, self.base_classes, self.settings.views, self.settings.scale)
