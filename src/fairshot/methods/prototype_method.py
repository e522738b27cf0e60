"""Base classes for methods whose classes are mean features (prototypes), compared by cosine (eq. 2)."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.classifiers.calibration import calibrate_labelled, rank_in_class
from fairshot.classifiers.dual import split_known
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import Method, MethodSettings, SettingsT
from fairshot.models.embedder import Embedder, Features
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.progress import SILENT, Reporter
from fairshot.training.loop import Objective


class CosineSettings(MethodSettings):
    """Settings of the cosine cross-entropy."""

    scale: float = Field(16.0, gt=0, description="Factor of the cosines in the cross-entropy.")
    views: int = Field(2, ge=1, description="Random views of each picture in a step.")


class CosineObjective(Objective):
    """Scaled-cosine cross-entropy over the base classes, on every view."""

    def __init__(
        self, embedder: Embedder, classes: int, settings: CosineSettings, margin: float = 0.0
    ) -> None:
        super().__init__()
        self.embedder, self.settings, self.margin = embedder, settings, margin
        self.views = settings.views
        self.head = CosineHead(classes, embedder.width_tilde)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over views and pictures."""
        del noise
        _, features = self.embedder(torch.cat(views))
        return self.cross_entropy(features, labels.repeat(len(views)))

    def cross_entropy(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of features (N, d) and their labels (N,)."""
        return cosine_cross_entropy(self.head(features), labels, self.settings.scale, self.margin).mean()


class PrototypeMethod(Method[SettingsT], Generic[SettingsT]):
    """Stores the mean feature g of each class and view; new classes change nothing that is stored."""

    buffers: ClassVar[tuple[str, ...]] = ("prototypes", "counts")
    only_means: ClassVar[bool] = True  # whether nothing but mean features is learnt from shots
    prototypes: Tensor  # (C, V, d)
    counts: Tensor  # (C,) pictures behind each prototype, or the sum of their weights

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Take the mean feature of each base class."""
        weights = features.get("weights")
        self.prototypes = prototypes(features["g"], labels, range(self.base_classes), weights)
        self.counts = labels.bincount(weights, minlength=self.base_classes)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Add the mean feature of each new class; further pictures of known classes update their means."""
        self.prototypes, self.counts = self.extended(features, labels)

    def extended(self, features: Features, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return prototypes and counts that include these pictures; the method itself is not changed."""
        known, new = split_known(labels, self.seen_classes)
        g, weights = features["g"], features.get("weights")
        of_known = None if weights is None else weights[known]
        P, counts = calibrate_labelled(self.prototypes, self.counts, g[known], labels[known], of_known)
        if new:
            P = torch.cat([P, prototypes(g, labels, new, weights)])
            counts = torch.cat([counts, labels.bincount(weights)[new.start :]])
        return P, counts

    @classmethod
    def weighs_images(cls, settings: MethodSettings) -> bool:
        """Means can be weighted."""
        del settings
        return cls.only_means

    def similarities(self, features: Features) -> Tensor:
        """Return how similar each picture is to each class seen (N, C): the cosine with its prototype."""
        return similarity(features["g"], self.prototypes)

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return `similarities`, with minus infinity for base classes if they are ruled out."""
        scores = self.similarities(features)
        if novel_only:
            scores[:, : self.base_classes] = -torch.inf
        return scores

    @property
    def seen_classes(self) -> int:
        """How many classes have a prototype."""
        return len(self.prototypes)


CosineT = TypeVar("CosineT", bound=CosineSettings)
COSINE = "cosine"  # `trained_as` of methods whose base session is the cosine cross-entropy alone


class CosineMethod(PrototypeMethod[CosineT], Generic[CosineT]):
    """Trains by cosine cross-entropy over the base classes."""

    def objective(self) -> Objective:
        """Return the cosine cross-entropy."""
        return CosineObjective(self.embedder, self.base_classes, self.settings)


class ProjectorMethod(PrototypeMethod[SettingsT], Generic[SettingsT]):
    """Stores the mean feature g of each class, and compares what the projector makes of features g."""

    @property
    def projector(self) -> nn.Module:
        """The module behind the backbone, which makes g~ of g."""
        assert self.embedder.sr is not None
        return self.embedder.sr

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return g alone: the projector changes from session to session, so `similarities` applies it."""
        return {"g": super().embed(pictures, reporter)["g"]}

    @torch.no_grad()
    def similarities(self, features: Features) -> Tensor:
        """Return the cosine of projected features with the target of each class."""
        return normalize(self.projector(features["g"][:, 0]), dim=1) @ normalize(self.targets(), dim=1).T

    def targets(self) -> Tensor:
        """Return the vector that stands for each class seen (C, d~): its mean feature, projected."""
        targets: Tensor = self.projector(self.prototypes[:, 0])
        return targets


def nearest_to_mean(features: Tensor, labels: Tensor, means: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` pictures of each class most similar to its mean (C, V, d)."""
    cosine = (normalize(features, dim=-1) * normalize(means, dim=-1)[labels]).sum(-1).mean(-1)
    return torch.nonzero(rank_in_class(cosine, labels) < count)[:, 0]
