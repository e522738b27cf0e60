"""Compress the official session lists into the package.

    python scripts/make_lists.py INDEX_LISTS src/fairshot/benchmarks/data/lists

The source has a folder for each benchmark with `session_1.txt` (base) to `session_N.txt`; that of
miniImageNet also has `train.txt` and `test.txt`. The lists of a benchmark are put one after another:
the protocol says where each session ends.
"""

import argparse
import lzma
from pathlib import Path

from fairshot.files import write_atomically

SESSIONS = {"cifar100": 9, "cub200": 11, "mini_imagenet": 9}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    for name, content in lists(arguments.source).items():
        packed = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
        write_atomically(arguments.target / f"{name}.txt.xz", packed)
    write_atomically(arguments.target / "LICENSE", (arguments.source / "LICENSE.CEC").read_bytes())


def lists(source: Path) -> dict[str, bytes]:
    """Return the content of each list by its name."""
    contents = {
        name: b"".join(_lines(source / name / f"session_{number}.txt") for number in range(1, count + 1))
        for name, count in SESSIONS.items()
    }
    for split in ("train", "test"):
        contents[f"mini_imagenet_{split}"] = _lines(source / "mini_imagenet" / f"{split}.txt")
    return contents


def _lines(path: Path) -> bytes:
    """Read a list with its newlines normalised."""
    return "".join(f"{line}\n" for line in path.read_text().split()).encode()


if __name__ == "__main__":
    main()
