"""New folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairshot.errors import UserError


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something; worth asking before long work whose result goes there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already; give the name of a new folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder, which becomes the new one unless something fails: whole or absent."""
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
