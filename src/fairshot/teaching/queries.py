"""What a store can tell about itself."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fairshot.teaching.derived import TAUGHT, Shapes
from fairshot.teaching.teach_report import Stored

SHOWN_THUMBNAILS = 5
_NAMED = "images.class IN (SELECT id FROM classes WHERE name IS NOT NULL)"


@dataclass(frozen=True)
class ClassInfo:
    """One class as people see it."""

    name: str
    base: bool  # trained, not taught
    photos: int  # taught
    trained_on: int  # images behind its base prototype
    calibrated: bool  # whether `adapt` moved it


def class_infos(connection: sqlite3.Connection) -> list[ClassInfo]:
    """Return all classes: base classes in the order of training, then taught ones by name."""
    rows = connection.execute(
        f"""
        SELECT c.name, NOT p.novel, (SELECT count(*) FROM images WHERE class = c.id AND {TAUGHT}),
          (SELECT coalesce(sum(count), 0) FROM base WHERE class = c.id),
          EXISTS (SELECT 1 FROM shifts WHERE class = c.id),
          (SELECT min(b.id) FROM base b WHERE b.class = c.id) AS rank
        FROM classes c JOIN prototypes p ON p.class = c.id WHERE c.name IS NOT NULL
        ORDER BY p.novel, rank, c.name
        """
    )
    return [ClassInfo(row[0], bool(row[1]), row[2], row[3], bool(row[4])) for row in rows]


def class_id(connection: sqlite3.Connection, name: str) -> int | None:
    """Return the id of a class, if it is there."""
    row = connection.execute("SELECT id FROM classes WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def thumbnails(connection: sqlite3.Connection, name: str, at_most: int = SHOWN_THUMBNAILS) -> list[bytes]:
    """Return small images (PNG or JPEG) of a class, taught ones first."""
    rows = connection.execute(
        "SELECT thumbnail FROM images WHERE class = (SELECT id FROM classes WHERE name = ?) "
        "ORDER BY sample_of IS NOT NULL, sha256 LIMIT ?",
        (name, at_most),
    )
    return [row[0] for row in rows]


def image_thumbnails(connection: sqlite3.Connection, images: Sequence[int]) -> list[bytes]:
    """Return small versions of some images."""
    query = "SELECT thumbnail FROM images WHERE id = ?"
    return [connection.execute(query, (image,)).fetchone()[0] for image in images]


def stored_images(connection: sqlite3.Connection, shapes: Shapes, at_most: int, but: int) -> Stored:
    """Return stored images of all classes but one: those with the smallest fingerprints, a fair sample."""
    chosen = f"SELECT id FROM images WHERE {_NAMED} AND class != ? ORDER BY sha256 LIMIT ?"
    query = f"SELECT id, class, g, g_tilde FROM images WHERE id IN ({chosen})"
    return _stored(connection.execute(query, (but, at_most)).fetchall(), shapes)


def base_samples(connection: sqlite3.Connection, shapes: Shapes) -> Stored:
    """Return the images that show base classes as training saw them."""
    query = f"SELECT id, class, g, g_tilde FROM images WHERE NOT ({TAUGHT}) AND {_NAMED} ORDER BY sha256"
    return _stored(connection.execute(query).fetchall(), shapes)


def _stored(rows: list[tuple[int, int, bytes, bytes | None]], shapes: Shapes) -> Stored:
    g, g_tilde = shapes.tensors([row[2:] for row in rows])
    return Stored([row[0] for row in rows], [row[1] for row in rows], {"g": g, "g_tilde": g_tilde})


def digest(connection: sqlite3.Connection) -> str:
    """Return one hash over all facts and all that follows from them, to the last bit."""
    state = hashlib.sha256()
    for query in (
        """SELECT c.name, p.novel, p.g, p.g_tilde, s.g FROM classes c JOIN prototypes p ON p.class = c.id
        LEFT JOIN shifts s ON s.class = c.id WHERE c.name IS NOT NULL ORDER BY c.name""",
        """SELECT c.name, images.sha256, images.g, images.g_tilde, images.thumbnail
        FROM images JOIN classes c ON c.id = images.class WHERE c.name IS NOT NULL ORDER BY images.sha256""",
        """SELECT c.name, base.g, base.g_tilde, base.count, delta.sums FROM base
        JOIN delta ON delta.base = base.id JOIN classes c ON c.id = base.class ORDER BY base.id""",
        "SELECT sha256, g FROM unlabelled WHERE kept ORDER BY sha256",
        "SELECT key, value FROM settings ORDER BY key",
    ):
        for row in connection.execute(query):
            for value in row:
                part = value if isinstance(value, bytes) else repr(value).encode()
                state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()
