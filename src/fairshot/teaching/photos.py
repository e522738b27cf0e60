"""From the photos and drawings people have to the pictures an embedder was trained on."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.images import as_pictures, read_image
from fairshot.benchmarks.pictures import Bytes, Pictures
from fairshot.errors import BadImage
from fairshot.teaching.errors import UnreadablePhotos

THUMBNAIL_SIDE = 96
ABOUT = 1.5  # times the short side, below which the embedder's own resampling is good enough
ASPECT = 4  # longer over shorter side of a prepared photo
INK_SIDE = 4096  # pixels of the longer side of a drawing before it is made square
INK = 64  # grey level from which a pixel belongs to a drawing


@dataclass(frozen=True)
class ReadPhotos:
    """Prepared pictures of the photos that could be read, and why the other files could not."""

    photos: list[Any]  # as they were given
    pictures: Pictures
    unreadable: dict[str, str]  # by path


@dataclass(frozen=True)
class Preparation:
    """What an embedder expects of its pictures."""

    channels: int
    short_side: int  # pixels; much larger photos are shrunk to it, with every pixel counted
    drawing_side: int | None  # of drawings, white ink on black and filling the frame; none: photos

    def read(self, photos: Sequence[Any] | Pictures) -> ReadPhotos:
        """Prepare photos given as paths, arrays or PIL images; `Pictures` are prepared already.

        Of a list of paths, files that cannot be read are left out; that none can be read is an error.
        """
        if isinstance(photos, Pictures):
            return ReadPhotos(list(photos), photos, {})
        if not _are_paths(photos):
            return ReadPhotos(list(photos), as_pictures(photos, self.channels, self.picture), {})
        files, pictures, unreadable = [], [], {}
        for file in photos:
            try:
                pictures.append(self.picture(read_image(file, self.channels)))
                files.append(file)
            except BadImage as problem:
                unreadable[str(file)] = problem.reason
        if not files:
            raise UnreadablePhotos(unreadable)
        return ReadPhotos(files, Pictures.from_list(pictures), unreadable)

    def picture(self, image: Bytes) -> Bytes:
        """Prepare one image (H, W, channels)."""
        if self.drawing_side is not None:
            return as_drawing(image, self.drawing_side)
        image = _without_ends(image)
        if min(image.shape[:2]) < ABOUT * self.short_side:
            return image
        return Resize(self.short_side).apply(image)

    @property
    def most_bytes(self) -> int:
        """Bytes that a prepared picture has at most."""
        if self.drawing_side is not None:
            return self.drawing_side**2 * self.channels
        short_side = math.ceil(ABOUT * self.short_side)
        return short_side * (ASPECT * short_side + 1) * self.channels  # both ends lose the same


def _are_paths(photos: Sequence[Any]) -> bool:
    listed = isinstance(photos, list | tuple) and len(photos) > 0
    return listed and all(isinstance(photo, str | os.PathLike) for photo in photos)


def _without_ends(image: Bytes) -> Bytes:
    """Cut off the ends of a very long photo: the embedder is shown the square in its centre."""
    height, width = image.shape[:2]
    most = ASPECT * min(height, width)
    top, left = max(height - most, 0) // 2, max(width - most, 0) // 2
    return image[top : height - top, left : width - left]


def as_drawing(image: Bytes, side: int) -> Bytes:
    """Turn a drawing into white ink on black and, unless it has the right size already, fill the frame.

    A drawing with a bright border is dark ink on light paper.
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
    if max(ink.shape[:2]) > INK_SIDE:  # the square of a long line would not fit into memory
        ink = _shrunk(ink, INK_SIDE)
    square = np.zeros((max(ink.shape[:2]),) * 2 + ink.shape[2:], np.uint8)
    square[: ink.shape[0], : ink.shape[1]] = ink  # the doodles begin in the top left corner
    return Resize(side, square=True).apply(square)


def _shrunk(image: Bytes, long_side: int) -> Bytes:
    """Shrink an image so that its longer side has so many pixels."""
    height, width = (max(side * long_side // max(image.shape[:2]), 1) for side in image.shape[:2])
    return np.asarray(_as_image(image).resize((width, height), Image.Resampling.BILINEAR)).reshape(
        height, width, -1
    )


def _as_image(picture: Bytes) -> Image.Image:
    return Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)


def fingerprint(picture: Bytes) -> bytes:
    """Return the SHA-256 of the pixels: files that give the same pixels are one photo."""
    return hashlib.sha256(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes()).digest()


def data_url(image: bytes) -> str:
    """Return a PNG or JPEG file as an address that needs no file."""
    kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def thumbnail(picture: Bytes) -> bytes:
    """Return a small PNG of a drawing, or a small JPEG of a photo."""
    image = _as_image(picture)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    file = io.BytesIO()
    if image.mode == "L":
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=80)
    return file.getvalue()
