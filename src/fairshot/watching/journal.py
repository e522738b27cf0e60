"""The journal of a watch: which files are answered, and which answers are still to be sent.

Both are written in one transaction, so that a watch that is killed goes on where it was: an answer is sent
at least once, and twice only if the watch was killed while sending it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import platformdirs

from fairshot.watching.capture import Capture, Version, as_text, identity
from fairshot.watching.errors import JournalUnusable

MOST_FRAMES = 1000  # answers about frames that wait for one receiver; of files all wait
SCHEMA = """
CREATE TABLE IF NOT EXISTS answered (
  image TEXT PRIMARY KEY, size INTEGER NOT NULL, changed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting (
  id INTEGER PRIMARY KEY, receiver TEXT NOT NULL, message TEXT NOT NULL, frame INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS waiting_by_receiver ON waiting (receiver, frame, id);
"""


def default_path(store: Path, source: str) -> Path:
    """Return where the journal of a store and a source lies unless another place is given."""
    name = f"{identity(str(store.resolve()), source)}.sqlite"
    return platformdirs.user_state_path("fairshot") / "watch" / name


class Journal:
    """An open journal; safe to use from several threads of one process, which alone may open it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
            self._connection.executescript("PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF;")
            self._connection.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT;")

    def close(self) -> None:
        """Let others open it."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_answered(self, image: str, version: Version) -> bool:
        """Whether a file was answered in this version."""
        with self._lock, self._errors():
            row = self._connection.execute(
                "SELECT size, changed FROM answered WHERE image = ?", (as_text(image),)
            ).fetchone()
        return row is not None and Version(*row) == version

    def record(self, captures: Sequence[Capture], messages: Sequence[Mapping[str, str]]) -> None:
        """Keep that pictures are answered, and the messages about each, by receiver."""
        with self._lock, self._errors(), self._connection:  # which commits, or rolls back if something fails
            self._connection.execute("BEGIN")
            for capture, by_receiver in zip(captures, messages, strict=True):
                if capture.version is not None:
                    self._connection.execute(
                        "INSERT OR REPLACE INTO answered VALUES (?, ?, ?)",
                        (as_text(capture.image), *capture.version),
                    )
                frame = capture.version is None
                for receiver, message in by_receiver.items():
                    self._connection.execute(
                        "INSERT INTO waiting (receiver, message, frame) VALUES (?, ?, ?)",
                        (receiver, message, frame),
                    )
                    if frame:
                        self._connection.execute(
                            "DELETE FROM waiting WHERE receiver = ? AND frame = 1 AND id <= (SELECT id FROM "
                            "waiting WHERE receiver = ? AND frame = 1 ORDER BY id DESC LIMIT 1 OFFSET ?)",
                            (receiver, receiver, MOST_FRAMES),
                        )

    def next_message(self, receiver: str) -> tuple[int, str] | None:
        """Return the oldest message that waits for a receiver."""
        with self._lock, self._errors():
            row: tuple[int, str] | None = self._connection.execute(
                "SELECT id, message FROM waiting WHERE receiver = ? ORDER BY id LIMIT 1", (receiver,)
            ).fetchone()
        return row

    def remove_message(self, message: int) -> None:
        """Remove a message that was delivered."""
        with self._lock, self._errors():
            self._connection.execute("DELETE FROM waiting WHERE id = ?", (message,))

    def forget_file(self, image: str) -> None:
        """Forget a file that has left the folder: another of its name is new."""
        with self._lock, self._errors():
            self._connection.execute("DELETE FROM answered WHERE image = ?", (as_text(image),))

    def count_waiting(self) -> int:
        """Count the messages that wait."""
        with self._lock, self._errors():
            return int(self._connection.execute("SELECT count(*) FROM waiting").fetchone()[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            busy = getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            reason = "another watch is at work with it" if busy else str(problem)
            raise JournalUnusable(self.path, reason) from problem
        except OSError as problem:
            raise JournalUnusable(self.path, problem.strerror or str(problem)) from problem
