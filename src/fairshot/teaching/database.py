"""The database of a store: what was taught, what follows from it, and a log from which all can be undone.

Facts are few: which class a base prototype or an image belongs to, what a class is called, which unlabelled
samples calibrate, and some settings. Every change of a fact is a row of `changes` with its value before and
after, so that an event is undone by writing the values before. The rest (`prototypes`, `shifts`, `delta`)
follows from the facts and is kept so that opening a store computes nothing.
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

FORMAT = 1
WAIT_SECONDS = 60.0  # for another process to finish its lesson

SCHEMA = """
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- A class without a name is not there: it was forgotten, merged or undone. Its images wait for an undo.
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT) STRICT;
CREATE UNIQUE INDEX classes_by_name ON classes (name) WHERE name IS NOT NULL;

-- Prototypes of base classes as training left them, and how many images each is the mean of.
CREATE TABLE base (
  id INTEGER PRIMARY KEY, class INTEGER NOT NULL REFERENCES classes, count INTEGER NOT NULL,
  g BLOB NOT NULL, g_tilde BLOB
) STRICT;
CREATE INDEX base_by_class ON base (class);

-- A sample of a base prototype is part of it already: in the class of that prototype it counts no more.
CREATE TABLE images (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, class INTEGER REFERENCES classes,
  sample_of INTEGER REFERENCES base, g BLOB NOT NULL, g_tilde BLOB, thumbnail BLOB NOT NULL
) STRICT;
CREATE INDEX images_by_class ON images (class, sha256, sample_of);  -- all that is counted, without features

-- Samples without a label that calibrate the classes which recognise them, as long as they are kept.
CREATE TABLE unlabelled (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, kept INTEGER NOT NULL, g BLOB NOT NULL
) STRICT;

CREATE TABLE prototypes (
  class INTEGER PRIMARY KEY REFERENCES classes, novel INTEGER NOT NULL, g BLOB NOT NULL, g_tilde BLOB
) STRICT;
CREATE TABLE shifts (class INTEGER PRIMARY KEY REFERENCES classes, g BLOB NOT NULL) STRICT;
CREATE TABLE delta (base INTEGER PRIMARY KEY REFERENCES base, sums BLOB NOT NULL) STRICT;

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
    """Refuse a database that is not exactly ours: another version, or one with something slipped in."""
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        found = _schema_of(connection)
    except sqlite3.DatabaseError as problem:
        raise UserError(f"{path} is not the database of a store ({problem})") from None
    if version != FORMAT:
        raise UserError(
            f"{path} is a store of format {version}; this version of fairshot reads format {FORMAT}"
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
    """Do all of it or nothing; the one writer waits for another one here."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything as of one moment, whatever a writer does meanwhile."""
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
