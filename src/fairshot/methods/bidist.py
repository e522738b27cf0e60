"""BiDist: fine-tunes a second branch, distilled from the base model and from the previous session."""

from __future__ import annotations

import copy

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, kl_div, normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.classifiers.similarity import similarity
from fairshot.methods.finetuning import minimise
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.prototype_method import CosineSettings, nearest_to_mean
from fairshot.methods.replay_method import ReplayMethod
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.progress import SILENT, Reporter
from fairshot.training.loop import Trainer


class BiDistSettings(CosineSettings):
    """Fine-tuning of the current branch, and the net that mixes both."""

    steps: int = Field(100, ge=1, description="Steps of fine-tuning in a session.")
    learning_rate: float = Field(
        0.001, gt=0, description="Learning rate of the last stage and the classifier in fine-tuning."
    )
    distillation: float = Field(1.0, ge=0, description="Weight of the distillation from both teachers.")
    mixer_width: int = Field(64, ge=1, description="Width of the net that mixes both branches.")
    mixer_learning_rate: float = Field(0.5, gt=0, description="Learning rate of that net.")


class BiDist(ReplayMethod[BiDistSettings]):
    """Class-aware bilateral distillation.

    The network of the base session stays as the base branch. The last stage of the current branch and its
    classifier are fine-tuned in every session on the shots and one exemplar of each old class, with two
    teachers: the base branch, which has general features, and the current branch of the previous session,
    which knows the classes since. The more a class resembles base classes, the more the base teacher counts.
    A small net predicts how novel an image is and mixes the cosines of both branches accordingly.
    """

    name = "bidist"
    Settings = BiDistSettings
    card = MethodCard(
        "fine-tunes a second branch with two teachers; a small net mixes both branches",
        stores="mean feature, weight, picture; second network",
        keeps_exemplars=True,
        title="BiDist",
        paper="Zhao et al., CVPR",
        year=2023,
        grid={"method.learning_rate": (0.0003, 0.001, 0.003), "method.distillation": (0.3, 1.0)},
    )
    decision_settings = frozenset({"steps", "learning_rate", "distillation", "mixer_learning_rate"})
    modules = ("embedder", "current", "mixer")
    buffers = (*ReplayMethod.buffers, "classifier")
    current: Embedder
    mixer: nn.Sequential
    classifier: Tensor  # of the current branch (C, d)

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        del settings
        return 2

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the base branch, the current branch and the mixing net."""
        embedder, width = super().build_embedder(model, channels), self.settings.mixer_width
        self.current = copy.deepcopy(embedder)
        self.mixer = nn.Sequential(nn.Linear(embedder.width, width), nn.ReLU(), nn.Linear(width, 1))
        return embedder

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train the base branch; the current branch begins as a copy of it."""
        super().train_base(base, trainer)
        self.current = copy.deepcopy(self.embedder)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        super().init_classifiers(features, labels)
        self.classifier = self.prototypes[:, 0].clone()

    def choose_exemplars(self, features: Features, labels: Tensor) -> Tensor:
        return nearest_to_mean(features["g"], labels, self.prototypes, 1)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return g of the base branch and, as g~, g of the current branch."""
        base, current = super().embed(pictures, reporter), self.current.embed(pictures, reporter=reporter)
        return {"g": base["g"], "g_tilde": current["g"]}

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the current branch, its classifier and the mixing net; keep an exemplar per new class."""
        means, counts = self.extended(features, labels)
        images = torch.cat([features["images"], self.exemplars])
        tuned = FineTuning(self, images, torch.cat([labels, self.exemplar_labels]), means)
        tuned.run()
        kept = nearest_to_mean(features["g"], labels, means, 1)
        kept = kept[labels[kept] >= self.seen_classes]
        self.current, self.mixer, self.classifier = tuned.branch, tuned.mixer, tuned.classifier.detach()
        self.prototypes, self.counts = means, counts
        self.exemplars = torch.cat([self.exemplars, features["images"][kept]])
        self.exemplar_labels = torch.cat([self.exemplar_labels, labels[kept]])

    @torch.no_grad()
    def similarities(self, features: Features) -> Tensor:
        """Return the cosines of both branches, mixed by how novel an image looks."""
        g, current = features["g"], features["g_tilde"]
        novel: Tensor = self.mixer(normalize(g[:, 0], dim=1)).sigmoid()
        by_base, by_current = similarity(g, self.prototypes), similarity(current, self.classifier[:, None])
        return (1 - novel) * by_base + novel * by_current


class FineTuning:
    """The fine-tuning of one session, on copies: if it fails, the method is unchanged."""

    def __init__(self, method: BiDist, images: Tensor, labels: Tensor, means: Tensor) -> None:
        self.settings, self.labels = method.settings, labels
        self.base_classes, self.old_classes = method.base_classes, method.seen_classes
        self.branch = copy.deepcopy(method.current).eval()
        self.mixer = copy.deepcopy(method.mixer)
        *below, last = self.branch.stages()
        self.last = last.requires_grad_(True)
        with torch.no_grad():  # the stages below are frozen: their output is computed once
            self.maps = nn.Sequential(*below)(self.branch.normalised(images / 255))
            current, base = last(self.maps), method.embedder.stages()[-1](self.maps)
            self.mixer_input = normalize(base, dim=1)
            self.base_teacher = self._logits(base, means[: self.base_classes, 0])
            self.previous_teacher = self._logits(current, method.classifier)
            new = [current[labels == c].mean(0) for c in range(self.old_classes, len(means))]
            weights = base_teacher_weights(means[:, 0], self.base_classes, method.settings.scale)
            self.base_weights = weights[labels]
        self.classifier = nn.Parameter(torch.stack([*method.classifier, *new]))

    def run(self) -> None:
        """Train the last stage, the classifier and the mixing net."""
        groups = [
            {"params": [*self.last.parameters(), self.classifier], "lr": self.settings.learning_rate},
            {"params": self.mixer.parameters(), "lr": self.settings.mixer_learning_rate},
        ]
        minimise(self.loss, groups, self.settings.steps)

    def loss(self) -> Tensor:
        """Classify the images, distil from the teachers, and tell novel images from base ones."""
        logits = self._logits(self.last(self.maps), self.classifier)
        novel = (self.labels >= self.base_classes).to(logits.dtype)
        mixing = binary_cross_entropy_with_logits(self.mixer(self.mixer_input)[:, 0], novel)
        classification = cross_entropy(logits, self.labels)
        return classification + self.settings.distillation * self.distillation(logits) + mixing

    def distillation(self, logits: Tensor) -> Tensor:
        """Return the divergence from both teachers, weighted for each image by its class."""
        base = _divergence(logits[:, : self.base_classes], self.base_teacher)
        previous = _divergence(logits[:, : self.old_classes], self.previous_teacher)
        return (self.base_weights * base + (1 - self.base_weights) * previous).mean()

    def _logits(self, g: Tensor, weights: Tensor) -> Tensor:
        return self.settings.scale * normalize(g, dim=1) @ normalize(weights, dim=1).T


def base_teacher_weights(means: Tensor, base_classes: int, scale: float) -> Tensor:
    """Return how much the base teacher counts for each class (C,): 1 for base classes.

    For a new class it is the share of base classes in the softmax of its similarities to all other classes.
    """
    unit = normalize(means, dim=1)
    cosines = (scale * unit @ unit.T).fill_diagonal_(-torch.inf)
    weights = cosines.softmax(1)[:, :base_classes].sum(1)
    weights[:base_classes] = 1
    return weights


def _divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the KL divergence of the student from the teacher, for each sample."""
    return kl_div(student.log_softmax(1), teacher.softmax(1), reduction="none").sum(1)
