"""What one client may ask for, so that nobody else has to wait for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on requests."""

    request_bytes: int = 32 * 2**20
    file_bytes: int = 12 * 2**20
    files: int = 20  # in one request
    pixels: int = 40_000_000  # of one image, judged by its header
    header_seconds: float = 10.0  # until a request must have begun
    body_seconds: float = 30.0  # until it must have arrived
    waiting: int = 64  # images that may wait for an answer; more are told to come again
    batch: int = 16  # images answered together


class Refused(Exception):
    """A request that is not served: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
