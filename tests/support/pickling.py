"""What another process gets of an object that is sent to it."""

from __future__ import annotations

import pickle
from typing import TypeVar

Sent = TypeVar("Sent")


def pickled(value: Sent) -> Sent:
    """Pickle a value of this process, and read it again."""
    again: Sent = pickle.loads(pickle.dumps(value))  # noqa: S301 - it is our own
    return again
