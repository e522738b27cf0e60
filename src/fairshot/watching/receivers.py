"""Receivers of answers, and the threads that send them messages: again, until they are delivered."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from fairshot.progress import Reporter
from fairshot.watching.backoff import Backoff
from fairshot.watching.capture import Capture
from fairshot.watching.journal import Journal

ENDING_SECONDS = 5.0  # to send what waits, when a watch ends
STUCK_SECONDS = 15.0  # after which a receiver that neither takes a message nor refuses it is left
SHORT_PAUSE = 0.5  # between tries then
Record = Mapping[str, Any]  # of one picture, as it is printed


class Unreachable(Exception):
    """A receiver cannot be told now; it is tried again."""


class Refused(Exception):
    """A receiver does not want this message; it is not told again."""


class Receiver(Protocol):
    """Someone who is told answers."""

    name: str  # in the journal

    def message(self, record: Record, capture: Capture) -> str | None:
        """Return what to tell about a picture; none if nothing."""
        ...

    def deliver(self, message: str) -> None:
        """Tell it, or raise `Unreachable` or `Refused`."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Delivery:
    """A thread that tells one receiver what waits for it, the oldest first."""

    def __init__(self, journal: Journal, receiver: Receiver, reporter: Reporter) -> None:
        self.journal, self.receiver, self.reporter = journal, receiver, reporter
        self.problem: Exception | None = None  # of the journal, or unforeseen: it ends the watch
        self._more, self._end = threading.Event(), threading.Event()
        self._until, self._patient = float("inf"), False
        self._thread = threading.Thread(target=self._run, daemon=True, name=receiver.name)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to tell."""
        if self.problem is not None:
            raise self.problem
        self._more.set()

    def end(self, patient: bool) -> None:
        """End, having told what waits: for a few seconds or, if patient, as long as it gets through."""
        self._patient, self._until = patient, time.monotonic() + ENDING_SECONDS
        self._end.set()
        self._more.set()
        self._thread.join(2 * ENDING_SECONDS)
        while patient and self._thread.is_alive() and time.monotonic() < self._until + STUCK_SECONDS:
            self._thread.join(SHORT_PAUSE)  # `_until` moves on with each message that is delivered
        self.receiver.close()
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            self._deliver_all()
        except Exception as problem:  # told by `wake`: answers must not go on without being sent
            self.problem = problem

    def _deliver_all(self) -> None:
        name = self.receiver.name
        away = Backoff(self.reporter, f"{name}: answers cannot be sent", f"{name}: answers are sent again")
        while time.monotonic() < self._until:
            self._more.clear()
            waiting = self.journal.next_message(name)
            if waiting is None:
                if self._end.is_set():
                    return
                self._more.wait(60)
                continue
            try:
                self.receiver.deliver(waiting[1])
            except Unreachable as problem:
                pause = away.failed(str(problem))
                if self._end.wait(pause):
                    time.sleep(SHORT_PAUSE)  # the last tries
                continue
            except Refused as problem:
                self.reporter.say(f"{name}: an answer is refused ({problem}), and not sent again")
            away.succeeded()
            if self._patient:
                self._until = time.monotonic() + ENDING_SECONDS
            self.journal.remove_message(waiting[0])
