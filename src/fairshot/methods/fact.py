"""FACT: room for future classes is kept in the base session, by virtual prototypes that nothing moves."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import MethodCard
from fairshot.methods.mixing import BetaWeights
from fairshot.methods.prototype_method import CosineSettings, PrototypeMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.heads import CosineHead
from fairshot.settings import Share
from fairshot.training.loop import Objective


class FACTSettings(CosineSettings):
    """How strongly room is reserved, and how much virtual prototypes have to say in an answer."""

    weight: float = Field(
        0.01, ge=0, description="Weight of the three losses that reserve room for new classes."
    )
    mixing: float = Field(0.5, gt=0, description="Shape of the Beta distribution of mix-up weights.")
    reserved: int = Field(3, ge=1, description="Virtual classes that each base class may lean towards.")
    virtual_share: Share = Field(
        0.1, description="Weight of the scores through virtual prototypes in an answer."
    )
    looked_through: int = Field(
        40, ge=1, description="Virtual prototypes, the most similar ones, that these scores use."
    )


class ForwardCompatible(Objective):
    """Cosine cross-entropy that also presses images and their mix-ups towards virtual classes."""

    neighbours = noise = 1
    virtual: Tensor  # (M, d), orthogonal and never trained
    allowed: Tensor  # (B, M), virtual classes each base class may lean towards

    def __init__(self, embedder: Embedder, virtual: Tensor, classes: int, settings: FACTSettings) -> None:
        super().__init__()
        self.embedder, self.classes, self.settings = embedder, classes, settings
        self.views = settings.views
        self.head = CosineHead(classes, embedder.width)
        self.beta = BetaWeights(settings.mixing)
        self.register_buffer("virtual", virtual.clone())
        chosen = torch.rand(classes, len(virtual)).argsort(dim=1)[:, : settings.reserved]
        self.register_buffer("allowed", one_hot(chosen, len(virtual)).sum(1).bool())
        self.parts = [tuple(embedder.stages())]  # in a list: their weights are the embedder's

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss on base classes plus, weighted, the three that reserve room."""
        own = len(labels) - self.neighbours
        plain, mixed = self.logits(views, noise[:own, 0]).chunk(2)
        rows = labels[:own].repeat(len(views))
        different = (labels[:own] != labels[1 : own + 1]).repeat(len(views)).to(plain.dtype)
        base = cross_entropy(plain[:, : self.classes], rows)
        reserving = self.lean(plain, rows) + (different * self.place(mixed)).mean()
        return base + self.settings.weight * reserving

    def logits(self, views: list[Tensor], noise: Tensor) -> Tensor:
        """Return logits over base and virtual classes of the images, then of their mix-ups.

        Each image is mixed with its neighbour of the batch after the second stage of the network, with
        the same weight in all views.
        """
        (first, second, *rest), own = self.parts[0], len(noise)
        maps = second(first(self.embedder.normalised(torch.cat(views)))).unflatten(0, (len(views), -1))
        lam = self.beta(noise)[:, None, None, None]
        blended = lam * maps[:, :own] + (1 - lam) * maps[:, 1 : own + 1]
        g = torch.cat([maps[:, :own].flatten(0, 1), blended.flatten(0, 1)])
        for stage in rest:
            g = stage(g)
        virtual = normalize(g, dim=1) @ self.virtual.T
        return self.settings.scale * torch.cat([self.head(g), virtual.to(g.dtype)], dim=1)

    def lean(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Beside its own class, an image should be closest to the best virtual class it may lean towards."""
        others = without(logits, rows)
        target = logits[:, self.classes :].where(self.allowed[rows], -torch.inf).argmax(1) + self.classes
        return cross_entropy(others, target)

    def place(self, logits: Tensor) -> Tensor:
        """A mix-up should be closest to a virtual class, and after that to a base class (N,)."""
        virtual = logits[:, self.classes :].argmax(1) + self.classes
        base = logits[:, : self.classes].argmax(1)
        return cross_entropy(logits, virtual, reduction="none") + cross_entropy(
            without(logits, virtual), base, reduction="none"
        )


def without(logits: Tensor, rows: Tensor) -> Tensor:
    """Rule out one class of each sample."""
    return logits.masked_fill(one_hot(rows, logits.shape[1]).bool(), -torch.inf)


class FACT(PrototypeMethod[FACTSettings]):
    """Forward compatible training.

    As many virtual prototypes as classes are to come, mutually orthogonal and frozen, stand beside the
    trained ones in the base session: images lean towards them after their own class, and mix-ups of two
    classes are placed there, so that base classes leave room. New classes are mean features; an answer
    blends the softmax of cosines with a look through the virtual prototypes.
    Needs to know in advance: the number of classes to come. Stores: one mean feature a class and the
    virtual prototypes. Costs at test time: one pass.
    """

    name = "fact"
    Settings = FACTSettings
    card = MethodCard(
        "virtual prototypes keep room for future classes in the base session",
        stores="one mean feature a class, one virtual prototype a future class",
        knows_future=True,
    )
    decision_settings = frozenset({"virtual_share", "looked_through"})
    buffers = (*PrototypeMethod.buffers, "virtual")
    fixed_buffers = ("virtual",)
    virtual: Tensor  # (M, d)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Draw the virtual prototypes too, one a class to come."""
        embedder = super().build_embedder(model, channels)
        rows = max(1, self.total_classes - self.base_classes)
        self.virtual = normalize(nn.init.orthogonal_(torch.empty(rows, embedder.width)), dim=1)
        return embedder

    def objective(self) -> ForwardCompatible:
        """Return forward compatible training."""
        return ForwardCompatible(self.embedder, self.virtual, self.base_classes, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make the base prototypes where the features lie."""
        super().init_classifiers(features, labels)
        self.virtual = self.virtual.to(self.prototypes)

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Blend what prototypes answer with what they answer when seen through virtual prototypes."""
        chosen, cosines = self.settings, super().scores(features, novel_only)
        ruled_out = cosines == -torch.inf
        through = self.through_virtual(features["g"]).masked_fill(ruled_out, -torch.inf)
        share = chosen.virtual_share
        blend = (1 - share) * (chosen.scale * cosines).softmax(1) + share * through.softmax(1)
        return blend.masked_fill(ruled_out, -torch.inf)

    def through_virtual(self, g: Tensor) -> Tensor:
        """Return, for each class, its similarity to the virtual prototypes an image is most similar to."""
        virtual = self.virtual[:, None]
        look = similarity(g, virtual)
        kept = look.topk(min(self.settings.looked_through, len(virtual)), dim=1)
        look = torch.zeros_like(look).scatter(1, kept.indices, kept.values)
        return look @ similarity(self.prototypes, virtual).T
