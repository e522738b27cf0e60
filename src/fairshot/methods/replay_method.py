"""Base class for methods that keep pictures of old classes (exemplars) and go on training the network."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic

import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods.prototype_method import CosineMethod, CosineT
from fairshot.models.embedder import Features
from fairshot.models.pixels import DevicePictures
from fairshot.progress import SILENT, Reporter


class ReplayMethod(CosineMethod[CosineT], Generic[CosineT]):
    """Keeps a few pictures of the known classes.

    The features that `add_classes` is given have the shots themselves under the key `images`.
    """

    frozen = False
    only_means = False  # fine-tuning weighs all shots alike
    buffers = (*CosineMethod.buffers, "exemplars", "exemplar_labels")
    exemplars: Tensor  # (M, C, size, size) uint8, test views
    exemplar_labels: Tensor  # (M,)

    @abstractmethod
    def choose_exemplars(self, features: Features, labels: Tensor) -> Tensor:
        """Return the indices of the pictures of the base session that are kept."""

    def init_base_classifiers(self, base: LabelledPictures, reporter: Reporter = SILENT) -> None:
        """Make the classifiers, and keep exemplars."""
        features, labels = self.embed(base.pictures, reporter), self._labels(base)
        self.init_classifiers(features, labels)
        kept = base.take(self.choose_exemplars(features, labels).cpu().numpy())
        self.exemplars, self.exemplar_labels = self.images(kept.pictures), self._labels(kept)

    def learn(self, shots: LabelledPictures) -> None:
        """Learn new classes from a few pictures each."""
        features = self.embed(shots.pictures) | {"images": self.images(shots.pictures)}
        self.add_classes(features, self._labels(shots))

    def images(self, pictures: Pictures) -> Tensor:
        """Return the test views of pictures, in bytes."""
        views = self.embedder.test_view(DevicePictures.from_pictures(pictures, self.embedder.device))
        return (255 * views).round().to(torch.uint8)
