"""NC-FSCIL: every class to come has its vertex of a simplex assigned before the first is learnt."""

from __future__ import annotations

import copy
from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.errors import UserError
from fairshot.methods.finetuning import descend
from fairshot.methods.method import Facts, MethodSettings
from fairshot.methods.mixing import BetaWeights
from fairshot.methods.readout import ReadoutSkeleton
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.settings import Share
from fairshot.training.loop import Objective


class NCFSCILSettings(MethodSettings):
    """The neck, mix-up in the base session, and fine-tuning of the neck in later ones."""

    views: int = Field(2, ge=1)
    width: int = Field(512, ge=2)  # of the neck's output, in which the simplex lies
    mixing: float = Field(0.8, gt=0)  # shape of the Beta distribution of mix-up weights
    mixed_share: Share = 0.4  # of the images of the base session that are mixed
    steps: int = Field(100, ge=1)  # of fine-tuning in a session
    learning_rate: float = Field(0.25, gt=0)  # of fine-tuning


def simplex(classes: int, width: int) -> Tensor:
    """Return the vertices of a simplex equiangular tight frame, randomly turned: (classes, width).

    All have length 1, and any two the cosine -1 / (classes - 1), the least that so many can have.
    """
    turned: Tensor = nn.init.orthogonal_(torch.empty(width, classes))
    centred = torch.eye(classes) - 1 / classes
    return normalize((turned @ centred).T, dim=1)


class Neck(nn.Module):
    """A perceptron of two hidden layers beside a linear way through."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        hidden = 2 * inputs
        self.body = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.LayerNorm(hidden),
            nn.LeakyReLU(0.1),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.LeakyReLU(0.1),
            nn.Linear(hidden, width, bias=False),
        )
        self.through = nn.Linear(inputs, width, bias=False)

    def forward(self, g: Tensor) -> Tensor:
        """Map features g to the space of the simplex."""
        return cast(Tensor, self.body(g) + self.through(g))


def dot_regression(outputs: Tensor, vertices: Tensor) -> Tensor:
    """Return, for each output, half the squared distance of its cosine with its vertex from 1 (N,)."""
    cosines = (normalize(outputs, dim=-1) * vertices).sum(-1)
    return (cosines - 1).square() / 2


class DotRegression(Objective):
    """Draws images, and mix-ups of two, to the vertices of their classes."""

    halo, noise = 1, 2
    vertices: Tensor

    def __init__(self, embedder: Embedder, vertices: Tensor, settings: NCFSCILSettings) -> None:
        super().__init__()
        self.embedder, self.settings, self.views = embedder, settings, settings.views
        self.beta = BetaWeights(settings.mixing)
        self.register_buffer("vertices", vertices.clone())

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over views; a mix-up is drawn to both its vertices, by their shares."""
        own = len(labels) - self.halo
        lam = torch.where(noise[:own, 1] < self.settings.mixed_share, self.beta(noise[:own, 0]), 1.0)
        weight = lam[:, None, None, None].to(views[0])
        images = [weight * view[:own] + (1 - weight) * view[1 : own + 1] for view in views]
        _, outputs = self.embedder(torch.cat(images))
        one, other = (
            dot_regression(outputs, self.vertices[rows].repeat(len(views), 1))
            for rows in (labels[:own], labels[1 : own + 1])
        )
        share = lam.repeat(len(views))
        return (share * one + (1 - share) * other).mean()


class NCFSCIL(ReadoutSkeleton[NCFSCILSettings]):
    """Neural-collapse inspired alignment of features and classifier.

    The classifier is a simplex equiangular tight frame with a vertex for every class there will be; it
    never changes, and the features are drawn to it. A session fine-tunes a neck behind the frozen
    backbone on the shots and on one mean feature of every known class. The nearest vertex answers.
    Needs to know in advance: the number of classes to come. Stores: one mean feature a class. Costs at
    test time: one pass, and fine-tuning in every session.
    """

    name = "nc_fscil"
    Settings = NCFSCILSettings
    facts = Facts(
        "a fixed simplex with a vertex for every class to come; fine-tunes a neck towards it",
        stores="one mean feature a class, the vertices",
        knows_future=True,
    )
    decision_settings = frozenset({"steps", "learning_rate"})
    state = (*ReadoutSkeleton.state, "vertices")
    drawn = ("vertices",)
    vertices: Tensor  # (total classes, width)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the neck behind the backbone, and draw the simplex."""
        width = self.settings.width
        if self.total_classes > width:
            raise UserError(
                f"method.width: {width} was given, but a simplex of {self.total_classes} classes needs at "
                f"least as many dimensions; set it to {self.total_classes} or more"
            )
        embedder = super().build_embedder(model, channels)
        embedder.follow_with(Neck(embedder.width, width), width)
        self.vertices = simplex(self.total_classes, width)
        return embedder

    def objective(self) -> DotRegression:
        """Return dot regression with mix-up."""
        return DotRegression(self.embedder, self.vertices, self.settings)

    def start(self, features: Features, labels: Tensor) -> None:
        """Keep the mean feature of each base class."""
        super().start(features, labels)
        self.vertices = self.vertices.to(self.prototypes)

    def extend(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the neck on shots and mean features, and keep the means of the new classes."""
        means, counts = self.extended(features, labels)
        if len(means) > self.total_classes:
            raise UserError(
                f"{len(means)} classes, but room was kept for {self.total_classes}: the method must be told "
                "the number of classes to come before its base session"
            )
        old = means[: self.seen_classes, 0]
        samples = torch.cat([features["g"][:, 0], old]).clone()
        targets = torch.cat([self.vertices[labels], self.vertices[: len(old)]]).clone()
        neck = copy.deepcopy(self.readout).requires_grad_(True)
        chosen = self.settings
        descend(
            [(neck.parameters(), chosen.learning_rate)],
            lambda: dot_regression(neck(samples), targets).mean(),
            chosen.steps,
        )
        self.embedder.follow_with(neck, chosen.width)
        self.prototypes, self.counts = means, counts

    def targets(self) -> Tensor:
        """Return the vertex of each class seen."""
        return self.vertices[: self.seen_classes]
