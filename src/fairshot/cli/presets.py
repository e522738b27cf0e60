"""`--backbone list`: the presets, as a table."""

from __future__ import annotations

from importlib.util import find_spec

import typer
from rich.table import Table

from fairshot.cli.console import CONSOLE, say
from fairshot.extras import install_command
from fairshot.models.presets import DEFAULT_PRESET, EXTRA, PRESETS

LIST = "list"
INSTALLED, INSTALLABLE, ONLINE = "installed", f"in the extra {EXTRA!r}", "downloaded once by timm"


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
        table.add_row(preset.name, *numbers, preset.licence, source)
    CONSOLE.print(table, highlight=False)
    say(
        f"\nms: milliseconds per photo on one core of a CPU. {DEFAULT_PRESET} is used where none is named. "
        "Any other model of timm can be named too."
    )
    if INSTALLABLE in table.columns[-1].cells:
        say(f"The extra {EXTRA!r}: {install_command(EXTRA)}")
    raise typer.Exit
