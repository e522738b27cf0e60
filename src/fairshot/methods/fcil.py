"""FCIL: embedding infomax in the base session, then prototypes refined by structure infomax."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, normalize

from fairshot.classifiers.similarity import similarity
from fairshot.methods.finetuning import minimise
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import CosineObjective, CosineSettings, PrototypeMethod
from fairshot.models.embedder import Embedder, Features


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


class EmbeddingInfomax(CosineObjective):
    """Cosine cross-entropy minus the mutual information between the last two levels of the network.

    What an image gives before the last stage is contrasted with the features g of another view of all images
    of the batch. Each process contrasts its own images.
    """

    settings: FCILSettings

    def __init__(self, embedder: Embedder, classes: int, settings: FCILSettings) -> None:
        super().__init__(embedder, classes, settings)
        self.stages = [tuple(embedder.stages())]  # in a list: their weights are registered by the embedder
        self.low = nn.Linear(self._low_channels(), settings.projection)
        self.high = nn.Linear(embedder.width, settings.projection)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the cross-entropy minus, weighted, the mutual information."""
        del noise
        maps, g = self.levels(torch.cat(views))
        loss = self.cross_entropy(g, labels.repeat(len(views)))
        low, high = self.low(maps.mean((2, 3))).chunk(len(views)), self.high(g).chunk(len(views))
        bounds = [info_nce(low[v], high[v - 1], self.settings.temperature) for v in range(len(views))]
        return loss - self.settings.embedding_weight * torch.stack(bounds).mean()

    def levels(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the last stage, and the features g."""
        *below, last = self.stages[0]
        maps = self.embedder.normalised(images)
        for stage in below:
            maps = stage(maps)
        return maps, last(maps)

    @torch.no_grad()
    def _low_channels(self) -> int:
        self.embedder.eval()
        images = torch.zeros(1, self.embedder.channels, 16, 16, device=self.embedder.device)
        return self.levels(images)[0].shape[1]


def info_nce(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Lower bound of the mutual information of corresponding rows, without the constant log N."""
    logits = normalize(one, dim=1) @ normalize(other, dim=1).T / temperature
    labels = torch.arange(len(one), device=one.device)
    return -(cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


class FCIL(PrototypeMethod[FCILSettings]):
    """Few-shot continual infomax learning.

    The base session also maximises a bound on the mutual information between levels of the network, which
    keeps features useful for other classes. A session refines the prototypes of its classes so that the
    shots tell as much as possible about their class, while the relations to known classes are kept; older
    prototypes stay.
    """

    name = "fcil"
    Settings = FCILSettings
    card = MethodCard(
        "infomax between levels of the network, then prototypes refined with their relations kept",
        stores="mean feature, prototype",
        title="FCIL",
        paper="Gu et al., ICCV",
        year=2023,
        grid={"method.learning_rate": (0.001, 0.01, 0.1), "method.structure_weight": (0.3, 1.0)},
    )
    decision_settings = frozenset({"information_weight", "structure_weight", "steps", "learning_rate"})
    buffers = (*PrototypeMethod.buffers, "refined")
    only_means = False  # fine-tuning weighs all shots alike
    refined: Tensor  # (C, V, d)

    def objective(self) -> EmbeddingInfomax:
        return EmbeddingInfomax(self.embedder, self.base_classes, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        super().init_classifiers(features, labels)
        self.refined = self.prototypes.clone()

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Refine the prototypes of new classes; those of known classes move as far as their means do."""
        means, counts = self.extended(features, labels)
        known = self.seen_classes
        moved = self.refined + (means[:known] - self.prototypes)
        new = labels >= known
        refined = self.refine(means[known:, 0], moved[:, 0], features["g"][new, 0], labels[new])
        self.prototypes, self.counts, self.refined = means, counts, torch.cat([moved, refined[:, None]])

    def similarities(self, features: Features) -> Tensor:
        return similarity(features["g"], self.refined)

    def refine(self, means: Tensor, known: Tensor, shots: Tensor, labels: Tensor) -> Tensor:
        """Return the prototypes of new classes (C, d), which begin as their means."""
        if not len(means):
            return means
        chosen = self.settings
        known, shots = known.clone(), normalize(shots.clone(), dim=1)
        origin = normalize(means, dim=1)
        refined = nn.Parameter(origin.clone())

        def loss() -> Tensor:
            logits = chosen.scale * shots @ normalize(torch.cat([known, refined]), dim=1).T
            information = mutual_information(logits.softmax(1))
            change = relation_change(refined, origin, known, chosen.scale)
            classification = cross_entropy(logits, labels)
            return classification - chosen.information_weight * information + chosen.structure_weight * change

        minimise(loss, [{"params": refined, "lr": chosen.learning_rate}], chosen.steps)
        lengths: Tensor = means.norm(dim=1, keepdim=True)
        return normalize(refined.detach(), dim=1) * lengths


def mutual_information(probabilities: Tensor) -> Tensor:
    """Return the mutual information of images and predicted classes, from probabilities (N, C).

    It is the entropy of the mean prediction minus the mean entropy of a prediction: high when predictions
    are certain and differ from image to image.
    """
    of_mean: Tensor = torch.special.entr(probabilities.mean(0)).sum()
    mean: Tensor = torch.special.entr(probabilities).sum(1).mean()
    return of_mean - mean


def relation_change(moved: Tensor, origin: Tensor, known: Tensor, scale: float) -> Tensor:
    """Return the mean divergence between the relations of classes to known ones before and after a move.

    The relation of a class is a softmax of its scaled cosines with the known prototypes (K, d).
    """
    known = normalize(known, dim=1)
    before, after = (scale * normalize(p, dim=1) @ known.T for p in (origin, moved))
    return kl_div(after.log_softmax(1), before.softmax(1), reduction="batchmean")
