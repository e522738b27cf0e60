"""Dataset: a benchmark, where its data is looked for, and how it comes there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from fairshot.benchmarks.stream import Benchmark
from fairshot.errors import UserError
from fairshot.progress import Reporter


@dataclass(frozen=True)
class Dataset:
    """What the table of benchmarks knows of each."""

    name: str
    title: str
    load: Callable[[Path, Reporter], Benchmark]  # from a data folder; refuses wrong data
    find: Callable[[Path], Path | None]  # where a data folder seems to hold it, unchecked
    get: Callable[[Path, Reporter], None] | None  # downloads into a data folder, where a public source exists
    advice: str  # how a person gets the data

    def missing(self, root: Path) -> UserError:
        """Say that the data is not there, where it was looked for, and how to get it."""
        return UserError(f"{self.title} was not found in {root}. {self.advice}")


def data_folder(root: Path | None = None) -> Path:
    """Return where data is looked for: the folder given, `FAIRSHOT_DATA`, or the platform's cache folder."""
    if root is not None:
        return root.expanduser()
    if os.environ.get("FAIRSHOT_DATA"):
        return Path(os.environ["FAIRSHOT_DATA"]).expanduser()
    return platformdirs.user_cache_path("fairshot") / "data"


def cache_folder() -> Path:
    """Return where decoded pictures are kept: `FAIRSHOT_CACHE`, or the platform's cache folder."""
    if os.environ.get("FAIRSHOT_CACHE"):
        return Path(os.environ["FAIRSHOT_CACHE"]).expanduser()
    return platformdirs.user_cache_path("fairshot") / "pictures"


def check_counts(title: str, what: str, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Refuse data whose classes do not have exactly the images they should; `what` says which images."""
    wrong = [
        f"class {name} has {found.get(name, 0)} {what} images instead of {expected.get(name, 0)}"
        for name in sorted(found.keys() | expected.keys())
        if found.get(name, 0) != expected.get(name, 0)
    ]
    if wrong:
        more = f", and {len(wrong) - 3} classes more" if len(wrong) > 3 else ""
        raise UserError(f"this is not the official {title}: {'; '.join(wrong[:3])}{more}")
