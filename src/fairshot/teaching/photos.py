"""From the photos and drawings people have to the pictures an embedder was trained on."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.images import as_pictures
from fairshot.benchmarks.pictures import Bytes, Pictures

THUMBNAIL_SIDE = 96
INK = 64  # grey level from which a pixel belongs to a drawing
FREE_MARGIN = 0.04  # of the side, around a drawing brought to size


@dataclass(frozen=True)
class Preparation:
    """What an embedder expects of its pictures."""

    channels: int
    short_side: int  # pixels; larger photos are shrunk to it
    drawings: bool  # white ink on black, filling the frame

    def pictures(self, images: Sequence[Any]) -> Pictures:
        """Take photos as paths, arrays or PIL images, upright and as large as needed."""
        return Pictures.from_list([self.picture(image) for image in as_pictures(images, self.channels)])

    def picture(self, image: Bytes) -> Bytes:
        """Prepare one image (H, W, channels)."""
        if self.drawings:
            return as_drawing(image, self.short_side)
        return Resize(self.short_side, enlarge=False).apply(image)


def as_drawing(image: Bytes, side: int) -> Bytes:
    """Turn a drawing into white ink on black and, unless it has the right size already, fill the frame.

    Paper is where the border is: a drawing with a bright border is dark ink on light paper.
    """
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    if np.median(border) > 127:
        image = 255 - image
    if image.shape[:2] == (side, side):
        return image
    rows, columns = (np.flatnonzero((image >= INK).any(axis=(axis, 2))) for axis in (1, 0))
    if not len(rows):
        return np.zeros((side, side, image.shape[2]), np.uint8)
    ink = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    longest = max(ink.shape[:2])
    frame = round(longest / (1 - 2 * FREE_MARGIN)) + 1
    square = np.zeros((frame, frame, image.shape[2]), np.uint8)
    top, left = (frame - ink.shape[0]) // 2, (frame - ink.shape[1]) // 2
    square[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return Resize(side, square=True).apply(square)


def fingerprint(picture: Bytes) -> bytes:
    """Return the SHA-256 of the pixels: two files that look the same to the embedder are one photo."""
    return hashlib.sha256(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes()).digest()


def thumbnail(picture: Bytes) -> bytes:
    """Return a small PNG of a drawing, or a small JPEG of a photo."""
    image = _image(picture)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    file = io.BytesIO()
    if image.mode == "L":
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=80)
    return file.getvalue()


def _image(picture: Bytes) -> Image.Image:
    return Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
