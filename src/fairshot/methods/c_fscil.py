"""C-FSCIL: quasi-orthogonal prototypes, obtained by nudging them apart and realigning one layer."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from fairshot.methods.episodic_method import EpisodicMethod, EpisodicObjective, EpisodicSettings
from fairshot.methods.finetuning import minimise
from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import ProjectorMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.training.episodes import Episode


class CFSCILSettings(EpisodicSettings):
    """The embedding, the episodes after the base training, and what sessions do with prototypes."""

    width: int = Field(512, ge=1, description="Width of the fully connected layer behind the backbone.")
    way: int = Field(20, ge=2, description="Classes per episode.")
    queries: int = Field(5, ge=1, description="Query images per class of an episode.")
    sharpness: float = Field(10.0, gt=0, description="Sharpness of the soft absolute value (beta).")
    mode: Literal["mean", "bipolar", "nudged"] = Field(
        "nudged", description="What sessions do with prototypes: the paper's modes 1, 2 and 3."
    )
    repulsion: float = Field(
        4.0, gt=0, description="Steepness of the loss that separates prototypes (alpha)."
    )
    nudging_steps: int = Field(100, ge=1, description="Steps that nudge the prototypes apart.")
    nudging_rate: float = Field(0.05, gt=0, description="Learning rate of these steps.")
    realigning_steps: int = Field(
        50, ge=1, description="Steps that realign the fully connected layer with the nudged prototypes."
    )
    realigning_rate: float = Field(0.01, gt=0, description="Learning rate of these steps.")


def soft_abs(cosines: Tensor, sharpness: float) -> Tensor:
    """Soft absolute value of the cosine: near 0 for quasi-orthogonal vectors, near 1 for similar ones."""
    return torch.sigmoid(sharpness * (cosines - 0.5)) + torch.sigmoid(sharpness * (-cosines - 0.5))


class SharpenedEpisodes(EpisodicObjective):
    """Episodes classified by attention over prototypes with a sharpened cosine."""

    settings: CFSCILSettings

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the queries."""
        del labels, noise
        support, queries = self.split(self.embedder(views[0])[1])
        prototypes, queries = normalize(support.mean(2), dim=-1), normalize(queries, dim=-1)
        cosines = torch.einsum("ewqd,ecd->ewqc", queries, prototypes).float()
        sharpened = soft_abs(cosines, self.settings.sharpness)
        probabilities = sharpened / sharpened.sum(-1, keepdim=True)
        return -probabilities.diagonal(dim1=1, dim2=3).log().mean()


class CFSCIL(EpisodicMethod[CFSCILSettings], ProjectorMethod[CFSCILSettings]):
    """Constrained few-shot class-incremental learning.

    Cosine cross-entropy, then episodes with a sharpened cosine that makes images of different classes
    quasi-orthogonal behind one fully connected layer. The mean activation of every class before that layer
    is stored. Each session uses their projections as prototypes (mode `mean`), or finds targets that are
    farther apart, their signs (`bipolar`) or nudged copies (`nudged`), and realigns the layer to them.
    """

    name = "c_fscil"
    Settings = CFSCILSettings
    card = MethodCard(
        "episodes with a sharpened cosine; nudges prototypes apart and realigns one layer",
        stores="mean activation",
        title="C-FSCIL",
        paper="Hersche et al., CVPR",
        year=2022,
        grid={"method.nudging_rate": (0.01, 0.05, 0.2), "method.realigning_rate": (0.003, 0.01)},
    )
    decision_settings = frozenset(
        {"mode", "repulsion", "nudging_steps", "nudging_rate", "realigning_steps", "realigning_rate"}
    )
    modules = ("embedder", "realigned")
    realigned: nn.Module  # the layer after the last session; the embedder keeps the one of the base session

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the fully connected layer behind the backbone."""
        embedder, width = super().build_embedder(model, channels), self.settings.width
        layer = nn.Linear(embedder.width, width)
        embedder.follow_with(layer, width)
        self.realigned = copy.deepcopy(layer)
        return embedder

    @property
    def projector(self) -> nn.Module:
        """The layer as the last session realigned it."""
        return self.realigned

    def episode_objective(self, episode: Episode) -> SharpenedEpisodes:
        return SharpenedEpisodes(self.embedder, episode, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Store the mean activations of base classes, and realign the layer of the base session."""
        super().init_classifiers(features, labels)
        self.realigned = self.realign(super().projector, self.prototypes[:, 0])

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Store the mean activations of the new classes, and realign the layer."""
        means, counts = self.extended(features, labels)
        self.realigned = self.realign(self.realigned, means[:, 0])
        self.prototypes, self.counts = means, counts

    def realign(self, layer: nn.Module, activations: Tensor) -> nn.Module:
        """Return a copy of the layer, trained to map activations (C, d) to targets that are farther apart."""
        chosen = self.settings
        layer = copy.deepcopy(layer).requires_grad_(True)
        if chosen.mode == "mean":
            return layer
        activations = activations.clone()
        with torch.no_grad():
            means = layer(activations)
        if chosen.mode == "bipolar":
            targets = means.sign()
        else:
            targets = nudged(means, chosen.repulsion, chosen.nudging_steps, chosen.nudging_rate)
        minimise(
            lambda: -cosine_similarity(layer(activations), targets, dim=1).mean(),
            [{"params": layer.parameters(), "lr": chosen.realigning_rate}],
            chosen.realigning_steps,
        )
        return layer


def nudged(prototypes: Tensor, repulsion: float, steps: int, learning_rate: float) -> Tensor:
    """Return prototypes (C, d) moved apart, though not far from where they were."""
    origin = normalize(prototypes, dim=1)
    moved = nn.Parameter(origin.clone())
    minimise(
        lambda: crowding(moved, repulsion) - cosine_similarity(moved, origin, dim=1).mean(),
        [{"params": moved, "lr": learning_rate}],
        steps,
    )
    return moved.detach()


def crowding(prototypes: Tensor, repulsion: float) -> Tensor:
    """Return the mean over pairs of prototypes (C, d) of a penalty that grows with their absolute cosine."""
    cosines = normalize(prototypes, dim=1) @ normalize(prototypes, dim=1).T
    penalties = torch.exp(repulsion * cosines) + torch.exp(-repulsion * cosines) - 2
    pairs = len(prototypes) * (len(prototypes) - 1) // 2
    return penalties.triu(diagonal=1).sum() / max(1, pairs)
