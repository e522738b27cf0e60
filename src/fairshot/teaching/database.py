"""The database of a store: recorded values, the event log that can undo each change of them, derived tables.

Recorded are: the class that a base class or an image belongs to, the name of a class, which unlabelled
samples calibrate, and the settings. Every change of one is a row of `changes` with its value before and
after; an event is undone by writing the values before. The tables `prototypes` and `delta` are derived from
the recorded values, and are kept so that opening a store computes little.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairshot.errors import UserError

DATABASE = "store.sqlite"
FORMAT = 2
WAIT_SECONDS = 60.0  # for another process to finish its change

SCHEMA = """
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- A class without a name was forgotten, merged or undone. Its images stay, so that an undo brings it back.
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT) STRICT;
CREATE UNIQUE INDEX classes_by_name ON classes (name) WHERE name IS NOT NULL;

-- Base classes: row `id` is class `id - 1` of the classifier file.
CREATE TABLE base (id INTEGER PRIMARY KEY, class INTEGER NOT NULL REFERENCES classes) STRICT;
CREATE INDEX base_by_class ON base (class);

-- A sample of a base class was trained on: in the class of that base class it is not counted again.
CREATE TABLE images (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, class INTEGER REFERENCES classes,
  sample_of INTEGER REFERENCES base, g BLOB NOT NULL, g_tilde BLOB, thumbnail BLOB NOT NULL
) STRICT;
CREATE INDEX images_by_class ON images (class, sha256, sample_of);  -- all that is counted, without features

-- Samples without a label that calibrate the classes which recognise them, as long as they are kept.
CREATE TABLE unlabelled (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, kept INTEGER NOT NULL, g BLOB NOT NULL
) STRICT;

-- Derived: the rows of each taught class in the classifiers; and Delta of eq. 8, the sum over all of them.
CREATE TABLE prototypes (
  class INTEGER PRIMARY KEY REFERENCES classes, count INTEGER NOT NULL, g BLOB NOT NULL, g_tilde BLOB,
  gate BLOB, margins BLOB
) STRICT;
CREATE TABLE delta (sums BLOB NOT NULL) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL,
  undone_by INTEGER REFERENCES events
) STRICT;
CREATE TABLE changes (
  event INTEGER NOT NULL REFERENCES events, position INTEGER NOT NULL, subject TEXT NOT NULL,
  key ANY NOT NULL, before ANY, after ANY, PRIMARY KEY (event, position)
) STRICT, WITHOUT ROWID;
"""


def connect(path: Path, create: bool = False) -> sqlite3.Connection:
    """Open the database for one thread at a time; statements are grouped by `transaction` alone."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        timeout=WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.executescript(
        "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL;"
    )
    if create:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
    else:
        check_schema(connection, path)
    return connection


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database of another format, or with tables, indices or triggers that are not ours."""
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        found = _schema_of(connection)
    except sqlite3.DatabaseError as problem:
        raise UserError(f"{path} is not the database of a store ({problem})") from None
    if version != FORMAT:
        raise UserError(
            f"{path} is a store of format {version}, and this version of fairshot reads format {FORMAT}; "
            "make the store again from its run or backbone, and teach it the photos again"
        )
    with sqlite3.connect(":memory:") as expected:
        expected.executescript(SCHEMA)
        if found != _schema_of(expected):
            raise UserError(f"{path} is not the database of a store: its tables are others")
    expected.close()


def _schema_of(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    return connection.execute(query).fetchall()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of it or nothing; one writer at a time, another one waits here."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything as of one moment, whatever a writer does meanwhile; also inside `transaction`."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def to_blob(tensor: Tensor) -> bytes:
    """Return the values of a float32 or int64 tensor as little-endian bytes."""
    array = tensor.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def from_blobs(blobs: list[bytes], shape: tuple[int, ...], dtype: str = "<f4") -> Tensor:
    """Stack what `to_blob` made of tensors of one shape."""
    array = np.frombuffer(bytearray().join(blobs), dtype=dtype).reshape(len(blobs), *shape)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
