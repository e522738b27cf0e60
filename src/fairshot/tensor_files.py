"""Files of tensors: safetensors with a checksum of the whole file among their metadata."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from fairshot.errors import DamagedFile, FileRefused
from fairshot.files import write_atomically

CHECKSUM = "sha256"
HEADER_BYTES = 2**24  # at most, of names, shapes and metadata
_BLANK = b"0" * 64  # in the place of the checksum while it is computed
_FOUND = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Content = bytes | mmap.mmap


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors of any device and layout, and some texts, with a checksum."""
    plain = {name: value.contiguous().cpu() for name, value in tensors.items()}
    content = _with_metadata(save(plain), {CHECKSUM: _BLANK.decode(), **metadata})
    begin, end = _place(path, content)
    digest = _digest(content, begin, end)
    write_atomically(path, b"".join([memoryview(content)[:begin], digest, memoryview(content)[end:]]))


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Add texts to the header; safetensors would write them in an order that changes from run to run."""
    length = int.from_bytes(content[:8], "little")
    header = {"__metadata__": metadata, **json.loads(content[8 : 8 + length])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(content)[8 + length :]])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file whose checksum fits."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise FileRefused(path, f"it cannot be read: {problem.strerror}") from None
    _check(path, content)
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as problem:
        raise FileRefused(path, f"it is no safetensors file: {problem}") from None


def read_metadata(path: Path) -> dict[str, str]:
    """Return the texts of a file that `read_tensors` or `check_tensors` has checked."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def check_tensors(path: Path) -> None:
    """Refuse a file whose checksum does not fit, without loading it."""
    with path.open("rb") as file:
        if not path.stat().st_size:  # which cannot be mapped
            raise DamagedFile(path, "it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check(path, content)


def _check(path: Path, content: Content) -> None:
    begin, end = _place(path, content)
    if _digest(content, begin, end) != content[begin:end]:
        raise DamagedFile(path, "its content does not fit its checksum")


def _place(path: Path, content: Content) -> tuple[int, int]:
    """Return where the checksum lies, which is in the header."""
    header = int.from_bytes(content[:8], "little")
    found = _FOUND.search(content[8 : 8 + min(header, HEADER_BYTES)])
    if found is None:
        raise DamagedFile(path, "it has no checksum")
    return 8 + found.start(1), 8 + found.end(1)


def _digest(content: Content, begin: int, end: int) -> bytes:
    """Return the checksum of all bytes but its own."""
    with memoryview(content) as view:  # while there is one, a mapped file cannot be closed
        digest = hashlib.sha256(view[:begin])
        digest.update(_BLANK)
        digest.update(view[end:])
        return digest.hexdigest().encode()
