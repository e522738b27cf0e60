"""The views of an image that classifiers compare, each averaged over mirror images and crops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from torch import Tensor
from torch.nn.functional import interpolate

CORNERS = list(product((False, True), repeat=2))  # at the bottom, at the right
Transform = Callable[[Tensor], Tensor]  # of images (N, C, H, W), to a view of them


@dataclass(frozen=True)
class FlipViews:
    """V views of each image: the image, and with `flip` its vertical flip as a second component.

    The features of each view are averaged over its appearances: the whole image; with `corner_crops`, a share
    of its side, also four crops of this side, one at each corner; and with `mirror` the mirror images of all.
    """

    flip: bool = False
    mirror: bool = False
    corner_crops: float | None = None

    @property
    def count(self) -> int:
        """V, the number of views that classifiers compare."""
        return 1 + self.flip

    @property
    def passes(self) -> int:
        """How often the network sees an image."""
        return self.count * len(self.appearances)

    @property
    def appearances(self) -> list[Transform]:
        """The transforms of the images whose features are averaged."""
        appearances: list[Transform] = [unchanged]
        if self.corner_crops is not None:
            appearances += [corner_crop(self.corner_crops, bottom, right) for bottom, right in CORNERS]
        if self.mirror:
            appearances += [applied_after(mirrored, appearance) for appearance in appearances]
        return appearances

    @property
    def transforms(self) -> list[Transform]:
        """One transform of the images per pass: all views of one appearance, then those of the next."""
        return self.of_each_appearance([unchanged, flipped] if self.flip else [unchanged])

    def of_each_appearance(self, views: Sequence[Transform]) -> list[Transform]:
        """Return the transforms of all passes if these are the views."""
        return [applied_after(appearance, view) for appearance in self.appearances for view in views]

    def combine(self, features: Tensor) -> Tensor:
        """Turn the features of all passes (N, passes, d) into those of the views (N, V, d)."""
        n, passes, width = features.shape
        count = len(self.appearances)
        return features.view(n, count, passes // count, width).mean(1)


def unchanged(images: Tensor) -> Tensor:
    """Return the images as they are."""
    return images


def flipped(images: Tensor) -> Tensor:
    """Flip the images vertically."""
    return images.flip(2)


def mirrored(images: Tensor) -> Tensor:
    """Flip the images horizontally."""
    return images.flip(3)


def corner_crop(share: float, bottom: bool, right: bool) -> Transform:
    """Return the transform that enlarges one corner of the images, this share of a side, to their size."""

    def cropped(images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        rows, columns = round(share * height), round(share * width)
        top, left = bottom * (height - rows), right * (width - columns)
        crop = images[:, :, top : top + rows, left : left + columns]
        return interpolate(crop, (height, width), mode="bilinear", align_corners=False)

    return cropped


def applied_after(first: Transform, second: Transform) -> Transform:
    """Return the transform that applies one after the other."""
    return lambda images: second(first(images))
