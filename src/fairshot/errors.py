"""What ends a command early: an error that is the user's to mend, or a training that was told to stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class UserError(ValueError):
    """Something given to fairshot cannot be used; the message is complete without a traceback.

    A subclass keeps what was given and expected in fields. Its message names no option of a command: callers
    from Python have none. `fairshot.cli.advice` adds which option helps.
    """


class TrainingStopped(Exception):
    """The training stopped early, by a signal or a time limit; its checkpoint lets it go on."""


class NoGPU(UserError):
    """A GPU was asked for, and there is none."""

    def __init__(self) -> None:
        super().__init__("device: cuda was asked for, but torch finds no GPU here")


class UnevenEpisode(UserError):
    """The images of an episode cannot be divided evenly among the processes."""

    def __init__(self, episode: str, images: int, processes: int) -> None:
        self.images, self.processes = images, processes
        super().__init__(
            f"{episode} has {images}, which {processes} processes cannot share evenly; give another "
            "method.way, method.shots or method.queries"
        )


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Return a question that names what was probably meant, to put behind a message; or nothing."""
    near = get_close_matches(given, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def first_of(names: Sequence[str], at_most: int) -> str:
    """List names for a message: the first of them, and how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
