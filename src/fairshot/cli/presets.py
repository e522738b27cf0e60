"""`--backbone list`: the presets, as a table."""

from __future__ import annotations

from importlib.util import find_spec

import typer
from rich.markup import escape
from rich.table import Table

from fairshot.cli.console import CONSOLE
from fairshot.models.presets import DEFAULT_PRESET, PRESETS

LIST = "list"
INSTALLED, INSTALLABLE, ONLINE = "installed", "pip install 'fairshot[photos]'", "downloaded once by timm"


def list_presets(backbone: str | None) -> str | None:
    """Print the presets if the option's value asks for them, and end the command; else return the value."""
    if backbone != LIST:
        return backbone
    table = Table("preset", "pixels", "MB", "ms", "licence", "weights", box=None, pad_edge=False)
    for preset in PRESETS.values():
        numbers = [str(preset.size), f"{preset.megabytes:.0f}", str(preset.milliseconds)]
        source = ONLINE
        if preset.package:
            source = INSTALLED if find_spec(preset.package) else INSTALLABLE
        table.add_row(preset.name, *numbers, preset.licence, escape(source))
    CONSOLE.print(table, highlight=False)
    CONSOLE.print(
        f"\nms: milliseconds per photo on one core of a CPU. {DEFAULT_PRESET} is used where none is named. "
        "Any other model of timm can be named too.",
        highlight=False,
    )
    raise typer.Exit
