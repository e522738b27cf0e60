"""A cache of decoded pictures: every image file is decoded once, then read from a memory-mapped file.

The key of a set of files is a digest of their contents and of the size they are resized to. `KEY.pixels`
holds the pixels one after the other; `KEY.npz` holds their sizes, a checksum per block, and which files could
not be read. The second file is written last, so that a set is complete or absent; a damaged set is built
again. `STATE.key` holds the key of files in a certain state on disk, so that unchanged files are not read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
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
import platformdirs
from filelock import FileLock, Timeout
from PIL import Image

from fairshot.benchmarks.images import image_formats, read_image
from fairshot.benchmarks.pictures import Bytes, Ints, Pictures
from fairshot.errors import BadImage, PathUnusable
from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter

VERSION = b"1"
CHANNELS = 3  # of every picture in the cache; a grey file gives three equal ones
KEY = re.compile(rb"[0-9a-f]{32}")
BLOCK = 2**24  # bytes under one checksum
CHUNK = 32  # files that a worker decodes at once
WAVE = 2048  # files that are decoded before all are written, which bounds memory when the disk is slow


def cache_folder() -> Path:
    """Return where decoded pictures are kept: `FAIRSHOT_CACHE`, or the platform's cache folder."""
    if os.environ.get("FAIRSHOT_CACHE"):
        return Path(os.environ["FAIRSHOT_CACHE"]).expanduser()
    return platformdirs.user_cache_path("fairshot") / "pictures"


@dataclass(frozen=True)
class Resize:
    """The size of the pictures in the cache."""

    side: int
    square: bool = False  # to side x side; otherwise the short side becomes `side`, and the shape is kept
    enlarge: bool = True  # otherwise smaller pictures keep their size

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the new height and width of a picture."""
        short = min(height, width)
        if short < self.side and not self.enlarge:
            return height, width
        if self.square:
            return self.side, self.side
        # rounded down, as in torchvision's Resize
        return max(self.side * height // short, 1), max(self.side * width // short, 1)

    def apply(self, image: Bytes) -> Bytes:
        """Resize one picture (H, W, C) bilinearly, with antialiasing."""
        height, width = self.size(*image.shape[:2])
        if (height, width) == image.shape[:2]:
            return image
        flat = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
        resized = np.asarray(flat.resize((width, height), Image.Resampling.BILINEAR))
        return resized.reshape(height, width, image.shape[2])


@dataclass(frozen=True)
class CachedPictures:
    """The pictures of some files. One that could not be read has no pixels, but a reason by its index."""

    pictures: Pictures
    unreadable: dict[int, str] = field(default_factory=dict)


def cached_pictures(
    files: Sequence[Path], resize: Resize, reporter: Reporter = SILENT, folder: Path | None = None
) -> CachedPictures:
    """Return the pictures of files from the cache, building it first if it is missing or damaged."""
    folder = folder or cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = _content_key(folder, files, resize, reporter)
        cached = _open(folder, key)
        if cached is None:
            with _locked(folder / f".{key}.lock", reporter):
                cached = _open(folder, key)  # another process may have built it meanwhile
                if cached is None:
                    _build(folder, key, files, resize, reporter)
                    cached = _open(folder, key)
    except OSError as problem:
        raise PathUnusable(
            folder, f"cannot be used as picture cache: {problem}; set FAIRSHOT_CACHE to another folder"
        ) from problem
    if cached is None:
        raise PathUnusable(folder, "does not keep the pictures that are written to it; is the disk sound?")
    return cached


@contextmanager
def _locked(path: Path, reporter: Reporter) -> Iterator[None]:
    """Hold a lock, and report if that has to wait for another process."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.say("another process is decoding the same pictures; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _content_key(folder: Path, files: Sequence[Path], resize: Resize, reporter: Reporter) -> str:
    """Return the key of a set: a digest of the contents of its files and of what is made of them."""
    contents = hashlib.blake2b(VERSION + f"{resize} {CHANNELS} {image_formats()}".encode(), digest_size=16)
    state = contents.copy()
    chunks = [files[first : first + CHUNK] for first in range(0, len(files), CHUNK)]
    with ThreadPoolExecutor(8) as threads:  # they wait for disks, so more than there are cores
        for lines in threads.map(lambda chunk: b"".join(map(_state, chunk)), chunks):
            state.update(lines)
        known = folder / f"{state.hexdigest()}.key"
        if known.is_file() and KEY.fullmatch(key := known.read_bytes()):  # else it is damaged
            return key.decode()
        with reporter.track("reading the files", len(files)) as advance:
            for digests in threads.map(lambda chunk: list(map(_digest, chunk)), chunks):
                contents.update(b"".join(digests))
                advance(len(digests))
    write_atomically(known, contents.hexdigest().encode())
    return contents.hexdigest()


def _state(path: Path) -> bytes:
    """Describe a file, without reading it, by what changes whenever it is written."""
    try:
        state = path.stat()
    except OSError as problem:
        return f"{path}|{problem.errno}\n".encode()
    return f"{path}|{state.st_ino}|{state.st_size}|{state.st_mtime_ns}|{state.st_ctime_ns}\n".encode()


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError as problem:  # the decoder will fail as well, and the file count as unreadable
        return str(problem.errno).encode()


def _open(folder: Path, key: str) -> CachedPictures | None:
    """Map a set into memory if it exists and is undamaged."""
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
    lengths = sizes.prod(axis=1) * CHANNELS
    offsets: Ints = np.cumsum(lengths) - lengths
    return CachedPictures(Pictures(buffer, offsets, sizes, CHANNELS), unreadable)


def _mapped(file: IO[bytes]) -> Bytes:
    if os.fstat(file.fileno()).st_size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)


def _checksums(buffer: Bytes) -> Ints:
    blocks = [buffer[start : start + BLOCK] for start in range(0, len(buffer), BLOCK)]
    with ThreadPoolExecutor(joblib.cpu_count()) as threads:
        return np.array(list(threads.map(zlib.crc32, blocks)), dtype=np.int64)


def _build(folder: Path, key: str, files: Sequence[Path], resize: Resize, reporter: Reporter) -> None:
    """Decode all files and write the set."""
    sizes: list[tuple[int, ...]] = []
    unreadable: dict[int, str] = {}
    partial, pixels = folder / f"{key}.partial", folder / f"{key}.pixels"
    try:
        with partial.open("wb") as file, reporter.track("decoding pictures", len(files)) as advance:
            for chunk in _decoded(files, resize):
                for image in chunk:
                    if isinstance(image, str):
                        unreadable[len(sizes)] = image
                        sizes.append((0, 0))
                    else:
                        file.write(image.tobytes())
                        sizes.append(image.shape[:2])
                advance(len(chunk))
        with partial.open("rb") as file:
            checksums = _checksums(_mapped(file))
        os.replace(partial, pixels)
    finally:
        partial.unlink(missing_ok=True)
    index = BytesIO()
    np.savez(
        index,
        sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2),
        checksums=checksums,
        unreadable=np.array(list(unreadable), dtype=np.int64),
        reasons=np.array(list(unreadable.values()), dtype=np.str_),
    )
    write_atomically(folder / f"{key}.npz", index.getvalue())


def _decoded(files: Sequence[Path], resize: Resize) -> Iterator[list[Bytes | str]]:
    """Decode files on all cores, in their order, a chunk at a time."""
    # starting a process takes longer than decoding few files
    processes = min(joblib.cpu_count(), -(-len(files) // (4 * CHUNK)))
    with joblib.Parallel(max(processes, 1), return_as="generator", idle_worker_timeout=10) as parallel:
        for start in range(0, len(files), WAVE):
            wave = files[start : start + WAVE]
            chunks = [wave[first : first + CHUNK] for first in range(0, len(wave), CHUNK)]
            yield from parallel(joblib.delayed(_decode)(chunk, resize) for chunk in chunks)


def _decode(files: Sequence[Path], resize: Resize) -> list[Bytes | str]:
    """Decode a chunk of files; instead of a picture that cannot be read return the reason."""
    images: list[Bytes | str] = []
    for path in files:
        try:
            images.append(resize.apply(read_image(path, CHANNELS)))
        except BadImage as problem:
            images.append(problem.reason)
    return images
