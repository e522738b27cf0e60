"""The database of a store: recorded values, the event log that can undo each change of them, derived tables.

Recorded are: the class that a base class or an image belongs to, the name of a class, which unlabelled
samples calibrate, and the settings. Every change of one is a row of `changes` with its value before and
after; an event is undone by writing the values before. The tables `prototypes` and `delta` are derived from
the recorded values, and are kept so that opening a store computes little. Without a row in `delta` they do
not hold, and are derived anew before anything is answered: what changes recorded values without torch, which
takes seconds to import, leaves them so.

Every row has a checksum of its values. A statement that changes a row leaves its checksum empty, and
`transaction` fills in those that are empty. `check_content` compares all of them when a store is opened.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairshot.errors import CannotWrite, PathUnusable
from fairshot.teaching.errors import ForeignDatabase, StoreDamaged

if TYPE_CHECKING:
    from torch import Tensor

DATABASE = "store.sqlite"
FORMAT = 3
WAIT_SECONDS = 60.0  # for another process to finish its change

SCHEMA = """
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER) STRICT;

-- A class without a name was forgotten, merged or undone. Its images stay, so that an undo brings it back.
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT, checksum INTEGER) STRICT;
CREATE UNIQUE INDEX classes_by_name ON classes (name) WHERE name IS NOT NULL;

-- Base classes: row `id` is class `id - 1` of the classifier file.
CREATE TABLE base (
  id INTEGER PRIMARY KEY, class INTEGER NOT NULL REFERENCES classes, checksum INTEGER
) STRICT;
CREATE INDEX base_by_class ON base (class);

-- A sample of a base class was trained on: in the class of that base class it is not counted again.
CREATE TABLE images (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, class INTEGER REFERENCES classes,
  sample_of INTEGER REFERENCES base, g BLOB NOT NULL, g_tilde BLOB, thumbnail BLOB NOT NULL,
  checksum INTEGER
) STRICT;
CREATE INDEX images_by_class ON images (class, sha256, sample_of);  -- all that is counted, without features

-- Samples without a label that calibrate the classes which recognise them, as long as they are kept.
CREATE TABLE unlabelled (
  id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, kept INTEGER NOT NULL, g BLOB NOT NULL,
  checksum INTEGER
) STRICT;

-- Derived: the rows of each taught class in the classifiers; and Delta of eq. 8, the sum over all of them.
CREATE TABLE prototypes (
  class INTEGER PRIMARY KEY REFERENCES classes, count INTEGER NOT NULL, g BLOB NOT NULL, g_tilde BLOB,
  gate BLOB, margins BLOB, checksum INTEGER
) STRICT;
CREATE TABLE delta (sums BLOB NOT NULL, checksum INTEGER) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL,
  undone_by INTEGER REFERENCES events, checksum INTEGER
) STRICT;
CREATE TABLE changes (
  event INTEGER NOT NULL REFERENCES events, position INTEGER NOT NULL, subject TEXT NOT NULL,
  key ANY NOT NULL, before ANY, after ANY, checksum INTEGER,
  PRIMARY KEY (event, position)
) STRICT, WITHOUT ROWID;
"""
TABLES = ("settings", "classes", "base", "images", "unlabelled", "events", "changes")  # of recorded values
DERIVED = ("prototypes", "delta")
SCHEMA += "".join(
    f"CREATE INDEX {table}_without_checksum ON {table} (checksum) WHERE checksum IS NULL;\n"
    for table in TABLES + DERIVED
)


@cache
def columns() -> dict[str, str]:
    """Return the columns of each table but for the checksum, separated by commas."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(SCHEMA)
        return {
            table: ", ".join(
                row[1] for row in empty.execute(f"PRAGMA table_info({table})") if row[1] != "checksum"
            )
            for table in TABLES + DERIVED
        }


def connect(path: Path) -> sqlite3.Connection:
    """Open the database for one thread at a time; statements are grouped by `transaction` alone.

    Where nothing can be written, on a read-only or full disk, it is opened as a file that does not change.
    """
    try:
        return open_checked(path, "mode=rw")
    except CannotWrite as problem:
        log = path.with_name(f"{path.name}-wal")
        if log.is_file() and log.stat().st_size:  # a file that does not change is read without it
            raise PathUnusable(
                path,
                f"holds changes that are not completed, and nothing can be written here "
                f"({problem.reason}); open the store once where it can be written",
            ) from problem
        return open_checked(path, "mode=ro&immutable=1")


def in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy a database into memory, where it can be written."""
    with _closed_if_it_fails(_open(Path(DATABASE), "mode=memory")) as copy:  # no file of that name is made
        connection.backup(copy)
        return copy


def is_read_only(problem: CannotWrite) -> bool:
    """Whether a database could not be written because it was opened as a file that does not change."""
    return getattr(problem.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY


def create(path: Path) -> sqlite3.Connection:
    """Make a database without a row."""
    with database_errors(path), _closed_if_it_fails(_open(path, "mode=rwc")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        return connection


def open_checked(path: Path, how: str) -> sqlite3.Connection:
    """Open a database that has exactly our tables, and let nothing else than our own code run in it."""
    with database_errors(path, reading=True), _closed_if_it_fails(_open(path, how)) as connection:
        check_schema(connection, path)
        return connection


def _open(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{how}",
        uri=True,
        timeout=WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    with _closed_if_it_fails(connection):
        connection.create_function("checksum_of", -1, checksum_of, deterministic=True)
        connection.executescript(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON; "
            "PRAGMA synchronous = FULL;"
        )
    return connection


@contextmanager
def _closed_if_it_fails(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close a connection that cannot be used; it stays open otherwise."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def database_errors(path: Path, reading: bool = False) -> Iterator[None]:
    """Turn what SQLite says of a disk that cannot be written, or of a damaged file, into errors of ours.

    With `reading`, the statements are known to be right, and any error that is left is one of the file.
    """
    try:
        yield
    except UnicodeDecodeError as problem:  # text, or an error that quotes a text, that is none
        raise StoreDamaged(path, str(problem)) from problem
    except sqlite3.DatabaseError as problem:
        match getattr(problem, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                raise CannotWrite(path, "the disk is full", disk_full=True) from problem
            case sqlite3.SQLITE_BUSY:
                raise CannotWrite(path, "another process is changing it") from problem
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR:
                raise CannotWrite(path, str(problem)) from problem
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_CONSTRAINT:  # what we write by ourselves fits
                raise StoreDamaged(path, str(problem)) from problem
            case sqlite3.SQLITE_NOTADB:
                raise ForeignDatabase(path, str(problem)) from None
        if reading:
            raise StoreDamaged(path, str(problem)) from problem
        raise


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database of another format, or with tables, indices or triggers that are not ours."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    found = _schema_of(connection)
    if version != FORMAT:
        raise PathUnusable(
            path,
            f"is a store of format {version}, and this version of fairshot reads format {FORMAT}; "
            "make the store again from its run or backbone, and teach it the photos again",
        )
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(SCHEMA)
        if found != _schema_of(expected):
            raise ForeignDatabase(path, "its tables are others")


def _schema_of(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    return connection.execute(query).fetchall()


def check_content(connection: sqlite3.Connection, path: Path) -> None:
    """Find damage: pages that do not belong together, and rows that are not what was written."""
    with database_errors(path, reading=True), read_transaction(connection):
        problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreDamaged(path, problem.splitlines()[-1])
        for table, names in columns().items():
            damaged = f"{table} NOT INDEXED WHERE checksum IS NOT checksum_of({names})"
            count = connection.execute(f"SELECT count(*) FROM {damaged}").fetchone()[0]  # noqa: S608 - our names
            if count:
                raise StoreDamaged(path, f"{count} rows of the table {table} are not as written")


def checksum_of(*values: str | bytes | float | None) -> int:
    """Return a CRC-32 over the values of a row."""
    checksum = 0
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode()
        checksum = zlib.crc32(content, zlib.crc32(len(content).to_bytes(8, "little"), checksum))
    return checksum


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of it or nothing; one writer at a time, another one waits here."""
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    with database_errors(path), connection:  # which commits, or rolls back if something fails
        connection.execute("BEGIN IMMEDIATE")
        yield
        for table, names in columns().items():
            written = f"checksum = checksum_of({names}) WHERE checksum IS NULL"
            connection.execute(f"UPDATE {table} SET {written}")  # noqa: S608 - our names


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything as of one moment, whatever a writer does meanwhile; also inside `transaction`."""
    if connection.in_transaction:
        yield
        return
    with connection:
        connection.execute("BEGIN")
        yield


def derived_hold(connection: sqlite3.Connection) -> bool:
    """Whether the derived tables belong to the recorded values."""
    return connection.execute("SELECT 1 FROM delta").fetchone() is not None


def invalidate_derived(connection: sqlite3.Connection) -> None:
    """Have the derived tables derived anew by whoever needs them next."""
    connection.execute("DELETE FROM delta")


def to_blob(tensor: Tensor) -> bytes:
    """Return the values of a float32 or int64 tensor as little-endian bytes."""
    array = tensor.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def from_blobs(blobs: list[bytes], shape: tuple[int, ...], dtype: str = "<f4") -> Tensor:
    """Stack what `to_blob` made of tensors of one shape."""
    import torch  # not needed to list classes or to undo, and takes seconds to import

    array = np.frombuffer(bytearray().join(blobs), dtype=dtype).reshape(len(blobs), *shape)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
