"""What a store can tell about itself, and the images in it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fairshot.teaching.database import to_blob

if TYPE_CHECKING:  # torch takes seconds to import, and what lists and names classes needs none
    from fairshot.classifiers.dual import DualClassifier
    from fairshot.models.embedder import Features
    from fairshot.teaching.derived import Layout
    from fairshot.teaching.network import Photo

# Of an image: that it counts for the prototype of its class.
TAUGHT = "(SELECT class FROM base WHERE base.id = images.sample_of) IS NOT images.class"
_NAMED = "images.class IN (SELECT id FROM classes WHERE name IS NOT NULL)"


@dataclass(frozen=True)
class ClassInfo:
    """One class as people see it."""

    name: str
    base: bool  # trained, not taught
    photos: int  # taught
    trained_on: int  # training images of its base classes
    calibrated: bool  # whether `adapt` moved it


@dataclass(frozen=True)
class Stored:
    """Images of a store: their ids, class ids and features."""

    ids: list[int]
    classes: list[int]
    features: Features

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, bytes, bytes | None]], layout: Layout) -> Self:
        """Take ids, classes and features from rows of the table."""
        return cls(
            [row[0] for row in rows], [row[1] for row in rows], layout.features([row[2:] for row in rows])
        )


def class_infos(
    connection: sqlite3.Connection, counts: Sequence[int], calibrated: Container[int] = ()
) -> list[ClassInfo]:
    """Return all classes: base classes in the order of training, then taught ones by name.

    `counts` (B,) are the training images of base classes, `calibrated` the ids of classes that moved.
    """
    rows = connection.execute(
        f"""
        SELECT c.id, c.name, (SELECT count(*) FROM images WHERE class = c.id AND {TAUGHT}),
          (SELECT min(id) FROM base WHERE class = c.id) AS rank
        FROM classes c WHERE c.name IS NOT NULL ORDER BY rank IS NULL, rank, c.name
        """  # noqa: S608 - our condition
    ).fetchall()
    trained_on: dict[int, int] = {}
    for class_id, position in connection.execute("SELECT class, id - 1 FROM base"):
        trained_on[class_id] = trained_on.get(class_id, 0) + counts[position]
    return [
        ClassInfo(name, rank is not None, photos, trained_on.get(class_id, 0), class_id in calibrated)
        for class_id, name, photos, rank in rows
    ]


def class_id(connection: sqlite3.Connection, name: str) -> int | None:
    """Return the id of a class, if it is there."""
    try:
        row = connection.execute("SELECT id FROM classes WHERE name = ?", (name,)).fetchone()
    except UnicodeEncodeError:  # half a surrogate pair, which is no text
        return None
    return None if row is None else int(row[0])


def adapted(connection: sqlite3.Connection) -> bool:
    """Whether unlabelled samples calibrate classes."""
    return connection.execute("SELECT 1 FROM unlabelled WHERE kept").fetchone() is not None


def class_of_photo(connection: sqlite3.Connection, sha256: bytes) -> str | None:
    """Return the name of the class that a photo belongs to, if it belongs to one."""
    row = connection.execute(
        "SELECT c.name FROM images JOIN classes c ON c.id = images.class WHERE sha256 = ?", (sha256,)
    ).fetchone()
    return None if row is None else row[0]


def insert_image(
    connection: sqlite3.Connection,
    photo: Photo,
    layout: Layout,
    owner: int | None = None,
    sample_of: int | None = None,
) -> int | None:
    """Add an image, if it is not there; with `sample_of` it is a training image of a base class."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO images (sha256, class, sample_of, g, g_tilde, thumbnail) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (photo.sha256, owner, sample_of, *layout.image_blobs(photo), photo.thumbnail),
    )
    return cursor.lastrowid


def image_thumbnails(connection: sqlite3.Connection, images: Sequence[int]) -> list[bytes]:
    """Return small versions of some images."""
    query = "SELECT thumbnail FROM images WHERE id = ?"
    return [connection.execute(query, (image,)).fetchone()[0] for image in images]


def stored_images(connection: sqlite3.Connection, layout: Layout, at_most: int, but: int) -> Stored:
    """Return stored images of all classes but one: those with the smallest fingerprints, a fair sample."""
    return _stored(connection, layout, f"{_NAMED} AND class != ?", at_most, but)


def base_samples(connection: sqlite3.Connection, layout: Layout) -> Stored:
    """Return the training images of base classes that the store keeps."""
    return _stored(connection, layout, f"NOT ({TAUGHT}) AND {_NAMED}")


def repeated_photos(connection: sqlite3.Connection, layout: Layout, at_most: int) -> Stored:
    """Return photos of the taught classes that have at least two: those with the smallest fingerprints."""
    return _stored(connection, layout, "class IN (SELECT class FROM prototypes WHERE count > 1)", at_most)


def repeated_images(connection: sqlite3.Connection, layout: Layout, at_most: int) -> Stored:
    """Return images of the classes that have at least two: a sample that is fair and the same every time."""
    repeated = f"SELECT class FROM images WHERE {_NAMED} GROUP BY class HAVING count(*) > 1"  # noqa: S608 - our condition
    return _stored(connection, layout, f"class IN ({repeated})", at_most)


def _stored(
    connection: sqlite3.Connection, layout: Layout, where: str, at_most: int = -1, *values: int
) -> Stored:
    # The ids are chosen first, by an index that holds no features: rows are long.
    chosen = f"SELECT id FROM images WHERE {where} ORDER BY sha256 LIMIT ?"  # noqa: S608 - our conditions
    query = f"SELECT id, class, g, g_tilde FROM images WHERE id IN ({chosen}) ORDER BY sha256"  # noqa: S608 - as above
    return Stored.of(connection.execute(query, (*values, at_most)).fetchall(), layout)


def digest(connection: sqlite3.Connection, base: DualClassifier) -> str:
    """Return one hash over the base classes, all recorded values and all derived ones, to the last bit."""
    state = hashlib.sha256()
    for _, tensor in sorted(base.tensors().items()):
        state.update(to_blob(tensor))
    for query in (
        """SELECT c.name, p.count, p.g, p.g_tilde, p.gate, p.margins FROM classes c
        LEFT JOIN prototypes p ON p.class = c.id WHERE c.name IS NOT NULL ORDER BY c.name""",
        """SELECT c.name, images.sha256, images.g, images.g_tilde, images.thumbnail
        FROM images JOIN classes c ON c.id = images.class WHERE c.name IS NOT NULL ORDER BY images.sha256""",
        "SELECT c.name FROM base JOIN classes c ON c.id = base.class ORDER BY base.id",
        "SELECT sums FROM delta",
        "SELECT sha256, g FROM unlabelled WHERE kept ORDER BY sha256",
        "SELECT key, value FROM settings ORDER BY key",
    ):
        for row in connection.execute(query):
            for value in row:
                part = value if isinstance(value, bytes) else repr(value).encode()
                state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()
