"""A cache of decoded pictures: every image file is decoded once, then read from a memory-mapped file.

A set of files is known by the digests of their contents and the size they are brought to. Its pixels lie
in `KEY.pixels`, back to back; `KEY.npz` holds their sizes, a checksum of each block, and which files could
not be read. The second file is written last, so a set is there whole or not at all; a damaged set is built
again. `STATE.key` spares the digests while the files' states on disk stay as they were.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO

import joblib
import numpy as np
from filelock import FileLock, Timeout
from PIL import Image

from fairshot.benchmarks.dataset import cache_folder
from fairshot.benchmarks.images import image_formats, read_image
from fairshot.benchmarks.pictures import Bytes, Ints, Pictures
from fairshot.errors import UserError
from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter

VERSION = b"1"
BLOCK = 2**24  # bytes under one checksum
CHUNK = 32  # files a worker decodes at a time
WAVE = 2048  # files in flight at most, which bounds memory when the disk is slower than the decoders


@dataclass(frozen=True)
class Resize:
    """The size pictures are brought to before they are kept."""

    side: int
    square: bool = False  # side x side, whatever the shape; else the short side, with the aspect ratio kept
    enlarge: bool = True  # else smaller pictures stay as they are

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width a picture gets."""
        short = min(height, width)
        if short < self.side and not self.enlarge:
            return height, width
        if self.square:
            return self.side, self.side
        # rounded down, as torchvision's Resize does
        return max(self.side * height // short, 1), max(self.side * width // short, 1)

    def apply(self, image: Bytes) -> Bytes:
        """Resize one picture (H, W, C), bilinearly, averaging where it shrinks."""
        height, width = self.size(*image.shape[:2])
        if (height, width) == image.shape[:2]:
            return image
        flat = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
        resized = np.asarray(flat.resize((width, height), Image.Resampling.BILINEAR))
        return resized.reshape(height, width, image.shape[2])


@dataclass(frozen=True)
class CachedPictures:
    """The pictures of some files; one that could not be read has no pixels and a reason."""

    pictures: Pictures
    unreadable: dict[int, str] = field(default_factory=dict)


def cached_pictures(
    files: Sequence[Path], resize: Resize, channels: int = 3, reporter: Reporter = SILENT
) -> CachedPictures:
    """Return the pictures of files from the cache, building it first where it is missing or damaged."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = _content_key(folder, files, resize, channels, reporter)
        cached = _open(folder, key, channels)
        if cached is None:
            with _alone(folder / f".{key}.lock", reporter):
                cached = _open(folder, key, channels)  # another process may have built it meanwhile
                if cached is None:
                    _build(folder, key, files, resize, channels, reporter)
                    cached = _open(folder, key, channels)
    except OSError as problem:
        raise UserError(
            f"the picture cache {folder} cannot be used: {problem}; FAIRSHOT_CACHE names another folder"
        ) from problem
    if cached is None:
        raise UserError(f"the picture cache {folder} does not keep what is written to it; is the disk sound?")
    return cached


@contextmanager
def _alone(lock: Path, reporter: Reporter) -> Iterator[None]:
    """Hold a lock, saying so when another process has it."""
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        reporter.say("another process is decoding the same pictures; waiting for it")
        held.acquire()
    try:
        yield
    finally:
        held.release()


def _content_key(
    folder: Path, files: Sequence[Path], resize: Resize, channels: int, reporter: Reporter
) -> str:
    """Name a set by the contents of its files and what is made of them."""
    made = hashlib.blake2b(VERSION + f"{resize} {channels} {image_formats()}".encode(), digest_size=16)
    state = made.copy()
    chunks = [files[first : first + CHUNK] for first in range(0, len(files), CHUNK)]
    with ThreadPoolExecutor(8) as threads:  # waits for disks, not for cores
        for lines in threads.map(lambda chunk: b"".join(map(_state, chunk)), chunks):
            state.update(lines)
        known = folder / f"{state.hexdigest()}.key"
        if known.is_file():
            return known.read_text()
        with reporter.track("looking through the files", len(files)) as advance:
            for digests in threads.map(lambda chunk: list(map(_digest, chunk)), chunks):
                made.update(b"".join(digests))
                advance(len(digests))
    write_atomically(known, made.hexdigest().encode())
    return made.hexdigest()


def _state(path: Path) -> bytes:
    """Describe a file by what changes whenever it is written, without reading it."""
    try:
        state = path.stat()
    except OSError as problem:
        return f"{path}|{problem.errno}\n".encode()
    return f"{path}|{state.st_ino}|{state.st_size}|{state.st_mtime_ns}|{state.st_ctime_ns}\n".encode()


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError as problem:  # the decoder will say so again, and the file count as unreadable
        return str(problem.errno).encode()


def _open(folder: Path, key: str, channels: int) -> CachedPictures | None:
    """Map a set into memory if it is there and undamaged."""
    try:
        with np.load(folder / f"{key}.npz", allow_pickle=False) as index:
            sizes, checksums = index["sizes"], index["checksums"]
            unreadable = dict(zip(index["unreadable"].tolist(), index["reasons"].tolist(), strict=True))
        with (folder / f"{key}.pixels").open("rb") as file:
            buffer = _mapped(file)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    if not np.array_equal(_checksums(buffer), checksums):
        return None
    lengths = sizes.prod(axis=1) * channels
    offsets: Ints = np.cumsum(lengths) - lengths
    return CachedPictures(Pictures(buffer, offsets, sizes, channels), unreadable)


def _mapped(file: IO[bytes]) -> Bytes:
    if os.fstat(file.fileno()).st_size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)


def _checksums(buffer: Bytes) -> Ints:
    blocks = [buffer[start : start + BLOCK] for start in range(0, len(buffer), BLOCK)]
    with ThreadPoolExecutor(joblib.cpu_count()) as threads:
        return np.array(list(threads.map(zlib.crc32, blocks)), dtype=np.int64)


def _build(
    folder: Path, key: str, files: Sequence[Path], resize: Resize, channels: int, reporter: Reporter
) -> None:
    """Decode all files and write the set."""
    sizes: list[Ints] = []
    unreadable: dict[int, str] = {}
    partial, pixels = folder / f"{key}.partial", folder / f"{key}.pixels"
    try:
        with partial.open("wb") as file, reporter.track("decoding pictures", len(files)) as advance:
            for chunk in _decoded(files, resize, channels):
                first = sum(map(len, sizes))
                file.write(chunk.pixels.data)
                unreadable |= {first + index: reason for index, reason in chunk.unreadable.items()}
                sizes.append(chunk.sizes)
                advance(len(chunk.sizes))
        with partial.open("rb") as file:
            checksums = _checksums(_mapped(file))
        os.replace(partial, pixels)
    finally:
        partial.unlink(missing_ok=True)
    index = BytesIO()
    np.savez(
        index,
        sizes=np.concatenate([np.empty((0, 2), np.int64), *sizes]),
        checksums=checksums,
        unreadable=np.array(list(unreadable), dtype=np.int64),
        reasons=np.array(list(unreadable.values()), dtype=np.str_),
    )
    write_atomically(folder / f"{key}.npz", index.getvalue())


@dataclass(frozen=True)
class _Chunk:
    """Some decoded files: their pixels back to back."""

    pixels: Bytes
    sizes: Ints
    unreadable: dict[int, str]


def _decoded(files: Sequence[Path], resize: Resize, channels: int) -> Iterator[_Chunk]:
    """Decode files with all cores, in their order."""
    processes = min(joblib.cpu_count(), -(-len(files) // (4 * CHUNK)))  # few files are not worth a process
    with joblib.Parallel(max(processes, 1), return_as="generator", idle_worker_timeout=10) as parallel:
        for start in range(0, len(files), WAVE):
            wave = files[start : start + WAVE]
            chunks = [wave[first : first + CHUNK] for first in range(0, len(wave), CHUNK)]
            yield from parallel(joblib.delayed(_decode)(chunk, resize, channels) for chunk in chunks)


def _decode(files: Sequence[Path], resize: Resize, channels: int) -> _Chunk:
    """Decode a chunk of files, in a process of its own."""
    images: list[Bytes] = []
    unreadable: dict[int, str] = {}
    for index, path in enumerate(files):
        try:
            images.append(resize.apply(read_image(path, channels)))
        except UserError as problem:
            unreadable[index] = str(problem).removeprefix(f"{path}: ")
            images.append(np.empty((0, 0, channels), np.uint8))
    return _Chunk(
        pixels=np.concatenate([image.reshape(-1) for image in images]),
        sizes=np.array([image.shape[:2] for image in images], dtype=np.int64),
        unreadable=unreadable,
    )
