"""Photos given to a command: files, and folders of them; those that cannot be read are named and skipped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fairshot.benchmarks.images import SUFFIXES, is_image_name
from fairshot.benchmarks.pictures import Pictures
from fairshot.cli.console import print_message
from fairshot.errors import UserError

if TYPE_CHECKING:
    from fairshot.teaching import Store


def read_photos(store: Store, given: Iterable[Path]) -> tuple[list[Path], Pictures]:
    """Return the files that can be read, and their pictures as the embedder of a store wants them."""
    read = store.network.preparation.read(_files(given))
    if not read.files:
        file, reason = next(iter(read.unreadable.items()))
        number = len(read.unreadable)
        raise UserError(f"none of {number} images can be read: " * (number > 1) + f"{file}: {reason}")
    for file, reason in read.unreadable.items():
        print_message(f"skipped {file}: {reason}")
    return read.files, Pictures.from_list(read.pictures)


def _files(given: Iterable[Path]) -> list[Path]:
    """Spread folders into their image files."""
    files: list[Path] = []
    for path in given:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
        files += _inside(path) if path.is_dir() else [path]
    return files


def _inside(folder: Path) -> list[Path]:
    """List the image files of a folder; where they lie one level deeper, say so."""
    inside = sorted(file for file in folder.iterdir() if is_image_name(file.name))
    if inside:
        return inside
    deeper = sorted({file.parent for file in folder.glob("*/*") if is_image_name(file.name)})
    if deeper:
        raise UserError(
            f"{folder} holds no image files itself, but {len(deeper)} of its sub-folders do: give them, for "
            f"example {deeper[0]}, or all: {folder}/*"
        )
    raise UserError(f"{folder} holds no image files ({', '.join(sorted(SUFFIXES))})")
