"""SSS: Stimulation, Separately dual-feature classification, Self-optimizing classifiers."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from scipy.stats import beta
from torch import Tensor

from fairshot.classifiers.calibration import calibrate, calibrate_labelled, degrees
from fairshot.classifiers.dual import (
    anomaly_detection,
    integrated_features,
    integrated_similarities,
    separately,
)
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.similarity import similarity
from fairshot.methods.method import Facts, Method, MethodSettings, split_known
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.heads import CosineHead, cosine_cross_entropy
from fairshot.settings import ShareRange
from fairshot.training.loop import Objective


class SSSSettings(MethodSettings):
    """The components of the paper, each of which can be switched off, and their strengths."""

    # Stimulation (section 3.1)
    intra: bool = True  # vertical flips as a second component of each mixture
    inter: bool = True  # fusions of two classes as surplus mixtures
    fusions_per_image: int = Field(1, ge=1)
    lam: ShareRange = (0.4, 0.6)  # of the fusion weight
    lam_distribution: Literal["uniform", "beta"] = "uniform"  # beta: Beta(20, 20) clamped to the range
    fused_weight: float = Field(1.0, gt=0)  # of fused images in the loss
    scale: float = Field(16.0, gt=0)
    margin: float = Field(0.0, ge=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    # Separately dual-feature classification (section 3.2)
    sr: bool = True
    sr_width: int = Field(2048, ge=1)
    sr_batch_norm: bool = False
    way: Literal["separately", "transferable_only", "specific_only", "pre", "post", "anomaly_detection"] = (
        "separately"  # how the two kinds of features decide; the others are those of tables 3 and 11
    )
    # Self-optimizing classifiers (section 3.3)
    resistance: bool = True
    gamma: float = Field(0.2, ge=0)
    calibration: bool = False  # uses unlabelled test images: with it the setting is transductive
    alpha_base: float = Field(0.1, ge=0, le=1)
    alpha_novel: float = Field(0.6, ge=0, le=1)
    threshold: float = Field(0.8, ge=-1, le=1)  # r of eq. 10
    at_most: int = Field(40, ge=1)  # R of eq. 10


def surplus_labels(a: Tensor, b: Tensor, classes: int) -> Tensor:
    """Return the mixture of each unordered pair of different base classes: C .. C + C(C-1)/2 - 1."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return classes + low * (2 * classes - low - 1) // 2 + (high - low - 1)


def mixtures(classes: int, inter: bool) -> int:
    """Count the mixtures the head holds: the base classes and, with fusion, every pair of them."""
    return classes + (classes * (classes - 1) // 2 if inter else 0)


class Stimulation(Objective):
    """Mapping ability stimulation: map fused and flipped images to surplus mixtures of two components."""

    views = 2
    quantiles: Tensor  # of Beta(20, 20), to turn uniform noise into it

    def __init__(self, embedder: Embedder, classes: int, settings: SSSSettings) -> None:
        super().__init__()
        self.embedder, self.classes, self.settings = embedder, classes, settings
        self.components = 2 if settings.intra else 1
        self.halo = self.noise = settings.fusions_per_image if settings.inter else 0
        steps = (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
        quantiles = torch.from_numpy(beta.ppf(steps.numpy(), 20, 20)).float()
        self.register_buffer("quantiles", quantiles, persistent=False)
        self.head = CosineHead(self.components * mixtures(classes, settings.inter), embedder.width_tilde)

    def forward(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> Tensor:
        """Return the mean over plain and fused images, plain and flipped, of both views."""
        images, targets, weights = self.fuse(views, labels, noise)
        rows = self.components * targets
        if self.settings.intra:  # flip and fusion commute: fuse first, flip once
            images, rows = torch.cat([images, images.flip(2)]), torch.cat([rows, rows + 1])
            weights = weights.repeat(2)
        _, features = self.embedder(images)
        chosen = self.settings
        losses = cosine_cross_entropy(
            self.head(features), rows, chosen.scale, chosen.margin, chosen.label_smoothing
        )
        return (weights * losses).mean()

    def fuse(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Blend each image with its next neighbours of the batch (eq. 5); return images, mixtures, weights.

        The batch is shuffled, so a neighbour is a random partner. Pair and lambda are the same for both
        views. A neighbour of the same class makes no surplus class: its weight is 0.
        """
        own = len(labels) - self.halo
        images, targets = [view[:own] for view in views], [labels[:own]] * len(views)
        weights = [torch.ones_like(labels[:own], dtype=views[0].dtype)] * len(views)
        for k in range(self.halo):
            partner = slice(k + 1, own + k + 1)
            lam = self.fusion_weight(noise[:own, k])[:, None, None, None]
            different = labels[:own] != labels[partner]
            fused = surplus_labels(labels[:own], labels[partner], self.classes)
            for view in views:
                images.append(lam * view[:own] + (1 - lam) * view[partner])
                targets.append(torch.where(different, fused, 0))
                weights.append(different * self.settings.fused_weight)
        return torch.cat(images), torch.cat(targets), torch.cat(weights)

    def fusion_weight(self, noise: Tensor) -> Tensor:
        """Turn uniform noise into lambda."""
        low, high = self.settings.lam
        if self.settings.lam_distribution == "uniform":
            return low + (high - low) * noise
        return self.quantiles[(noise * len(self.quantiles)).long()].clamp(low, high)


class SSS(Method[SSSSettings]):
    """The paper's method with prototype classifiers."""

    name = "sss"
    Settings = SSSSettings
    facts = Facts(
        "surplus classes, two kinds of features decided separately, self-optimizing classifiers", passes=2
    )
    decision_settings = frozenset(
        {"way", "resistance", "gamma", "calibration", "alpha_base", "alpha_novel", "threshold", "at_most"}
    )
    state = ("prototypes", "prototypes_tilde", "delta", "counts")
    prototypes: Tensor  # P of h, (C, V, d)
    prototypes_tilde: Tensor  # P~ of h~, (C, V, d~)
    delta: Tensor  # directions of the novel classes met so far, for each base class (B, V, d~)
    counts: Tensor  # (C,) labelled pictures behind each prototype

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Put the SR module behind the backbone; look at flipped pictures too if they are a component."""
        chosen = self.settings
        self.flips = (False, True) if chosen.intra else (False,)
        return Embedder(model, channels, chosen.sr_width if chosen.sr else None, chosen.sr_batch_norm)

    def objective(self) -> Stimulation:
        """Return mapping ability stimulation."""
        return Stimulation(self.embedder, self.base_classes, self.settings)

    def start(self, features: Features, labels: Tensor) -> None:
        """Make h and h~ of the base classes."""
        base = range(self.base_classes)
        self.prototypes = prototypes(features["g"], labels, base)
        self.prototypes_tilde = prototypes(features["g_tilde"], labels, base)
        self.delta = torch.zeros_like(self.prototypes_tilde)
        self.counts = labels.bincount(minlength=self.base_classes)

    def extend(self, features: Features, labels: Tensor) -> None:
        """Add new classes to h and h~ and to Delta; labelled pictures of known classes calibrate them."""
        known, fresh = split_known(labels, self.seen_classes)
        g, g_tilde = features["g"], features["g_tilde"]
        P, counts = calibrate_labelled(self.prototypes, self.counts, g[known], labels[known])
        P_tilde, _ = calibrate_labelled(self.prototypes_tilde, self.counts, g_tilde[known], labels[known])
        delta = self.delta
        if fresh:
            novel_tilde = prototypes(g_tilde, labels, fresh)
            delta = accumulate(delta, P_tilde[: self.base_classes], novel_tilde)
            P, P_tilde = torch.cat([P, prototypes(g, labels, fresh)]), torch.cat([P_tilde, novel_tilde])
            counts = torch.cat([counts, labels.bincount()[fresh.start :]])
        # Assigned together and last: whatever fails above, nothing is learnt by half.
        self.prototypes, self.prototypes_tilde, self.delta, self.counts = P, P_tilde, delta, counts

    def adapt(self, features: Features) -> None:
        """Calibrate h with unlabelled pictures (eq. 9 and 10)."""
        chosen = self.settings
        alpha = degrees(self.seen_classes, self.base_classes, chosen.alpha_base, chosen.alpha_novel)
        self.prototypes = calibrate(
            self.prototypes, features["g"], alpha, chosen.threshold, chosen.at_most
        ).prototypes

    @property
    def transductive(self) -> bool:
        """Calibration looks at unlabelled test images."""
        return self.settings.calibration

    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosines of the look that decides (Algorithm 1): g, or g~ where g sees a base class."""
        P_tilde = self.resisting_prototypes()
        first = similarity(features["g"], self.prototypes)
        second = similarity(features["g_tilde"], P_tilde)
        if novel_only:
            first[:, : self.base_classes] = second[:, : self.base_classes] = -torch.inf
        match self.settings.way:
            case "separately":
                return separately(first, second, self.base_classes)
            case "transferable_only":
                return first
            case "specific_only":
                return second
            case "post":
                return integrated_similarities(first, second)
            case "anomaly_detection":
                return anomaly_detection(first, second, self.base_classes)
            case "pre":
                joined = integrated_features(features["g"], features["g_tilde"])
                scores = similarity(joined, integrated_features(self.prototypes, P_tilde))
                return torch.where(first > -torch.inf, scores, first)

    def resisting_prototypes(self) -> Tensor:
        """Return P~ with the base classes moved for this inference (eq. 7); what is stored stays."""
        if not self.settings.resistance:
            return self.prototypes_tilde
        base = self.prototypes_tilde[: self.base_classes]
        novel = self.prototypes_tilde[self.base_classes :]
        return torch.cat([resist(base, self.delta, self.settings.gamma), novel])

    @property
    def seen_classes(self) -> int:
        """How many classes h knows."""
        return len(self.prototypes)
