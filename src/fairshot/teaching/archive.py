"""A store as one archive, and back, without trust in what an archive contains."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from pathlib import Path

import torch

from fairshot.errors import UserError
from fairshot.teaching.calibration import derive_shifts
from fairshot.teaching.checking import check_values
from fairshot.teaching.database import connect, to_blob, transaction
from fairshot.teaching.derived import Shapes, derive
from fairshot.teaching.network import FILE_NAME, Network
from fairshot.teaching.store import DATABASE, Store

MEMBERS = (FILE_NAME, DATABASE)
BYTES_LIMIT = 64 * 2**30  # of one member, unpacked


def export_archive(folder: str | Path, archive: str | Path) -> None:
    """Write a store, as it is at this moment, into one zip file."""
    folder, archive = Path(folder), Path(archive)
    Store(folder).close()  # refuses what is none
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as place:
        database, partial = Path(place) / DATABASE, Path(place) / "archive.zip"
        connection = connect(folder / DATABASE)
        connection.execute("VACUUM INTO ?", (str(database),))
        connection.close()
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            packed.write(folder / FILE_NAME, FILE_NAME)
            packed.write(database, DATABASE)
        os.replace(partial, archive)


def import_archive(archive: str | Path, folder: str | Path) -> None:
    """Unpack a store; nothing of an archive that is refused stays on disk."""
    archive, folder = Path(archive), Path(folder)
    if folder.exists():
        raise UserError(f"{folder} exists already; give the name of a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _unpack(archive, partial)
        _check(partial)
        partial.chmod(0o755)
        os.replace(partial, folder)
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error, sqlite3.Error) as problem:
        raise UserError(f"{archive} cannot be imported: {problem}") from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the two files a store consists of; an archive with anything else is refused."""
    with zipfile.ZipFile(archive) as packed:
        names = sorted(packed.namelist())
        if names != sorted(MEMBERS):
            raise UserError(
                f"{archive} is refused: a store consists of {' and '.join(MEMBERS)}, "
                f"but the archive holds {', '.join(map(repr, names[:5]))}"
            )
        for name in MEMBERS:
            left = BYTES_LIMIT
            with packed.open(name) as source, (target / name).open("xb") as file:
                while block := source.read(2**20):
                    left -= len(block)
                    if left < 0:
                        raise UserError(f"{archive} is refused: {name} is larger than {BYTES_LIMIT:,} bytes")
                    file.write(block)


def _check(folder: Path) -> None:
    """Refuse facts that make no sense, and compute here all that follows from them."""
    network = Network.read(folder / FILE_NAME)
    shapes = Shapes(network.shape, network.shape_tilde)
    connection = connect(folder / DATABASE)
    try:
        for pragma in ("integrity_check", "foreign_key_check"):
            problems = [row[0] for row in connection.execute(f"PRAGMA {pragma}") if row[0] != "ok"]
            if problems:
                raise UserError(f"the database of the store is damaged: {problems[0]}")
        check_values(connection, shapes)
        with transaction(connection):
            connection.execute("DELETE FROM prototypes")
            zeros = to_blob(torch.zeros(shapes.specific, dtype=torch.int64))
            connection.execute("DELETE FROM shifts")
            connection.execute("DELETE FROM delta")
            connection.execute("INSERT INTO delta SELECT id, ? FROM base", (zeros,))
            derive(connection, {row[0] for row in connection.execute("SELECT id FROM classes")}, shapes)
            derive_shifts(connection, shapes)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    Store(folder).close()
