"""Damage in the write-ahead log that a killed process leaves beside a database.

SQLite reads the log as far as its checksums are right, and takes the rest for a change that was never
finished: a damaged log would lose finished changes without a message. That they are missing is found here by
the shared-memory file beside the log, which says how many of its frames belong to finished changes, and by
later frames, because a frame is never written before an earlier one. The formats are those of
https://sqlite.org/walformat.html.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fairshot.teaching.errors import LogDamaged

HEADER, FRAME_HEADER = 32, 24  # bytes
MAGIC = 0x377F0682  # the lowest bit: the checksums are of big-endian words
AT_ONCE = 1024  # frames
Words = npt.NDArray[np.uint32]


def check_log(database: Path) -> None:
    """Refuse a log that lacks changes which were finished."""
    path = database.with_name(f"{database.name}-wal")
    finished, finished_salts = _finished_frames(database.with_name(f"{database.name}-shm"))
    content = _read_at_rest(path)
    if content is None:
        return
    if len(content) <= HEADER:
        if finished:
            raise LogDamaged(path)
        return
    header = np.frombuffer(content, ">u4", 8)
    size = int(header[2])
    if header[0] | 1 != MAGIC | 1 or not 512 <= size <= 2**16:
        raise LogDamaged(path)
    words = np.dtype(">u4" if header[0] & 1 else "<u4")
    checksum = _checksums(np.frombuffer(content, words, 6).reshape(1, -1), np.zeros(2, np.uint32))
    if checksum[-1].tolist() != header[6:].tolist():
        raise LogDamaged(path)
    count = (len(content) - HEADER) // (FRAME_HEADER + size)
    frames = np.frombuffer(content, np.uint8, count * (FRAME_HEADER + size), HEADER).reshape(
        count, FRAME_HEADER + size
    )
    current = (frames[:, 8:16] == np.frombuffer(content[16:24], np.uint8)).all(1)
    covered = np.concatenate([frames[:, :8], frames[:, FRAME_HEADER:]], axis=1).view(words)
    right = (_checksums(covered, checksum[-1]) == frames[:, 16:24].copy().view(">u4")).all(1) & current
    intact = count if right.all() else int(right.argmin())
    committed_later = current[intact + 1 :] & frames[intact + 1 :, 4:8].any(1)
    if committed_later.any() or (finished_salts == content[16:24] and finished > intact):
        raise LogDamaged(path)


def _checksums(words: npt.NDArray[np.generic], start: Words) -> Words:
    """Return the checksums (N, 2) of rows of words (N, W), each of which goes on from that of the row before.

    For each two words x, y the checksum s, t becomes s + t + x, s + 2 t + x + y: the sum over a row is linear
    in its words, and can be computed for many rows at once.
    """
    weights, power = _weights(words.shape[1] // 2)
    checksums, (s, t) = [], (int(value) for value in start)
    for begin in range(0, len(words), AT_ONCE):
        some = words[begin : begin + AT_ONCE].astype(np.uint32)
        for own in np.stack([(some * weight).sum(1, dtype=np.uint32) for weight in weights], axis=1).tolist():
            s, t = ((row[0] * s + row[1] * t + each) % 2**32 for row, each in zip(power, own, strict=True))
            checksums.append((s, t))
    return np.array(checksums, np.uint32).reshape(-1, 2)


@cache
def _weights(pairs: int) -> tuple[tuple[Words, Words], list[list[int]]]:
    """Return what each word of a row adds to both sums, and what the sums before the row add (2, 2)."""
    rows, power = [], [[1, 0], [0, 1]]
    for _ in range(pairs):  # from the last pair to the first
        rows.append([[(row[0] + row[1]) % 2**32, row[1]] for row in power])
        power = [[(row[0] + row[1]) % 2**32, (row[0] + 2 * row[1]) % 2**32] for row in power]
    ordered = np.array(rows[::-1], np.uint32)  # (pairs, sum, word)
    return (ordered[:, 0].reshape(-1), ordered[:, 1].reshape(-1)), power


def _read_at_rest(path: Path) -> bytes | None:
    """Read a log that is not begun anew meanwhile; none if there is none."""
    while path.is_file():
        content = path.read_bytes()
        with path.open("rb") as file:
            if file.read(HEADER) == content[:HEADER]:
                return content
    return None


def _finished_frames(path: Path) -> tuple[int, bytes]:
    """Return how many frames belong to finished changes, and the salts of their log; 0 if nothing says it."""
    if not path.is_file():
        return 0, b""
    with path.open("rb") as file:
        first, second = file.read(48), file.read(48)
    if first != second or len(first) < 48:  # a process is just writing it
        return 0, b""
    return int(np.frombuffer(first, np.uint32)[4]), first[32:40]
