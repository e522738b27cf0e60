"""What a watch refuses."""

from __future__ import annotations

from pathlib import Path

from fairshot.errors import UserError


class NoSource(UserError):
    """Nothing that can be watched was named."""

    source: str
    message = "{source!r} is no folder, no video file, no number of a camera and no address of a stream"


class UnreadableVideo(UserError):
    """A file that cannot be played as a video."""

    path: Path
    message = "{path} cannot be played as a video"


class BadAddress(UserError):
    """An address that answers cannot be sent to."""

    what: str
    expected: str
    message = "{what} is not an address that answers can be sent to; expected {expected}"


class JournalUnusable(UserError):
    """The file that says what was answered cannot be used."""

    path: Path
    reason: str
    message = "{path}, which keeps what was answered, cannot be used: {reason}"
