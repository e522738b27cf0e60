"""Photos given to a command: files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fairshot.benchmarks.images import SUFFIXES, is_image_name
from fairshot.cli.console import print_message
from fairshot.errors import UserError


def photo_files(given: Iterable[Path]) -> list[Path]:
    """Replace folders by the image files they hold."""
    files: list[Path] = []
    for path in given:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
        files += _inside(path) if path.is_dir() else [path]
    return files


def print_skipped(unreadable: Mapping[str, str]) -> None:
    """Name the files that could not be read."""
    for file, reason in unreadable.items():
        print_message(f"skipped {file}: {reason}")


def _inside(folder: Path) -> list[Path]:
    """List the image files of a folder; if they lie one level deeper, say so."""
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
