"""Ctrl-C and termination signals, noted when they come and obeyed between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watch_for_interruption() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether the process was asked to stop; a second Ctrl-C stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del frame
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
