"""New files and folders that appear whole or not at all, and temporary folders that do not stay for ever."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairshot.files import writing
from fairshot.teaching.errors import FolderExists

TEMPORARY = ".fairshot-tmp"  # suffix of our temporary folders
OLD = 3600.0  # seconds without a change, after which the process that made a temporary folder was killed


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something; worth asking before long work whose result goes there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderExists(folder)


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """Give a temporary folder beside a file or folder to be made; remove old ones that kills have left."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_old(target.parent)
        temporary = Path(tempfile.mkdtemp(TEMPORARY, f".{target.name}.", target.parent))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder, which becomes the new one unless something fails: whole or absent."""
    check_free(folder)
    with temporary_beside(folder) as temporary:
        yield temporary
        temporary.chmod(0o755)
        os.replace(temporary, folder)


def _remove_old(parent: Path) -> None:
    for folder in parent.glob(f".*{TEMPORARY}"):
        if folder.is_symlink() or not folder.is_dir():
            continue
        changes = [path.lstat().st_mtime for path in (folder, *folder.rglob("*"))]
        if max(changes) < time.time() - OLD:
            shutil.rmtree(folder, ignore_errors=True)
