"""BiDist: a branch that goes on learning beside the base branch, held back by two teachers."""

from __future__ import annotations

import copy

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, kl_div, normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.classifiers.similarity import similarity
from fairshot.methods.finetuning import descend
from fairshot.methods.method import MethodCard, MethodSettings
from fairshot.methods.prototype_method import CosineSettings
from fairshot.methods.replay_method import ReplayMethod, nearest_to_mean
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

    The network of the base session stays as a base branch. A current branch, the same network with
    another last stage, is fine-tuned with its rows in every session on the shots and one kept picture of
    each old class, with two teachers: the base branch, which knows what images in general look like, and
    the current branch of the session before, which knows the classes since. A class leans on the base
    teacher as far as it resembles base classes. A small net judges how novel an image looks and mixes
    the cosines of both branches accordingly.
    Needs to know in advance: nothing. Stores: a picture, a mean feature and a row a class, and the
    second branch. Costs at test time: two passes, one a branch, and fine-tuning in every session.
    """

    name = "bidist"
    Settings = BiDistSettings
    card = MethodCard(
        "fine-tunes a second branch with two teachers; a small net mixes both branches",
        stores="one picture, one mean feature and one row a class; a second network",
        keeps_exemplars=True,
    )
    decision_settings = frozenset({"steps", "learning_rate", "distillation", "mixer_learning_rate"})
    modules = ("embedder", "current", "mixer")
    buffers = (*ReplayMethod.buffers, "rows")
    current: Embedder
    mixer: nn.Sequential
    rows: Tensor  # of the current branch (C, d)

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """One pass a branch."""
        del settings
        return 2

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the base branch, and with it the current one and the mixing net."""
        embedder, width = super().build_embedder(model, channels), self.settings.mixer_width
        self.current = copy.deepcopy(embedder)
        self.mixer = nn.Sequential(nn.Linear(embedder.width, width), nn.ReLU(), nn.Linear(width, 1))
        return embedder

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train the base branch; the current branch begins as that one is."""
        super().train_base(base, trainer)
        self.current = copy.deepcopy(self.embedder)
        self.mixer.to(self.embedder.device)

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Let the rows begin as the mean features of base classes."""
        super().init_classifiers(features, labels)
        self.rows = self.prototypes[:, 0].clone()

    def choose(self, features: Features, labels: Tensor) -> Tensor:
        """Keep the picture nearest the mean of each class."""
        return nearest_to_mean(features["g"], labels, self.prototypes, 1)

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return g of the base branch and g~ of the current one."""
        base, current = super().embed(pictures, reporter), self.current.embed(pictures, reporter=reporter)
        return {"g": base["g"], "g_tilde": current["g"]}

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fine-tune the current branch, its rows and the mixing net; keep one picture of each new class."""
        means, counts = self.extended(features, labels)
        new = range(self.seen_classes, len(means))
        images = torch.cat([features["images"], self.exemplars])
        targets = torch.cat([labels, self.exemplar_labels])
        tuning = FineTuning(self, images, targets, means)
        tuning.learn()
        chosen = nearest_to_mean(features["g"], labels, means, 1)
        chosen = chosen[labels[chosen] >= new.start]
        self.current, self.mixer, self.rows = tuning.branch, tuning.mixer, tuning.rows.detach()
        self.prototypes, self.counts = means, counts
        self.exemplars = torch.cat([self.exemplars, features["images"][chosen]])
        self.exemplar_labels = torch.cat([self.exemplar_labels, labels[chosen]])

    @torch.no_grad()
    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosines of both branches, mixed by how novel an image looks."""
        g, current = features["g"], features["g_tilde"]
        novel = self.mixer(normalize(g[:, 0], dim=1)).sigmoid()
        cosines = (1 - novel) * similarity(g, self.prototypes) + novel * similarity(
            current, self.rows[:, None]
        )
        if novel_only:
            cosines[:, : self.base_classes] = -torch.inf
        return torch.as_tensor(cosines)


class FineTuning:
    """Fine-tuning in one session, on copies: whatever fails, the method is as it was."""

    def __init__(self, method: BiDist, images: Tensor, targets: Tensor, means: Tensor) -> None:
        self.settings, self.targets = method.settings, targets
        self.base_classes, self.old_classes = method.base_classes, method.seen_classes
        self.branch = copy.deepcopy(method.current).eval()
        self.mixer = copy.deepcopy(method.mixer)
        *below, last = self.branch.stages()
        self.last = last.requires_grad_(True)
        with torch.no_grad():  # the stages below are frozen: what they give is computed once
            self.maps = nn.Sequential(*below)(self.branch.normalised(images / 255))
            now = last(self.maps)
            base = method.embedder.stages()[-1](self.maps)
            self.looks = normalize(base, dim=1)
            self.by_base = self._logits(base, means[: self.base_classes, 0])
            self.by_previous = self._logits(now, method.rows)
            fresh = [now[targets == c].mean(0) for c in range(self.old_classes, len(means))]
            self.trust = trust_in_base(means[:, 0], self.base_classes, method.settings.scale)[targets]
        self.rows = nn.Parameter(torch.stack([*method.rows, *fresh]))

    def learn(self) -> None:
        """Descend."""
        chosen = self.settings
        descend(
            [
                ([*self.last.parameters(), self.rows], chosen.learning_rate),
                (self.mixer.parameters(), chosen.mixer_learning_rate),
            ],
            self.loss,
            chosen.steps,
        )

    def loss(self) -> Tensor:
        """Recognise the classes, stay near the teachers, and tell novel images from base ones."""
        logits = self._logits(self.last(self.maps), self.rows)
        novel = (self.targets >= self.base_classes).to(logits.dtype)
        judged = binary_cross_entropy_with_logits(self.mixer(self.looks)[:, 0], novel)
        return (
            cross_entropy(logits, self.targets) + self.settings.distillation * self.held_back(logits) + judged
        )

    def held_back(self, logits: Tensor) -> Tensor:
        """Distil from both teachers, each image from either as far as its class trusts it."""
        base = _divergence(logits[:, : self.base_classes], self.by_base)
        previous = _divergence(logits[:, : self.old_classes], self.by_previous)
        return (self.trust * base + (1 - self.trust) * previous).mean()

    def _logits(self, g: Tensor, rows: Tensor) -> Tensor:
        return self.settings.scale * normalize(g, dim=1) @ normalize(rows, dim=1).T


def trust_in_base(means: Tensor, base_classes: int, scale: float) -> Tensor:
    """Return how far each class (C,) leans on the base teacher: base classes wholly.

    New ones lean on it by how much of their similarity to all classes goes to base classes.
    """
    unit = normalize(means, dim=1)
    cosines = (scale * unit @ unit.T).fill_diagonal_(-torch.inf)
    trust = cosines.softmax(1)[:, :base_classes].sum(1)
    trust[:base_classes] = 1
    return trust


def _divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return, for each sample, how far the student's answer is from the teacher's."""
    return kl_div(student.log_softmax(1), teacher.softmax(1), reduction="none").sum(1)
