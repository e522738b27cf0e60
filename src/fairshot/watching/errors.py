"""What a watch refuses."""

from __future__ import annotations

from pathlib import Path

from fairshot.errors import UserError


class NoSource(UserError):
    """Nothing that can be watched was named."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(
            f"{source!r} is no folder, no video file, no number of a camera and no address of a stream"
        )


class UnreadableVideo(UserError):
    """A file that cannot be played as a video."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} cannot be played as a video")


class BadAddress(UserError):
    """An address that answers cannot be sent to."""

    def __init__(self, what: str, expected: str) -> None:
        self.what, self.expected = what, expected
        super().__init__(f"{what} is not an address that answers can be sent to; expected {expected}")


class JournalUnusable(UserError):
    """The file that says what was answered cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}, which keeps what was answered, cannot be used: {reason}")
