"""What the commands on stores share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of the store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MOST_NAMED = 10  # classes or photos that a line or a list names


def print_json(value: Any) -> None:
    """Print JSON on one line."""
    print(json.dumps(value, ensure_ascii=False))
