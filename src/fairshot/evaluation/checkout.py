"""Which commit the package runs from, where that is a checkout by git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1]
SECONDS_TO_ANSWER = 5.0  # of git, which takes hundredths of one


class Checkout(NamedTuple):
    """A commit, and whether files of the package differ from it or are not in it."""

    commit: str
    changed: bool


def checkout_of(package: Path = PACKAGE) -> Checkout | None:
    """Return what a package runs from; None where git does not know it, or is not there."""
    try:
        if not _git(package, "ls-files", "__init__.py"):  # installed below a checkout of something else
            return None
        changes = _git(package, "status", "--porcelain", "--untracked-files=normal", ".")
        return Checkout(_git(package, "rev-parse", "HEAD"), bool(changes))
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    program = shutil.which("git")
    if program is None:
        raise FileNotFoundError("git")
    # A hook of git names its own repository in the environment; and nothing here may lock this one, start
    # another program or ask for a password.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(  # noqa: S603 - git, with fixed arguments
        [program, "-c", "core.fsmonitor=false", *arguments],
        cwd=folder,
        env=kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_ANSWER,
        check=True,
    )
    return done.stdout.strip()
