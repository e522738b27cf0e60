"""C-FSCIL: wide quasi-orthogonal prototypes, kept apart by nudging them and realigning one layer."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from fairshot.methods.episodic import Episodic, EpisodicObjective, EpisodicSettings
from fairshot.methods.finetuning import descend
from fairshot.methods.method import MethodCard
from fairshot.methods.projector_method import ProjectorMethod
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
    """A soft absolute value of the cosine: near 0 for what is almost orthogonal, near 1 for what is alike."""
    return torch.sigmoid(sharpness * (cosines - 0.5)) + torch.sigmoid(sharpness * (-cosines - 0.5))


class SharpEpisodes(EpisodicObjective):
    """Episodes in which queries find their class among prototypes by the sharpened cosine."""

    def __init__(self, embedder: Embedder, episode: Episode, sharpness: float) -> None:
        super().__init__(embedder, episode)
        self.sharpness = sharpness

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over queries of minus the logarithm of the share of the true class."""
        del labels, noise
        _, features = self.embedder(views[0])
        support, queries = self.split(features)
        prototypes = normalize(support.mean(2), dim=-1)
        queries = normalize(queries, dim=-1)
        similar = soft_abs(torch.einsum("ewqd,ecd->ewqc", queries, prototypes).float(), self.sharpness)
        shares = similar / similar.sum(-1, keepdim=True)
        return -shares.diagonal(dim1=1, dim2=3).log().mean()


class CFSCIL(Episodic[CFSCILSettings], ProjectorMethod[CFSCILSettings]):
    """Constrained few-shot class-incremental learning.

    A base session by cross-entropy, then episodes with a sharpened cosine that makes images of different
    classes nearly orthogonal behind one fully connected layer. A mean activation of every class is kept;
    each session makes prototypes of them (mode `mean`), or finds targets that are farther apart, their
    signs (`bipolar`) or nudged copies (`nudged`), and realigns the layer so that the activations meet
    them. The cosine answers.
    Needs to know in advance: nothing. Stores: one mean activation a class. Costs at test time: one pass,
    and, except in mode `mean`, some steps of realigning in every session.
    """

    name = "c_fscil"
    Settings = CFSCILSettings
    card = MethodCard(
        "episodes with a sharpened cosine; nudges prototypes apart and realigns one layer",
        stores="one mean activation a class",
    )
    decision_settings = frozenset(
        {"mode", "repulsion", "nudging_steps", "nudging_rate", "realigning_steps", "realigning_rate"}
    )
    modules = ("embedder", "realigned")
    realigned: nn.Module  # the layer that answers; in the embedder it stays as it was trained

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the fully connected layer behind the backbone."""
        embedder, width = super().build_embedder(model, channels), self.settings.width
        layer = nn.Linear(embedder.width, width)
        embedder.follow_with(layer, width)
        self.realigned = copy.deepcopy(layer)
        return embedder

    @property
    def readout(self) -> nn.Module:
        """The layer as the last session realigned it."""
        return self.realigned

    def rehearsal(self, episode: Episode) -> SharpEpisodes:
        """Return episodes with the sharpened cosine."""
        return SharpEpisodes(self.embedder, episode, self.settings.sharpness)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Keep the mean activation of each base class, and realign the layer as it was trained."""
        super().init_classifiers(features, labels)
        self.realigned = self.realign(super().readout, self.prototypes[:, 0])

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Keep the mean activations of the new classes too, and realign."""
        means, counts = self.extended(features, labels)
        self.realigned = self.realign(self.realigned, means[:, 0])
        self.prototypes, self.counts = means, counts

    def realign(self, layer: nn.Module, activations: Tensor) -> nn.Module:
        """Return a layer changed so that it maps activations (C, d) to targets that are farther apart."""
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
        descend(
            [(layer.parameters(), chosen.realigning_rate)],
            lambda: -cosine_similarity(layer(activations), targets, dim=1).mean(),
            chosen.realigning_steps,
        )
        return layer


def nudged(prototypes: Tensor, repulsion: float, steps: int, learning_rate: float) -> Tensor:
    """Return prototypes (C, d) moved apart, though not far from where they were."""
    origin = normalize(prototypes, dim=1)
    moved = nn.Parameter(origin.clone())
    descend(
        [([moved], learning_rate)],
        lambda: crowding(moved, repulsion) - cosine_similarity(moved, origin, dim=1).mean(),
        steps,
    )
    return moved.detach()


def crowding(prototypes: Tensor, repulsion: float) -> Tensor:
    """Mean, over pairs of prototypes (C, d), of a penalty that grows with the size of their cosine."""
    cosines = normalize(prototypes, dim=1) @ normalize(prototypes, dim=1).T
    penalties = torch.exp(repulsion * cosines) + torch.exp(-repulsion * cosines) - 2
    classes = len(prototypes)
    return penalties.triu(diagonal=1).sum() / max(1, classes * (classes - 1) // 2)
