"""NC-FSCIL: a fixed simplex ETF has one vertex for every class, future ones included."""

from __future__ import annotations

import copy
from typing import Self, cast

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.errors import BadSetting
from fairshot.methods.finetuning import minimise
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.mixing import BetaWeights
from fairshot.methods.prototype_method import ProjectorMethod
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


def simplex_etf(classes: int, width: int) -> Tensor:
    """Return the vertices of a simplex equiangular tight frame, randomly rotated: (classes, width).

    All have length 1, and any two the cosine -1 / (classes - 1), the smallest possible for so many.
    """
    rotation: Tensor = nn.init.orthogonal_(torch.empty(width, classes))
    centred = torch.eye(classes) - 1 / classes
    return normalize((rotation @ centred).T.contiguous(), dim=1)  # as it is loaded: to the same bits


class Neck(nn.Module):
    """An MLP with two hidden layers and a linear shortcut."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        hidden, layers = 2 * inputs, []
        for size in (inputs, hidden):
            layers += [nn.Linear(size, hidden), nn.LayerNorm(hidden), nn.LeakyReLU(0.1)]
        self.body = nn.Sequential(*layers, nn.Linear(hidden, width, bias=False))
        self.shortcut = nn.Linear(inputs, width, bias=False)

    def forward(self, g: Tensor) -> Tensor:
        """Map features g to the space of the simplex."""
        return cast(Tensor, self.body(g) + self.shortcut(g))


def dot_regression(outputs: Tensor, vertices: Tensor) -> Tensor:
    """Return (cosine - 1)^2 / 2 of each output with its vertex (N,)."""
    cosines = (normalize(outputs, dim=-1) * vertices).sum(-1)
    return (cosines - 1).square() / 2


def balanced_mean(losses: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over classes of the mean loss of each, whatever the number of its samples."""
    counts = torch.bincount(labels)
    return (losses / counts[labels]).sum() / (counts > 0).sum()


def mixup_loss(outputs: Tensor, labels: Tensor, vertices: Tensor, lam: float, order: Tensor) -> Tensor:
    """Return the loss of outputs of length 1, each mixed with another one; with lam = 1 none is mixed."""
    mixed = lam * outputs + (1 - lam) * outputs[order]
    own, other = (
        balanced_mean(dot_regression(mixed, vertices[each]), each) for each in (labels, labels[order])
    )
    return lam * own + (1 - lam) * other


class DotRegression(Objective):
    """Dot regression of images, some of them mixed by mix-up or CutMix, to the vertices of their classes."""

    neighbours, noise = 1, 4
    vertices: Tensor

    def __init__(self, embedder: Embedder, vertices: Tensor, settings: NCFSCILSettings) -> None:
        super().__init__()
        self.embedder, self.settings, self.views = embedder, settings, settings.views
        self.beta = BetaWeights(settings.mixing)
        self.register_buffer("vertices", vertices.clone())

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over views; a mixed image has both vertices as targets, weighted by its parts."""
        own = len(labels) - self.neighbours
        weights = self.pixel_weights(noise[:own], views[0].shape[-1])
        lam, pixels = weights.mean((1, 2)).repeat(len(views)), weights[:, None].to(views[0])
        images = [pixels * view[:own] + (1 - pixels) * view[1 : own + 1] for view in views]
        _, outputs = self.embedder(torch.cat(images))
        one, other = (
            dot_regression(outputs, self.vertices[each].repeat(len(views), 1))
            for each in (labels[:own], labels[1 : own + 1])
        )
        return self.settings.loss_weight * (lam * one + (1 - lam) * other).mean()

    def pixel_weights(self, noise: Tensor, size: int) -> Tensor:
        """Return the weight of each image, against its neighbour of the batch, in each pixel (N, size, size).

        It is constant in a mix-up; in CutMix it is 0 inside a box, whose area is uniform and which may reach
        over the edge, and 1 outside; it is 1 in images that are not mixed.
        """
        weight, choice, *centre = noise.unbind(1)
        mixed = self.beta(weight)[:, None, None].expand(-1, size, size)
        half = (1 - weight).sqrt() / 2
        pixels = (torch.arange(size, device=noise.device) + 0.5) / size
        row, column = ((pixels - at[:, None]).abs() < half[:, None] for at in centre)
        cut = 1 - (row[:, :, None] & column[:, None]).to(noise)
        choice, mixed_share = choice[:, None, None], self.settings.mixed_share
        unmixed = torch.where(choice < mixed_share + self.settings.cut_share, cut, 1.0)
        return torch.where(choice < mixed_share, mixed, unmixed)


class NCFSCIL(ProjectorMethod[NCFSCILSettings]):
    """Neural-collapse inspired alignment of features and classifier.

    The classifier is a simplex equiangular tight frame with a vertex for every class there will be; it
    never changes, and the features are trained to align with it. A session fine-tunes a neck behind the
    frozen backbone on the shots and on one mean feature of every known class, all classes with the same
    weight, in most steps on mix-ups of the neck's outputs. The nearest vertex gives the class.
    """

    name = "nc_fscil"
    Settings = NCFSCILSettings
    card = MethodCard(
        "a fixed simplex with a vertex for every future class; fine-tunes a neck towards it",
        stores="mean feature, vertex",
        knows_future=True,
        title="NC-FSCIL",
        paper="Yang et al., ICLR",
        year=2023,
        grid={"method.steps": (50, 100, 200), "method.learning_rate": (0.1, 0.25)},
    )
    decision_settings = frozenset({"steps", "learning_rate", "gradient_norm", "blending", "blended_share"})
    buffers = (*ProjectorMethod.buffers, "vertices")
    fixed_buffers = ("vertices",)
    only_means = False  # fine-tuning weighs all shots alike
    vertices: Tensor  # (total classes, width)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the neck behind the backbone, and draw the simplex."""
        width = self.settings.width
        if self.total_classes > width:
            raise BadSetting(
                "method.width",
                width,
                f"a simplex of {self.total_classes} classes needs at least as many dimensions; set it to "
                f"{self.total_classes} or more",
            )
        embedder = super().build_embedder(model, channels)
        embedder.follow_with(Neck(embedder.width, width), width)
        self.vertices = simplex_etf(self.total_classes, width)
        return embedder

    def objective(self) -> DotRegression:
        return DotRegression(self.embedder, self.vertices, self.settings)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the neck on shots and mean features, and store the means of the new classes."""
        means, counts = self.extended(features, labels)
        if len(means) > self.total_classes:
            raise BadSetting(
                "total_classes",
                self.total_classes,
                f"there are {len(means)} classes now: the method must know the number of future classes "
                "before its base session",
            )
        old = torch.arange(self.seen_classes, device=labels.device)
        g = torch.cat([features["g"][:, 0], means[old, 0]]).clone()
        embedder = copy.deepcopy(self.embedder)  # a copy of this method may share the present one
        embedder.follow_with(self.tuned(g, torch.cat([labels, old])), self.settings.width)
        self.embedder, self.prototypes, self.counts = embedder, means, counts

    def tuned(self, g: Tensor, labels: Tensor) -> nn.Module:
        """Return a copy of the neck, fine-tuned on features g and their labels.

        The generator of the mix-ups has a fixed seed, so that a session learnt again gives the same neck.
        """
        neck, chosen = copy.deepcopy(self.projector).requires_grad_(True), self.settings
        vertices, rng = self.vertices.clone(), np.random.default_rng(self.seen_classes)

        def loss() -> Tensor:
            lam = rng.beta(chosen.blending, chosen.blending) if rng.random() < chosen.blended_share else 1.0
            order = torch.from_numpy(rng.permutation(len(g))).to(g.device)
            outputs = normalize(neck(g), dim=1)
            return chosen.loss_weight * mixup_loss(outputs, labels, vertices, lam, order)

        groups = [{"params": neck.parameters(), "lr": chosen.learning_rate}]
        minimise(loss, groups, chosen.steps, chosen.gradient_norm)
        return neck

    def targets(self) -> Tensor:
        return self.vertices[: self.seen_classes]
