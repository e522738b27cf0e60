"""What users give an estimator, checked: images, labels of any kind, weights of images."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.images import as_pictures
from fairshot.benchmarks.pictures import Floats, Ints, Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.errors import BadImage, BadInput
from fairshot.labels import as_labels

LARGEST = 64  # pixels a side of the network's input, unless `size` asks for more


@dataclass(frozen=True)
class Targets:
    """The labels and the weights of the images that count; those of weight 0 are left out."""

    labels: list[Hashable]
    weights: Floats | None  # None: all count alike
    counting: Ints | None  # which of the images given they belong to; None: all
    given: int

    @classmethod
    def of(cls, y: Any, sample_weight: Any = None, classes: Any = None) -> Targets:
        """Check labels, which must be among `classes` if these are given, and weights."""
        labels = as_labels(y)
        if classes is not None:
            known = set(as_labels(classes))
            if foreign := [label for label in dict.fromkeys(labels) if label not in known]:
                raise BadInput(
                    "y", f"it holds {foreign[0]!r}, which is not among the classes that were named"
                )
        weights = _as_weights(sample_weight, len(labels))
        if weights is None or weights.all():
            return cls(labels, _unless_equal(weights), None, len(labels))
        counting = np.flatnonzero(weights)
        left = [labels[i] for i in counting]
        return cls(left, _unless_equal(weights[counting]), counting, len(labels))

    def labelled(self, pictures: Pictures, classes: Sequence[Hashable]) -> LabelledPictures:
        """Return the pictures that count with class ids, which number the classes in their order."""
        ids = {label: index for index, label in enumerate(classes)}
        numbered = np.array([ids[label] for label in self.labels], dtype=np.int64)
        return LabelledPictures(pictures, numbered, self.weights)

    def pictures(self, X: Any, channels: int, size: int) -> Pictures:
        """Read the images that count."""
        pictures = read_pictures(X, channels, size)
        check_lengths(len(pictures), self.given)
        return pictures if self.counting is None else pictures.take(self.counting)


def read_pictures(X: Any, channels: int, size: int) -> Pictures:
    """Read images; large ones are shrunk, averaging, to twice the network's input: enough for close views."""
    return as_pictures(X, channels, Resize(2 * size, enlarge=False).apply)


def without_lists(X: Any) -> Any:
    """Replace images that are nested lists of whole numbers by arrays; leave all others as they are."""
    if not isinstance(X, list | tuple):
        return X
    return [_array(item, at) if isinstance(item, list | tuple) else item for at, item in enumerate(X)]


def _array(image: Any, index: int) -> Any:
    try:
        array = np.asarray(image)
    except ValueError as problem:  # rows of different lengths
        raise BadImage(f"X[{index}]", f"these lists are no image ({problem})") from None
    whole = array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255
    return array.astype(np.uint8) if whole else array


def check_lengths(images: int, labels: int) -> None:
    """Refuse images and labels of different numbers."""
    if images != labels:
        raise BadInput("y", f"it holds {labels} labels, but X holds {images} images; give one per image")


def _as_weights(sample_weight: Any, count: int) -> Floats | None:
    """Return the weights of images, if there are any."""
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("sample_weight", f"expected numbers, got {sample_weight!r}") from None
    if weights.ndim == 0:
        weights = np.full(count, float(weights))
    if weights.shape != (count,):
        raise BadInput(
            "sample_weight", f"its shape is {weights.shape}; give one weight per image: ({count},)"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInput("sample_weight", "expected finite numbers from 0 on")
    if count and not weights.any():
        raise BadInput("sample_weight", "it is zero for all images; at least one must count")
    return weights


def _unless_equal(weights: Floats | None) -> Floats | None:
    """Return None in place of weights that are all 1."""
    return None if weights is None or (weights == 1).all() else weights


def usual_side(pictures: Pictures) -> int:
    """Return the median short side, within what a small network can use."""
    return int(np.clip(np.median(pictures.sizes.min(axis=1)), 16, LARGEST))


def statistics(pictures: Pictures) -> dict[str, list[float]]:
    """Return mean and standard deviation of each channel, as the network's input is normalised."""
    levels = np.arange(256) / 255
    pixels = pictures.compact().buffer.reshape(-1, pictures.channels)
    shares = [np.bincount(channel, minlength=256) / len(pixels) for channel in pixels.T]
    mean = [float(share @ levels) for share in shares]
    variance = [float(share @ (levels - m) ** 2) for share, m in zip(shares, mean, strict=True)]
    return {"mean": mean, "std": [max(v**0.5, 0.05) for v in variance]}
