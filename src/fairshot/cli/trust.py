"""Code that a recipe file names: run only if whoever runs the recipe says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from fairshot.errors import CodeNotTrusted

if TYPE_CHECKING:
    from fairshot.recipes import Recipe


def load_trusted(recipe: str, changes: Sequence[str], seed: int | None, trust: bool) -> Recipe:
    """Load a recipe, and the code that its file names if that is trusted: by `--trust`, or at a terminal.

    Without a terminal to ask at and without `--trust` such a recipe is refused. Once its code is loaded, it
    loads again like any other.
    """
    from fairshot.recipes import load_recipe

    try:
        return load_recipe(recipe, changes, seed, trust)
    except CodeNotTrusted as problem:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        typer.confirm(f"{problem}. Run it?", abort=True, err=True)
        sys.argv.append("--trust")  # for the processes that repeat this command, and for its record
        return load_recipe(recipe, changes, seed, trust=True)
