"""FCIL: as much information as possible, between levels of the network and between classes over time."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, normalize

from fairshot.methods.finetuning import descend
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import CosineSettings, PrototypeMethod
from fairshot.models.embedder import Embedder, Features
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.training.loop import Objective


class FCILSettings(CosineSettings):
    """Infomax of the embedding in the base session, and of the structure of classes in later ones."""

    embedding_weight: float = Field(
        0.1, ge=0, description="Weight of the infomax loss of the embedding in the base session."
    )
    temperature: float = Field(0.1, gt=0, description="Temperature of the contrast.")
    projection: int = Field(128, ge=1, description="Width in which levels of the network are compared.")
    information_weight: float = Field(1.0, ge=0, description="Weight of what shots tell about their classes.")
    structure_weight: float = Field(1.0, ge=0, description="Weight of the relations between classes.")
    steps: int = Field(50, ge=1, description="Steps that refine the prototypes of new classes.")
    learning_rate: float = Field(0.01, gt=0, description="Learning rate of these steps.")


class EmbeddingInfomax(Objective):
    """Cosine cross-entropy, and a bound on the information that levels of the network share.

    What an image gives before the last stage should tell which of the images of the batch it is that the
    last stage saw in another view. Several processes contrast each within its own share of the batch.
    """

    def __init__(self, embedder: Embedder, classes: int, settings: FCILSettings) -> None:
        super().__init__()
        self.embedder, self.settings, self.views = embedder, settings, settings.views
        self.parts = [tuple(embedder.stages())]  # in a list: their weights are the embedder's
        self.head = CosineHead(classes, embedder.width)
        self.low = nn.Linear(self._channels_below(), settings.projection)
        self.high = nn.Linear(embedder.width, settings.projection)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return cross-entropy minus, weighted, the information between levels."""
        del noise
        maps, g = self.levels(torch.cat(views))
        rows = labels.repeat(len(views))
        loss = cosine_cross_entropy(self.head(g), rows, self.settings.scale).mean()
        low, high = self.low(maps.mean((2, 3))), self.high(g)
        other = high.reshape(len(views), -1, high.shape[1]).roll(1, 0).reshape(high.shape)
        shared = torch.stack(
            [
                information_bound(a, b, self.settings.temperature)
                for a, b in zip(low.chunk(len(views)), other.chunk(len(views)), strict=True)
            ]
        )
        return loss - self.settings.embedding_weight * shared.mean()

    def levels(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return what reaches the last stage, and what it makes of it."""
        *below, last = self.parts[0]
        maps = self.embedder.normalised(images)
        for stage in below:
            maps = stage(maps)
        return maps, last(maps)

    @torch.no_grad()
    def _channels_below(self) -> int:
        self.embedder.eval()
        images = torch.zeros(1, self.embedder.channels, 16, 16, device=self.embedder.device)
        return self.levels(images)[0].shape[1]


def information_bound(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Bound from below the information that corresponding rows share, up to the constant log N (InfoNCE)."""
    logits = normalize(one, dim=1) @ normalize(other, dim=1).T / temperature
    rows = torch.arange(len(one), device=one.device)
    return -(cross_entropy(logits, rows) + cross_entropy(logits.T, rows)) / 2


class FCIL(PrototypeMethod[FCILSettings]):
    """Few-shot continual infomax learning.

    The base session also maximises a bound on the information that different levels of the network share
    about an image, which keeps features useful for other classes. A session then refines the prototypes
    of its classes so that the shots tell as much as possible about their class while the relations to
    the classes known before are kept; everything older stays.
    Needs to know in advance: nothing. Stores: one mean feature and one refined prototype a class. Costs at
    test time: one pass.
    """

    name = "fcil"
    Settings = FCILSettings
    card = MethodCard(
        "infomax between levels of the network, then prototypes refined with their relations kept",
        stores="one mean feature and one prototype a class",
    )
    decision_settings = frozenset({"information_weight", "structure_weight", "steps", "learning_rate"})
    buffers = (*PrototypeMethod.buffers, "refined")
    refined: Tensor  # (C, V, d)

    def objective(self) -> EmbeddingInfomax:
        """Return cross-entropy with infomax of the embedding."""
        return EmbeddingInfomax(self.embedder, self.base_classes, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Take the means of base classes as they are."""
        super().init_classifiers(features, labels)
        self.refined = self.prototypes.clone()

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Refine the prototypes of new classes; more images of known ones move theirs with their means."""
        means, counts = self.extended(features, labels)
        known = self.seen_classes
        moved = self.refined + (means[:known] - self.prototypes)
        new = labels >= known
        refined = self.refine(means[known:, 0], moved[:, 0], features["g"][new, 0], labels[new])
        self.prototypes, self.counts, self.refined = means, counts, torch.cat([moved, refined[:, None]])

    def answering_prototypes(self) -> Tensor:
        """Return the refined prototypes."""
        return self.refined

    def refine(self, fresh: Tensor, known: Tensor, shots: Tensor, labels: Tensor) -> Tensor:
        """Return the prototypes of new classes (C, d), moved from their means."""
        if not len(fresh):
            return fresh
        chosen = self.settings
        known, shots = known.clone(), normalize(shots.clone(), dim=1)
        origin = normalize(fresh, dim=1)
        moved = nn.Parameter(origin.clone())

        def loss() -> Tensor:
            logits = chosen.scale * shots @ normalize(torch.cat([known, moved]), dim=1).T
            told = information_of(logits.softmax(1))
            kept = relation_change(moved, origin, known, chosen.scale)
            recognised = cross_entropy(logits, labels)
            return recognised - chosen.information_weight * told + chosen.structure_weight * kept

        descend([([moved], chosen.learning_rate)], loss, chosen.steps)
        lengths: Tensor = fresh.norm(dim=1, keepdim=True)
        return normalize(moved.detach(), dim=1) * lengths


def information_of(answers: Tensor) -> Tensor:
    """Return the information that images share with their answers (N, C), from their probabilities.

    It is the entropy of the average answer less the average entropy of an answer: high when answers are
    sure and differ from image to image.
    """
    overall: Tensor = torch.special.entr(answers.mean(0)).sum()
    each: Tensor = torch.special.entr(answers).sum(1).mean()
    return overall - each


def relation_change(moved: Tensor, origin: Tensor, known: Tensor, scale: float) -> Tensor:
    """Return how far the relations of classes to known ones have moved: the mean divergence between them.

    The relation of a class is a softmax of its scaled cosines with the known prototypes (K, d).
    """
    known = normalize(known, dim=1)
    before, after = (scale * normalize(p, dim=1) @ known.T for p in (origin, moved))
    return kl_div(after.log_softmax(1), before.softmax(1), reduction="batchmean")
