"""`fairshot list`: what there is to run."""

from __future__ import annotations

import itertools

from rich.table import Table
from rich.text import Text

from fairshot import benchmarks
from fairshot.cli.console import CONSOLE, say


def list_command() -> None:
    """List methods, benchmarks and recipes.

    Example: fairshot list
    """
    from fairshot.methods import methods
    from fairshot.recipes import default_recipe, recipe_names

    table = Table("method", "paper, and what it does", "passes", "keeps\npictures", "knows\nfuture", box=None)
    for name, method in methods().items():
        card = method.card
        flags = ["yes" if flag else "no" for flag in (card.keeps_exemplars, card.knows_future)]
        paper = f" ({card.paper} {card.year})" if card.paper else ""
        does = Text.assemble((method.title(), "bold"), f"{paper}: {card.summary}.")
        table.add_row(name, does, str(method.passes(method.Settings())), *flags)
    CONSOLE.print(table)
    say(f"\nbenchmarks  {'  '.join(benchmarks.names())}")
    recipes = Table("recipes of", f"methods, named as in {default_recipe('doodles')}", box=None)
    for benchmark, names in itertools.groupby(recipe_names(), key=lambda name: name.partition("/")[0]):
        recipes.add_row(benchmark, "  ".join(name.partition("/")[2] for name in names))
    CONSOLE.print("", recipes)
