"""A store as one zip archive, and back; what an archive contains is not trusted."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import struct
import zipfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import IO

from fairshot.errors import BadInput, CannotWrite, UserError
from fairshot.teaching.base_classifier import read_classifier
from fairshot.teaching.base_counts import CLASSIFIER
from fairshot.teaching.checking import check_values
from fairshot.teaching.database import (
    DATABASE,
    TABLES,
    columns,
    connect,
    create,
    database_errors,
    open_checked,
    transaction,
)
from fairshot.teaching.derived import Layout, derive_all
from fairshot.teaching.errors import ArchiveRefused
from fairshot.teaching.folders import new_folder, temporary_beside
from fairshot.teaching.network import EMBEDDER, Network
from fairshot.teaching.store import Store

MEMBERS = (EMBEDDER, CLASSIFIER, DATABASE)
# Weights, features and small images hardly shrink: a store unpacks to a few times the size of its archive.
MOST_TIMES, MOST_BEYOND = 20, 16 * 2**20
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises for damaged and foreign archives; of RuntimeError, members it cannot unpack.
NO_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
FOREIGN = "foreign.sqlite"  # the database of an archive, which is read once and not kept


def export_archive(folder: str | Path, archive: str | Path) -> None:
    """Write a store, as it is at this moment, into one zip file."""
    folder, archive = Path(folder), Path(archive)
    Store(folder).close()  # refuses a folder that is no store, and one that is damaged
    with temporary_beside(archive) as temporary:
        database, partial = temporary / DATABASE, temporary / "archive.zip"
        with closing(connect(folder / DATABASE)) as connection, database_errors(archive):
            connection.execute("VACUUM INTO ?", (str(database),))
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for name in (EMBEDDER, CLASSIFIER):
                packed.write(folder / name, name)
            packed.write(database, DATABASE)
        os.replace(partial, archive)


def import_archive(archive: str | Path, folder: str | Path) -> None:
    """Unpack a store; nothing of an archive that is refused stays on disk."""
    archive, folder = Path(archive), Path(folder)
    with new_folder(folder) as temporary:
        try:
            _unpack(archive, temporary)
            _rebuild(temporary)
        except CannotWrite as problem:
            raise CannotWrite(folder, problem.reason, problem.disk_full) from problem
        except (UserError, RuntimeError, sqlite3.Error) as problem:
            reason = problem.reason if isinstance(problem, BadInput) else str(problem)
            raise ArchiveRefused(archive, reason.replace(f"{temporary}{os.sep}", "")) from problem


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the files a store consists of."""
    try:
        with _reading(archive) as file, zipfile.ZipFile(file) as packed:
            _check_members(packed, archive.stat().st_size)
            for name in MEMBERS:
                path = target / (FOREIGN if name == DATABASE else name)
                with packed.open(name) as source, path.open("xb") as copy:
                    shutil.copyfileobj(source, copy, 2**20)
    except UserError:
        raise
    except NO_ZIP as problem:
        raise BadInput("archive", str(problem)) from problem
    except OSError as problem:
        if problem.errno == errno.EINVAL:  # a place before the beginning of the archive
            raise BadInput("archive", "it is damaged") from problem
        raise


def _check_members(packed: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive with anything else than the files of a store, or one that unpacks to far more."""
    names = sorted(packed.namelist())
    if names != sorted(MEMBERS):
        raise BadInput(
            "archive",
            f"a store consists of {', '.join(MEMBERS)}, "
            f"but the archive holds {', '.join(f'{name!r:.60}' for name in names[:5])}",
        )
    if any(member.compress_type not in COMPRESSIONS for member in packed.infolist()):
        raise BadInput("archive", "it is compressed otherwise than a store")
    unpacked, most = sum(member.file_size for member in packed.infolist()), MOST_BEYOND + MOST_TIMES * size
    if unpacked > most:
        raise BadInput(
            "archive", f"it would unpack to {unpacked:,} bytes; a store of its size has at most {most:,}"
        )


def _reading(archive: Path) -> IO[bytes]:
    """Open an archive; that it cannot be read is not to be taken for a folder that cannot be written."""
    try:
        return archive.open("rb")
    except OSError as problem:
        raise BadInput("archive", problem.strerror or str(problem)) from problem


def _rebuild(folder: Path) -> None:
    """Make a database of our own from the recorded values of a foreign one, and derive all others here."""
    network = Network.read(folder / EMBEDDER)
    base = read_classifier(folder / CLASSIFIER, network)
    layout = Layout.of(network, base)
    with closing(create(folder / DATABASE)) as connection:
        with (
            closing(open_checked(folder / FOREIGN, "mode=ro&immutable=1")) as foreign,
            transaction(connection),
        ):
            _copy(foreign, connection)
        check_values(connection, base, layout)
        with transaction(connection):
            derive_all(connection, base, layout)
    (folder / FOREIGN).unlink()
    Store(folder).close()


def _copy(foreign: sqlite3.Connection, connection: sqlite3.Connection) -> None:
    """Copy the rows of all tables of recorded values; what does not fit our schema is an error."""
    connection.execute("PRAGMA defer_foreign_keys = ON")  # an event names the later one that undid it
    for table in TABLES:
        names = columns()[table]
        marks = ", ".join("?" for _ in names.split(","))
        rows = foreign.execute(f"SELECT {names} FROM {table} NOT INDEXED")  # noqa: S608 - our names
        insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - our names
        connection.executemany(insert, rows)
