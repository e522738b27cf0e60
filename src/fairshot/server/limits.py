"""How much clients may send, so that none of them keeps the others waiting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on requests."""

    request_bytes: int = 32 * 2**20
    login_bytes: int = 4096  # of a request to log in, which nobody has to be known for
    arriving_bytes: int = 512 * 2**20  # of all requests that are not answered yet
    file_bytes: int = 12 * 2**20
    files: int = 20  # in one request
    pixels: int = 40_000_000  # of one image, judged by its header
    side: int = 12_000  # pixels of the longer side; drawings are made square, which takes much memory
    aspect: int = 20  # longer over shorter side; photos are resized by their shorter side
    header_seconds: float = 10.0  # until the head of a request must have arrived
    body_seconds: float = 30.0  # until its body must have arrived
    waiting: int = 64  # images that may wait for an answer; further ones are refused
    batch: int = 16  # images answered together
