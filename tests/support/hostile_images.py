"""Image files made to keep a server busy, or to fill its memory."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
from PIL import Image


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@cache
def flat(width: int, height: int, kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """A large image in a small file."""
    return encoded(Image.new(mode, (width, height)), kind, **options)


@cache
def photo(width: int = 1200, height: int = 900) -> bytes:
    """A JPEG as people send them."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    return encoded(Image.fromarray(noise).resize((width, height)), "JPEG")


def progressive(scans: int, width: int = 1500, height: int = 1500) -> bytes:
    """A JPEG that goes over its pixels as often as told: each scan takes some time, and few bytes."""
    content = flat(width, height, "JPEG", "L", progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * (scans - content.count(b"\xff\xda") + 1) + content[-2:]
