"""Damage done to files: flipped bits, truncations, zeroed blocks; and what comes of reading them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairshot.errors import UserError

BLOCKS = (16, 512, 4096)  # bytes that are zeroed together


@dataclass(frozen=True)
class Damage:
    """The content of a file after something happened to it."""

    name: str  # what happened
    content: bytes


@dataclass
class Outcome:
    """What a reader made of damaged files."""

    refused: int = 0  # one message that names the file
    harmless: int = 0  # the same answers as before
    silent: list[str] = field(default_factory=list)  # other answers, without a message
    tracebacks: list[str] = field(
        default_factory=list
    )  # any other error, or a message that does not name the file


def damages(content: bytes, count: int, seed: int) -> Iterator[Damage]:
    """Damage the content of a file in `count` ways, always the same for one seed; half are flipped bits."""
    chance = random.Random(seed)
    for number in range(count):
        match number % 4:
            case 0 | 1:
                # The first bytes of a file are its headers, of which a flip anywhere else hits few.
                within = len(content) if number % 8 else min(len(content), 4096)
                yield flipped_bit(content, chance.randrange(8 * within))
            case 2:
                length = chance.choice([0, len(content) - 1, chance.randrange(len(content))])
                yield Damage(f"cut to {length} bytes", content[:length])
            case _:
                size = chance.choice(BLOCKS)
                start = chance.randrange(max(1, len(content) - size)) // size * size
                block = content[start : start + size]
                zeroed = content[:start] + bytes(len(block)) + content[start + size :]
                yield Damage(f"{size} bytes from {start} zeroed", zeroed)


def flipped_bit(content: bytes, bit: int) -> Damage:
    """Flip one bit."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return Damage(f"bit {bit % 8} of byte {bit // 8} flipped", bytes(changed))


def read_damaged(
    path: Path, count: int, seed: int, read: Callable[[], Any], outcome: Outcome | None = None
) -> Outcome:
    """Damage a file in many ways, and read it each time; the file is as before in the end.

    `read` returns all that can be asked of the file, or raises a `UserError` that names it.
    """
    outcome = outcome or Outcome()
    content, expected = path.read_bytes(), read()
    try:
        for damage in damages(content, count, seed):
            path.write_bytes(damage.content)
            case = f"{path.name}: {damage.name}"
            try:
                found = read()
            except UserError as problem:
                if path.name in str(problem) or str(path.parent) in str(problem):
                    outcome.refused += 1
                else:
                    outcome.tracebacks.append(f"{case}: {problem}")
            except Exception as problem:
                outcome.tracebacks.append(f"{case}: {problem!r}")
            else:
                if found == expected:
                    outcome.harmless += 1
                else:
                    outcome.silent.append(case)
    finally:
        path.write_bytes(content)
    return outcome
