"""The views of an image that classifiers compare: as it is and flipped, with or without mirror images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Transform = Callable[[Tensor], Tensor]  # of images (N, C, H, W), to a view of them


@dataclass(frozen=True)
class FlipViews:
    """V views of each image: the image, and with `flip` its vertical flip as a second component.

    With `mirror` the features of each view are averaged with those of its mirror image.
    """

    flip: bool = False
    mirror: bool = False

    @property
    def count(self) -> int:
        """V, the number of views that classifiers compare."""
        return 1 + self.flip

    @property
    def passes(self) -> int:
        """How often the network sees an image."""
        return self.count * (1 + self.mirror)

    @property
    def transforms(self) -> list[Transform]:
        """One transform of the images per pass: the views, then their mirror images."""
        views = [unchanged, flipped][: self.count]
        return [*views, *(mirrored(view) for view in views)] if self.mirror else list(views)

    def combine(self, features: Tensor) -> Tensor:
        """Turn the features of all passes (N, passes, d) into those of the views (N, V, d)."""
        if not self.mirror:
            return features
        view, mirror = features.chunk(2, dim=1)
        return (view + mirror) / 2


def unchanged(images: Tensor) -> Tensor:
    """Return the images as they are."""
    return images


def flipped(images: Tensor) -> Tensor:
    """Flip the images vertically."""
    return images.flip(2)


def mirrored(view: Transform) -> Transform:
    """Return the transform that takes the same view of the mirror image."""
    return lambda images: view(images.flip(3))
