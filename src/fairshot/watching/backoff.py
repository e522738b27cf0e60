"""Trying again after ever longer pauses, and saying once that something is away."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairshot.progress import Reporter

SHORTEST, LONGEST = 1.0, 60.0  # seconds


@dataclass
class Backoff:
    """How long to wait for something that is away."""

    reporter: Reporter
    away: str  # what is said when it goes away
    back: str  # what is said when it is there again
    _pause: float = field(init=False, default=0.0)  # 0: it is there

    def failed(self, reason: str) -> float:
        """Return the seconds to wait before the next try, twice as many as before."""
        if not self._pause:
            self.reporter.say(f"{self.away} ({reason}); trying again until it can")
        self._pause = min(2 * self._pause, LONGEST) or SHORTEST
        return self._pause

    def succeeded(self) -> None:
        """Begin anew with short pauses."""
        if self._pause:
            self.reporter.say(self.back)
        self._pause = 0.0
