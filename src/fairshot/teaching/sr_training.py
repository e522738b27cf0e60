"""SR trained behind a frozen backbone, on the features of base images alone: seconds instead of minutes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.classifiers.dual import DualClassifier
from fairshot.methods.mixing import mixtures, surplus_labels
from fairshot.models.embedder import Features
from fairshot.models.heads import SR, CosineHead, cosine_cross_entropy
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.base_classifier import PhotoSpace, StoreSettings, photo_classifier

MOST_FUSED = 60  # base classes; beyond, the pairs of them would be too many surplus classes
SR_WIDTH = 512  # half a million weights for a few hundred images; the paper has 2048 for 30,000
BATCH, LEARNING_RATE, SCALE, LAM = 64, 1e-3, 16.0, (0.4, 0.6)  # scale and lambda (eq. 5) as SSS has them
FEWEST_CLASSES = 4  # two play the unknown ones
SEED = 0


@dataclass(frozen=True)
class BaseFeatures:
    """Features g (N, V, d) of base images, for training and held out."""

    g: Tensor
    labels: Tensor
    held_out: Tensor
    held_out_labels: Tensor
    classes: int

    def of_classes(self, chosen: Sequence[int]) -> BaseFeatures:
        """Return some of the classes, numbered anew."""
        number = torch.full((self.classes,), -1)
        number[list(chosen)] = torch.arange(len(chosen))
        some, asked = number[self.labels] >= 0, number[self.held_out_labels] >= 0
        return BaseFeatures(
            self.g[some],
            number[self.labels[some]],
            self.held_out[asked],
            number[self.held_out_labels[asked]],
            len(chosen),
        )


@dataclass(frozen=True)
class Comparison:
    """What SR does to held-out images, on a half of the base classes; the other half is unknown."""

    accuracy: tuple[float, float]  # without SR, with it
    auroc: tuple[float, float]  # of known against unknown images

    @property
    def pays(self) -> bool:
        """Whether SR makes one better and none worse."""
        gains = [after - before for before, after in (self.accuracy, self.auroc)]
        return min(gains) >= 0 and max(gains) > 0

    def sentence(self) -> str:
        """Tell it in one line."""
        (a, b), (c, d) = self.accuracy, self.auroc
        kept = "SR is kept" if self.pays else "SR is left out, and g alone decides"
        return (
            f"{kept}: held-out photos of half of the base classes are answered right {a:.1%} without it and "
            f"{b:.1%} with it, and told from those of the other half with AUROC {c:.2f} and {d:.2f}"
        )


def train_sr(
    g: Tensor, labels: Tensor, classes: int, epochs: int, deadline: float, reporter: Reporter = SILENT
) -> SR | None:
    """Train SR on features (N, V, d), fused ones among them (eq. 5).

    None if a time of the monotonic clock has come before it is trained: half of a training is worth nothing.
    """
    fused = classes <= MOST_FUSED
    x, y = g.flatten(0, 1), labels.repeat_interleave(g.shape[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        sr, head = SR(x.shape[1], SR_WIDTH), CosineHead(mixtures(classes, fused), SR_WIDTH)
        optimiser = torch.optim.Adam([*sr.parameters(), *head.parameters()], LEARNING_RATE)
        with torch.enable_grad(), reporter.track("training SR", epochs) as advance:
            for _ in range(epochs):
                if time.monotonic() > deadline:
                    return None
                for rows in torch.split(torch.randperm(len(x)), BATCH):
                    loss = _loss(sr, head, x[rows], y[rows], classes, fused)
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                advance()
    return sr.eval().requires_grad_(False)


def _loss(sr: SR, head: CosineHead, x: Tensor, y: Tensor, classes: int, fused: bool) -> Tensor:
    """Return the loss of features and of those fused with a neighbour of another class."""
    if fused:
        partner, other = x.roll(1, 0), y.roll(1, 0)
        lam = torch.empty(len(x), 1).uniform_(*LAM)
        different = y != other
        x = torch.cat([x, (lam * x + (1 - lam) * partner)[different]])
        y = torch.cat([y, surplus_labels(y, other, classes)[different]])
    return cosine_cross_entropy(head(sr(x)), y, SCALE).mean()


def dual_classifier(space: PhotoSpace, sr: SR, g: Tensor, labels: Tensor, classes: int) -> DualClassifier:
    """Return the classifier by g in the space and, where it answers a base class, by g~."""
    settings = StoreSettings(bounded=True, whitening=True, power=space.whitening.power)
    return DualClassifier.fit(settings, with_sr(sr, g), labels, classes, space.whitening)


def with_sr(sr: SR, g: Tensor) -> Features:
    """Return g and g~ of features (N, V, d)."""
    return {"g": g, "g_tilde": sr(g)}


def compare(
    space: PhotoSpace, base: BaseFeatures, epochs: int, deadline: float, reporter: Reporter = SILENT
) -> Comparison | None:
    """Train SR on every second base class, and ask with and without it about held-out images of all.

    None if there is no time to train it.
    """
    from sklearn.metrics import roc_auc_score

    known, foreign = (base.of_classes(range(first, base.classes, 2)) for first in (0, 1))
    sr = train_sr(known.g, known.labels, known.classes, epochs, deadline, reporter)
    if sr is None:
        return None
    plain = photo_classifier(space, {"g": known.g, "g_tilde": known.g}, known.labels, known.classes)
    dual = dual_classifier(space, sr, known.g, known.labels, known.classes)
    asked = torch.cat([known.held_out, foreign.held_out])
    is_known = torch.arange(len(asked)) < len(known.held_out)
    accuracy, auroc = [], []
    for classifier, features in ((plain, {"g": asked, "g_tilde": asked}), (dual, with_sr(sr, asked))):
        best, answer = classifier.decide(features).scores.max(1)
        right = answer[is_known] == known.held_out_labels
        accuracy.append(float(right.double().mean()))
        auroc.append(float(roc_auc_score(is_known.numpy(), best.numpy())))
    return Comparison((accuracy[0], accuracy[1]), (auroc[0], auroc[1]))
