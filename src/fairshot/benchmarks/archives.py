"""Archives of datasets: unpacked once, and refused if they hold anything but plain files of bounded size."""

from __future__ import annotations

import lzma
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from filelock import FileLock

from fairshot.errors import FileRefused
from fairshot.progress import SILENT, Reporter

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
BYTES_LIMIT = 16 * 2**30  # of all files together
FILES_LIMIT = 500_000
HEADER_LIMIT = 2**16  # bytes of the name of a member and of what else is noted about it
LONGEST = 200  # characters of a name that messages repeat
_EXTENDED = (  # types of headers before that of the member itself, for long names and further notes
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_STAMP = ".unpacked-from"
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    ValueError,
)


def stem(archive: Path) -> str:
    """Return the name of an archive without its suffix."""
    suffix = next((suffix for suffix in SUFFIXES if archive.name.lower().endswith(suffix)), "")
    return archive.name[: len(archive.name) - len(suffix)]


def unpack_folder(archive: Path) -> Path:
    """Return the folder that an archive is unpacked into, which lies beside it."""
    return archive.with_name(f"{stem(archive)}.unpacked")


def unpack(archive: Path, reporter: Reporter = SILENT, bytes_limit: int = BYTES_LIMIT) -> Path:
    """Unpack an archive beside itself, completely or not at all, unless it was unpacked before.

    Archives with members outside the folder, links, devices, or more than the limits allow are refused, and
    nothing of them stays on disk. Returns the folder.
    """
    folder = unpack_folder(archive)
    partial = archive.with_name(f".{folder.name}.partial")
    try:
        stamp = f"{archive.stat().st_size} {archive.stat().st_mtime_ns}".encode()
        with FileLock(archive.with_name(f".{archive.name}.lock")):  # nobody else has the partial folder
            if (folder / _STAMP).is_file() and (folder / _STAMP).read_bytes() == stamp:
                return folder
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _unpack_into(partial, archive, reporter, bytes_limit)
                (partial / _STAMP).write_bytes(stamp)
                shutil.rmtree(folder, ignore_errors=True)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except FileRefused:
        raise
    except _UNREADABLE as problem:
        raise FileRefused(archive, f"it cannot be unpacked: {problem}") from problem
    return folder


def _unpack_into(target: Path, archive: Path, reporter: Reporter, bytes_limit: int) -> None:
    written = files = 0
    folders: set[Path] = set()
    target.mkdir(parents=True)
    with (
        _members(archive) as members,
        reporter.track(f"unpacking {archive.name}", archive.stat().st_size) as advance,
    ):
        for name, source, position in members:
            path = target / _inside(archive, name)
            files += 1
            _within_limits(archive, written, files, bytes_limit)
            if path.parent not in folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                folders.add(path.parent)
            with path.open("xb") as file:
                while block := source.read(2**20):
                    written += len(block)
                    _within_limits(archive, written, files, bytes_limit)
                    file.write(block)
            advance(position)


def _within_limits(archive: Path, written: int, files: int, bytes_limit: int) -> None:
    if written > bytes_limit or files > FILES_LIMIT:
        raise FileRefused(archive, f"it unpacks to more than {bytes_limit:,} bytes or {FILES_LIMIT:,} files")


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Return the path of a member if it lies inside the folder, on any platform."""
    path = PurePosixPath(name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts or not path.parts
    if outside or ":" in path.parts[0] or "\0" in name:
        raise FileRefused(
            archive, f"its member {name[:LONGEST]!r} lies outside the folder it is unpacked into"
        )
    return path


Members = Iterator[tuple[str, IO[bytes], int]]  # name, content, bytes of the archive read for it


@contextmanager
def _members(archive: Path) -> Iterator[Members]:
    """Open an archive and iterate over its files."""
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zip_file:
            yield _zip_members(archive, zip_file)
    else:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r:*", tarinfo=_Header) as tar:
            yield _tar_members(archive, tar, raw)


class _Header(tarfile.TarInfo):
    """The header of a member, which tarfile would read into memory and parse whatever its size."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENDED and self.size > HEADER_LIMIT:
            raise tarfile.ReadError(f"one of its headers has more than {HEADER_LIMIT:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    def _refuse_sparse(self, *_: object) -> None:
        raise tarfile.ReadError("it holds a sparse file, which takes more space than it brings")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def _zip_members(archive: Path, zip_file: zipfile.ZipFile) -> Members:
    for member in zip_file.infolist():
        if member.is_dir():
            continue
        if (member.external_attr >> 16) & 0o170000 == 0o120000:
            raise _not_a_file(archive, member.filename)
        with zip_file.open(member) as content:
            yield member.filename, content, member.compress_size


def _tar_members(archive: Path, tar: tarfile.TarFile, raw: IO[bytes]) -> Members:
    passed = 0
    for count, member in enumerate(tar, start=1):
        _within_limits(archive, 0, count, BYTES_LIMIT)  # folders count too: each takes memory
        if member.isdir():
            continue
        content = tar.extractfile(member) if member.isreg() else None
        if content is None:
            raise _not_a_file(archive, member.name)
        yield member.name, content, raw.tell() - passed
        passed = raw.tell()


def _not_a_file(archive: Path, name: str) -> FileRefused:
    return FileRefused(archive, f"its member {name[:LONGEST]!r} is a link or a device, not a file")
