"""FACT: the base session reserves space for future classes by virtual prototypes, which stay fixed."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import MethodCard
from fairshot.methods.mixing import BetaWeights
from fairshot.methods.prototype_method import CosineObjective, CosineSettings, PrototypeMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.settings import Share


class FACTSettings(CosineSettings):
    """How strongly space is reserved, and how much virtual prototypes count in a prediction."""

    weight: float = Field(
        0.01, ge=0, description="Weight of the three losses that reserve space for future classes."
    )
    mixing: float = Field(0.5, gt=0, description="Shape of the Beta distribution of mix-up weights.")
    reserved: int = Field(
        3, ge=1, description="Virtual classes that may be the second choice of a base class."
    )
    virtual_share: Share = Field(
        0.1, description="Weight of the similarities to virtual prototypes in a prediction."
    )
    nearest_virtual: int = Field(
        40, ge=1, description="Virtual prototypes, the most similar ones, that a prediction uses."
    )


class ForwardCompatible(CosineObjective):
    """Cosine cross-entropy, and losses that pull images and their manifold mix-ups to virtual classes."""

    neighbours = noise = 1
    settings: FACTSettings
    virtual: Tensor  # (M, d), orthogonal and never trained
    allowed: Tensor  # (B, M), which virtual classes may be the second target of each base class

    def __init__(self, embedder: Embedder, classes: int, settings: FACTSettings, virtual: Tensor) -> None:
        super().__init__(embedder, classes, settings)
        self.classes, self.beta = classes, BetaWeights(settings.mixing)
        self.register_buffer("virtual", virtual.clone())
        chosen = torch.rand(classes, len(virtual)).argsort(dim=1)[:, : settings.reserved]
        self.register_buffer("allowed", one_hot(chosen, len(virtual)).sum(1).bool())
        self.stages = [tuple(embedder.stages())]  # in a list: their weights are registered by the embedder

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss on base classes plus, weighted, the losses that reserve space."""
        own = len(labels) - self.neighbours
        plain, mixed = self.logits(views, noise[:own, 0]).chunk(2)
        targets = labels[:own].repeat(len(views))
        different = (labels[:own] != labels[1 : own + 1]).repeat(len(views)).to(plain.dtype)
        base = cross_entropy(plain[:, : self.classes], targets)
        reserving = self.virtual_loss(plain, targets) + (different * self.mixup_loss(mixed)).mean()
        return base + self.settings.weight * reserving

    def logits(self, views: list[Tensor], noise: Tensor) -> Tensor:
        """Return logits over base and virtual classes of the images, then of their mix-ups.

        Each image is mixed with its neighbour of the batch after the second stage of the network, with
        the same weight in all views.
        """
        (first, second, *rest), own = self.stages[0], len(noise)
        maps = second(first(self.embedder.normalised(torch.cat(views)))).unflatten(0, (len(views), -1))
        lam = self.beta(noise)[:, None, None, None]
        mixed = lam * maps[:, :own] + (1 - lam) * maps[:, 1 : own + 1]
        g = torch.cat([maps[:, :own].flatten(0, 1), mixed.flatten(0, 1)])
        for stage in rest:
            g = stage(g)
        virtual = normalize(g, dim=1) @ self.virtual.T
        return self.settings.scale * torch.cat([self.head(g), virtual.to(g.dtype)], dim=1)

    def virtual_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """With its own class masked, an image belongs to the best virtual class allowed for its class."""
        virtual = logits[:, self.classes :].where(self.allowed[labels], -torch.inf).argmax(1) + self.classes
        return cross_entropy(masked(logits, labels), virtual)

    def mixup_loss(self, logits: Tensor) -> Tensor:
        """A mix-up belongs to the best virtual class and, with that masked, to the best base class (N,)."""
        virtual = logits[:, self.classes :].argmax(1) + self.classes
        base = logits[:, : self.classes].argmax(1)
        loss = cross_entropy(logits, virtual, reduction="none")
        return loss + cross_entropy(masked(logits, virtual), base, reduction="none")


def masked(logits: Tensor, classes: Tensor) -> Tensor:
    """Mask one class of each sample."""
    return logits.masked_fill(one_hot(classes, logits.shape[1]).bool(), -torch.inf)


class FACT(PrototypeMethod[FACTSettings]):
    """Forward compatible training.

    The base session has one virtual prototype per future class beside the trained ones, mutually
    orthogonal and frozen: they are the second choice of images, and the target of mix-ups of two classes,
    so that base classes leave space. New classes are mean features; a prediction blends the softmax of
    cosines with the similarities that image and class have in common to virtual prototypes.
    """

    name = "fact"
    Settings = FACTSettings
    card = MethodCard(
        "virtual prototypes reserve space for future classes in the base session",
        stores="mean feature; virtual prototypes",
        knows_future=True,
        title="FACT",
        paper="Zhou et al., CVPR",
        year=2022,
        grid={"method.virtual_share": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)},
    )
    decision_settings = frozenset({"virtual_share", "nearest_virtual"})
    buffers = (*PrototypeMethod.buffers, "virtual")
    fixed_buffers = ("virtual",)
    virtual: Tensor  # (M, d)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Draw the virtual prototypes too."""
        embedder = super().build_embedder(model, channels)
        count = max(1, self.total_classes - self.base_classes)
        self.virtual = normalize(nn.init.orthogonal_(torch.empty(count, embedder.width)), dim=1)
        return embedder

    def objective(self) -> ForwardCompatible:
        return ForwardCompatible(self.embedder, self.base_classes, self.settings, self.virtual)

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return probabilities: those by cosine, blended with those by way of the virtual prototypes."""
        cosines, share = super().scores(features, novel_only), self.settings.virtual_share
        ruled_out = cosines == -torch.inf
        virtual = self.virtual_similarities(features["g"]).masked_fill(ruled_out, -torch.inf)
        blend = (1 - share) * (self.settings.scale * cosines).softmax(1) + share * virtual.softmax(1)
        return blend.masked_fill(ruled_out, -torch.inf)

    def probabilities(self, features: Features) -> Tensor:
        """The scores are probabilities."""
        return self.scores(features).double()

    def virtual_similarities(self, g: Tensor) -> Tensor:
        """Return, for each class, its similarity to the virtual prototypes an image is most similar to."""
        virtual = self.virtual[:, None]
        cosines = similarity(g, virtual)
        kept = cosines.topk(min(self.settings.nearest_virtual, len(virtual)), dim=1)
        cosines = torch.zeros_like(cosines).scatter(1, kept.indices, kept.values)
        return cosines @ similarity(self.prototypes, virtual).T
