"""The event log of a store: every change of a recorded value, with the value before and after, by event."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fairshot.teaching.errors import NothingToUndo

Value = str | bytes | int | None


class Recorded(NamedTuple):
    """Where a kind of recorded value stands."""

    table: str
    column: str
    key: str = "id"


RECORDED = {
    "class": Recorded("classes", "name"),
    "image": Recorded("images", "class"),
    "base": Recorded("base", "class"),
    "sample": Recorded("unlabelled", "kept"),
    "setting": Recorded("settings", "value", "key"),
}
_CHANGED = """
SELECT key FROM changes WHERE event > :after AND subject = 'class'
UNION SELECT before FROM changes WHERE event > :after AND subject IN ('image', 'base')
UNION SELECT after FROM changes WHERE event > :after AND subject IN ('image', 'base')
"""


@dataclass(frozen=True)
class Event:
    """Something that was done to a store."""

    id: int
    at: str  # UTC
    kind: str
    detail: dict[str, Any]
    undone: bool

    def sentence(self) -> str:
        """Tell it in a few words."""
        detail = self.detail
        match self.kind:
            case "undo":
                undone = Event(detail["event"], self.at, detail["kind"], detail, True)
                return f"undo of {undone.id}: {undone.sentence()}"
            case "teach":
                return f"teach {detail['name']}, {counted_photos(detail['photos'])}"
            case "drop":
                return f"drop {counted_photos(detail['photos'])} of {detail['name']}"
            case "move":
                return f"move {counted_photos(detail['photos'])} of {detail['name']} to {detail['into']}"
            case "new":
                sources = {"run": "from the run", "backbone": "on the backbone", "base": "with the images of"}
                told = [f"{words} {detail[key]}" for key, words in sources.items() if key in detail]
                return " ".join(["new store", *told])
            case "confidence":
                return f"confidence chosen on {detail['source']}"
            case "adapt":
                return f"adapt to {detail['images']} images"
            case "rename":
                return f"rename {detail['name']} to {detail['to']}"
            case "merge":
                return f"merge {detail['name']} into {detail['into']}"
        return f"{self.kind} {detail['name']}"


def counted_photos(count: int) -> str:
    """Return a number of photos in words."""
    return f"{count:,} {'photo' if count == 1 else 'photos'}"


@dataclass
class EventLog:
    """One event: changes recorded values inside a transaction, and logs what they were."""

    connection: sqlite3.Connection
    kind: str
    detail: dict[str, Any]
    event: int = field(init=False)
    position: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        values = (datetime.now(UTC).isoformat(timespec="seconds"), self.kind, json.dumps(self.detail))
        cursor = self.connection.execute("INSERT INTO events (at, kind, detail) VALUES (?, ?, ?)", values)
        self.event = cursor.lastrowid or 0

    def change(self, subject: str, key: Value, value: Value) -> None:
        """Give a recorded value another value."""
        table, column, key_column = RECORDED[subject]
        read = f"SELECT {column} FROM {table} WHERE {key_column} = ?"  # noqa: S608 - our names
        write = f"UPDATE {table} SET {column} = ?, checksum = NULL WHERE {key_column} = ?"  # noqa: S608 - our names
        before = self.connection.execute(read, (key,)).fetchone()[0]
        self.connection.execute(write, (value, key))
        self.connection.execute(
            "INSERT INTO changes (event, position, subject, key, before, after) VALUES (?, ?, ?, ?, ?, ?)",
            (self.event, self.position, subject, key, before, value),
        )
        self.position += 1

    def new_class(self, name: str) -> int:
        """Add a class."""
        cursor = self.connection.execute("INSERT INTO classes (name) VALUES (NULL)")
        class_id = cursor.lastrowid or 0
        self.change("class", class_id, name)
        return class_id

    def describe(self, **detail: Any) -> None:
        """Add to what the history tells of this event."""
        self.detail |= detail
        self.connection.execute(
            "UPDATE events SET detail = ?, checksum = NULL WHERE id = ?",
            (json.dumps(self.detail), self.event),
        )


def changed_classes(connection: sqlite3.Connection, after: int) -> set[int]:
    """Return the classes that events later than `after` may have changed."""
    return {row[0] for row in connection.execute(_CHANGED, {"after": after}) if row[0] is not None}


def last_event(connection: sqlite3.Connection) -> int:
    """Return the id of the last event, which names the state of a store."""
    return int(connection.execute("SELECT max(id) FROM events").fetchone()[0])


def undo(connection: sqlite3.Connection) -> Event:
    """Write back the values before the last event that still stands; return that event."""
    row = connection.execute(
        "SELECT id, at, kind, detail FROM events WHERE undone_by IS NULL AND kind NOT IN ('new', 'undo') "
        "ORDER BY id DESC LIMIT 1"
    ).fetchone()
    if row is None:
        raise NothingToUndo
    undone = Event(row[0], row[1], row[2], json.loads(row[3]), True)
    log = EventLog(connection, "undo", {"event": undone.id, "kind": undone.kind, **undone.detail})
    changes = connection.execute(
        "SELECT subject, key, before FROM changes WHERE event = ? ORDER BY position DESC", (undone.id,)
    ).fetchall()
    for subject, key, before in changes:
        log.change(subject, key, before)
    connection.execute(
        "UPDATE events SET undone_by = ?, checksum = NULL WHERE id = ?", (log.event, undone.id)
    )
    return undone


def history(connection: sqlite3.Connection, at_most: int | None = None) -> list[Event]:
    """Return the events, the latest first."""
    rows = connection.execute(
        "SELECT id, at, kind, detail, undone_by IS NOT NULL FROM events ORDER BY id DESC LIMIT ?",
        (-1 if at_most is None else at_most,),
    )
    return [Event(row[0], row[1], row[2], json.loads(row[3]), bool(row[4])) for row in rows]
