"""A store as one zip archive, and back; what an archive contains is not trusted."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import zipfile
import zlib
from pathlib import Path

from fairshot.errors import UserError
from fairshot.teaching.base_classifier import CLASSIFIER, read_classifier
from fairshot.teaching.checking import check_values
from fairshot.teaching.creation import clear_derived
from fairshot.teaching.database import DATABASE, connect, transaction
from fairshot.teaching.derived import Layout, derive
from fairshot.teaching.folders import new_folder
from fairshot.teaching.network import EMBEDDER, Network
from fairshot.teaching.store import Store

MEMBERS = (EMBEDDER, CLASSIFIER, DATABASE)
BYTES_LIMIT = 64 * 2**30  # of one member, unpacked


def export_archive(folder: str | Path, archive: str | Path) -> None:
    """Write a store, as it is at this moment, into one zip file."""
    folder, archive = Path(folder), Path(archive)
    Store(folder).close()  # refuses a folder that is no store
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
        database, partial = Path(temporary) / DATABASE, Path(temporary) / "archive.zip"
        connection = connect(folder / DATABASE)
        connection.execute("VACUUM INTO ?", (str(database),))
        connection.close()
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for name in (EMBEDDER, CLASSIFIER):
                packed.write(folder / name, name)
            packed.write(database, DATABASE)
        os.replace(partial, archive)


def import_archive(archive: str | Path, folder: str | Path) -> None:
    """Unpack a store; nothing of an archive that is refused stays on disk."""
    try:
        with new_folder(Path(folder)) as temporary:
            _unpack(Path(archive), temporary)
            _check(temporary)
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error, sqlite3.Error) as problem:
        raise UserError(f"{archive} cannot be imported: {problem}") from problem


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the files a store consists of; an archive with anything else is refused."""
    with zipfile.ZipFile(archive) as packed:
        names = sorted(packed.namelist())
        if names != sorted(MEMBERS):
            raise UserError(
                f"{archive} is refused: a store consists of {', '.join(MEMBERS)}, "
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
    """Refuse recorded values that make no sense, and derive all others here."""
    connection = connect(folder / DATABASE)
    try:
        for pragma in ("integrity_check", "foreign_key_check"):
            problems = [row[0] for row in connection.execute(f"PRAGMA {pragma}") if row[0] != "ok"]
            if problems:
                raise UserError(f"the database of the store is damaged: {problems[0]}")
        network = Network.read(folder / EMBEDDER)
        base = read_classifier(folder / CLASSIFIER, network)
        layout = Layout.of(network, base)
        check_values(connection, base, layout)
        with transaction(connection):
            clear_derived(connection, base)
            derive(connection, {row[0] for row in connection.execute("SELECT id FROM classes")}, base, layout)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    Store(folder).close()
