"""NC-FSCIL: every class to come has its vertex of a simplex assigned before the first is learnt."""

from __future__ import annotations

import copy
from typing import Self, cast

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.errors import UserError
from fairshot.methods.finetuning import descend
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.mixing import BetaWeights
from fairshot.methods.projector_method import ProjectorMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.settings import Share
from fairshot.training.loop import Objective


class NCFSCILSettings(MethodSettings):
    """The neck, blends of two images in the base session, and fine-tuning of the neck in later ones."""

    views: int = Field(2, ge=1, description="Random views of each picture in a step.")
    width: int = Field(512, ge=2, description="Width of the neck's output, in which the simplex lies.")
    loss_weight: float = Field(10.0, gt=0, description="Weight of the dot-regression loss.")
    mixing: float = Field(0.8, gt=0, description="Shape of the Beta distribution of mix-up weights.")
    mixed_share: Share = Field(
        0.4, description="Share of the images of the base session that are mixed with another."
    )
    cut_share: Share = Field(
        0.4, description="Share of them that have a box cut out and filled from another."
    )
    steps: int = Field(100, ge=1, description="Steps of fine-tuning in a session.")
    learning_rate: float = Field(0.25, gt=0, description="Learning rate of fine-tuning.")
    gradient_norm: float | None = Field(
        None, gt=0, description="Longer gradients of fine-tuning are shortened to this norm; null: never."
    )
    blending: float = Field(
        0.5, gt=0, description="Shape of the Beta distribution of the weights of blended outputs."
    )
    blended_share: Share = Field(0.0, description="Share of the steps of fine-tuning that blend outputs.")

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mixed_share + self.cut_share > 1:
            raise ValueError(
                "no image is mixed and cut, so that mixed_share and cut_share are at most 1 together, got "
                f"{self.mixed_share} and {self.cut_share}"
            )
        return self


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


def balanced_mean(losses: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over classes of the mean loss of each, whatever the number of its samples."""
    counts = torch.bincount(labels)
    return (losses / counts[labels]).sum() / (counts > 0).sum()


def blended_loss(outputs: Tensor, classes: Tensor, vertices: Tensor, share: float, order: Tensor) -> Tensor:
    """Return the loss of outputs of length 1, each blended with another, of which it keeps a share.

    A blend is drawn to both its vertices by their shares; with a share of 1 the outputs stay as they are.
    """
    blends, partners = share * outputs + (1 - share) * outputs[order], classes[order]
    own, other = (
        balanced_mean(dot_regression(blends, vertices[labels]), labels) for labels in (classes, partners)
    )
    return share * own + (1 - share) * other


class DotRegression(Objective):
    """Draws images, and blends of two, to the vertices of their classes."""

    neighbours, noise = 1, 4
    vertices: Tensor

    def __init__(self, embedder: Embedder, vertices: Tensor, settings: NCFSCILSettings) -> None:
        super().__init__()
        self.embedder, self.settings, self.views = embedder, settings, settings.views
        self.beta = BetaWeights(settings.mixing)
        self.register_buffer("vertices", vertices.clone())

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over views; a blend is drawn to both its vertices, by their shares."""
        own = len(labels) - self.neighbours
        shares = self.shares(noise[:own], views[0].shape[-1])
        lam, pixels = shares.mean((1, 2)), shares[:, None].to(views[0])
        images = [pixels * view[:own] + (1 - pixels) * view[1 : own + 1] for view in views]
        _, outputs = self.embedder(torch.cat(images))
        one, other = (
            dot_regression(outputs, self.vertices[rows].repeat(len(views), 1))
            for rows in (labels[:own], labels[1 : own + 1])
        )
        share = lam.repeat(len(views))
        return self.settings.loss_weight * (share * one + (1 - share) * other).mean()

    def shares(self, noise: Tensor, size: int) -> Tensor:
        """Return how much of each pixel an image keeps to itself (N, size, size).

        The same share everywhere in a mix-up; all or nothing where a box is cut out, whose area is
        uniform and which may reach over the edge; all of it in the images that are left alone.
        """
        weight, choice, *centre = noise.unbind(1)
        mixed = self.beta(weight)[:, None, None].expand(-1, size, size)
        half = (1 - weight).sqrt() / 2
        places = (torch.arange(size, device=noise.device) + 0.5) / size
        down, across = ((places - at[:, None]).abs() < half[:, None] for at in centre)
        cut = 1 - (down[:, :, None] & across[:, None]).to(noise)
        until_mixed = self.settings.mixed_share
        until_cut = until_mixed + self.settings.cut_share
        choice = choice[:, None, None]
        return torch.where(choice < until_mixed, mixed, torch.where(choice < until_cut, cut, 1.0))


class NCFSCIL(ProjectorMethod[NCFSCILSettings]):
    """Neural-collapse inspired alignment of features and classifier.

    The classifier is a simplex equiangular tight frame with a vertex for every class there will be; it
    never changes, and the features are drawn to it. A session fine-tunes a neck behind the frozen
    backbone on the shots and on one mean feature of every known class, all classes with the same weight, in
    most steps on blends of the neck's outputs. The nearest vertex answers.
    Needs to know in advance: the number of classes to come. Stores: one mean feature and one vertex a
    class. Costs at test time: one pass, and fine-tuning in every session.
    """

    name = "nc_fscil"
    Settings = NCFSCILSettings
    card = MethodCard(
        "a fixed simplex with a vertex for every class to come; fine-tunes a neck towards it",
        stores="one mean feature a class, the vertices",
        knows_future=True,
    )
    decision_settings = frozenset({"steps", "learning_rate", "gradient_norm", "blending", "blended_share"})
    buffers = (*ProjectorMethod.buffers, "vertices")
    fixed_buffers = ("vertices",)
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
        """Return dot regression with blends of two images."""
        return DotRegression(self.embedder, self.vertices, self.settings)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Keep the mean feature of each base class."""
        super().init_classifiers(features, labels)
        self.vertices = self.vertices.to(self.prototypes)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the neck on shots and mean features, and keep the means of the new classes."""
        means, counts = self.extended(features, labels)
        if len(means) > self.total_classes:
            raise UserError(
                f"{len(means)} classes, but room was kept for {self.total_classes}: the method must be told "
                "the number of classes to come before its base session"
            )
        old = means[: self.seen_classes, 0]
        samples = torch.cat([features["g"][:, 0], old]).clone()
        classes = torch.cat([labels, torch.arange(len(old), device=labels.device)])
        self.embedder.follow_with(self.tuned(samples, classes), self.settings.width)
        self.prototypes, self.counts = means, counts

    def tuned(self, samples: Tensor, classes: Tensor) -> nn.Module:
        """Return a copy of the neck, drawn further to the vertices of the classes of some features g.

        What is blended is drawn alike in every run, so that a session learnt again is the same.
        """
        neck, chosen = copy.deepcopy(self.readout).requires_grad_(True), self.settings
        vertices, rng = self.vertices.clone(), np.random.default_rng(self.seen_classes)

        def loss() -> Tensor:
            share = rng.beta(chosen.blending, chosen.blending) if rng.random() < chosen.blended_share else 1.0
            order = torch.from_numpy(rng.permutation(len(samples))).to(samples.device)
            outputs = normalize(neck(samples), dim=1)
            return chosen.loss_weight * blended_loss(outputs, classes, vertices, share, order)

        descend([(neck.parameters(), chosen.learning_rate)], loss, chosen.steps, chosen.gradient_norm)
        return neck

    def targets(self) -> Tensor:
        """Return the vertex of each class seen."""
        return self.vertices[: self.seen_classes]
