"""Pictures that stand for their class, and a skeleton that keeps some of them to go on training with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods.prototype_method import CosineMethod, PlainT
from fairshot.models.embedder import Features
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter


def nearest_to_mean(features: Tensor, labels: Tensor, means: Tensor, count: int) -> Tensor:
    """Return which images (N,) are among the `count` of their class most similar to its mean (C, V, d)."""
    cosine = (normalize(features, dim=-1) * normalize(means, dim=-1)[labels]).sum(-1).mean(-1)
    by_similarity = cosine.argsort(descending=True, stable=True)
    order = by_similarity[labels[by_similarity].argsort(stable=True)]
    grouped = labels[order]
    rank = torch.arange(len(order), device=order.device) - torch.searchsorted(grouped, grouped)
    return order[rank < count].sort().values


class ReplayMethod(CosineMethod[PlainT], Generic[PlainT]):
    """Keeps a few pictures of the classes it knows, and goes on training the network in every session.

    `add_classes` finds the test views of the shots beside their features, under the key `images`.
    """

    frozen = False
    buffers = (*CosineMethod.buffers, "exemplars", "exemplar_labels")
    exemplars: Tensor  # (M, C, size, size) uint8, test views
    exemplar_labels: Tensor  # (M,)

    @abstractmethod
    def choose(self, features: Features, labels: Tensor) -> Tensor:
        """Return which pictures of the base session are kept."""

    def init_base_classifiers(self, base: LabelledPictures, reporter: Reporter = SILENT) -> None:
        """Make the classifiers, and keep exemplars."""
        features, labels = self.embed(base.pictures, reporter), self._labels(base)
        self.init_classifiers(features, labels)
        kept = base.take(self.choose(features, labels).cpu().numpy())
        self.exemplars, self.exemplar_labels = self.images(kept.pictures), self._labels(kept)

    def learn(self, shots: LabelledPictures) -> None:
        """Learn new classes from a few pictures each."""
        features = self.embed(shots.pictures) | {"images": self.images(shots.pictures)}
        self.add_classes(features, self._labels(shots))

    def images(self, pictures: Pictures) -> Tensor:
        """Return the test views of pictures as they are kept, in bytes."""
        views = self.embedder.test_view(DevicePictures.from_pictures(pictures, self.embedder.device))
        return (255 * views).round().to(torch.uint8)
