"""What the commands on stores share: options, how a store is opened, how answers are printed.

What needs torch is imported where it is used: that takes seconds, and --help needs none of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairshot.cli.console import CONSOLE

if TYPE_CHECKING:
    from fairshot.teaching import Records, Store

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of the store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MOST_NAMED = 10  # classes or photos that a line or a list names


def open_store(folder: Path) -> Store:
    """Open a store with its network."""
    from fairshot.teaching import Store

    return Store(folder)


def open_records(folder: Path) -> Records:
    """Open what is recorded in a store, which needs no network and no torch."""
    from fairshot.teaching import Records

    return Records(folder)


def say(text: str) -> None:
    """Print a line as it is, which the terminal breaks."""
    CONSOLE.print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON on one line."""
    print(json.dumps(value, ensure_ascii=False))
