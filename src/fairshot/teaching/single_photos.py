"""Single photos of a class: listed, moved to another class, dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fairshot.teaching.errors import BadName, UnknownPhotos
from fairshot.teaching.event_log import EventLog
from fairshot.teaching.queries import TAUGHT


@dataclass(frozen=True)
class StoredPhoto:
    """One photo of a class as people see it."""

    id: int
    taught: bool  # not a training image of a base class
    thumbnail: bytes  # PNG or JPEG


def class_photos(connection: sqlite3.Connection, name: str, at_most: int, skipped: int) -> list[StoredPhoto]:
    """Return the photos of a class, taught ones first; none of a class that does not exist."""
    rows = connection.execute(
        f"SELECT id, {TAUGHT} AS taught, thumbnail FROM images WHERE class = "  # noqa: S608 - our condition
        "(SELECT id FROM classes WHERE name = ?) ORDER BY taught DESC, sha256 LIMIT ? OFFSET ?",
        (name, at_most, skipped),
    )
    return [StoredPhoto(image, bool(taught), small) for image, taught, small in rows]


def _taught_photos(connection: sqlite3.Connection, class_id: int) -> set[int]:
    """Return the ids of the photos that were taught to a class."""
    query = f"SELECT id FROM images WHERE class = ? AND {TAUGHT}"  # noqa: S608 - our condition
    return {row[0] for row in connection.execute(query, (class_id,))}


def _is_empty(connection: sqlite3.Connection, class_id: int) -> bool:
    """Say whether a class has neither training images nor photos."""
    query = "SELECT 1 FROM base WHERE class = :id UNION ALL SELECT 1 FROM images WHERE class = :id LIMIT 1"
    return connection.execute(query, {"id": class_id}).fetchone() is None


def take_out(log: EventLog, name: str, source: int, photos: Sequence[int], target: int | None) -> None:
    """Put taught photos of the class `source`, which has a name, into the class `target`, or into none.

    A taught class is forgotten with its last photo.
    """
    chosen = sorted(set(photos))
    if source == target:
        raise BadName(name, "is that of the class the photos have; give another class")
    missing = set(chosen) - _taught_photos(log.connection, source)
    if missing or not chosen:
        raise UnknownPhotos(name, tuple(sorted(missing)))
    for image in chosen:
        log.change("image", image, target)
    if _is_empty(log.connection, source):
        log.change("class", source, None)
    log.describe(photos=len(chosen))
