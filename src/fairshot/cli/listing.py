"""`fairshot list`: what there is to run."""

from __future__ import annotations

import itertools

from rich.table import Table
from rich.text import Text

from fairshot import benchmarks
from fairshot.cli.console import CONSOLE, say

NAMING = {  # what in the name of a recipe is neither a benchmark nor a method
    "folder": "your own pictures: fairshot run --data PHOTOS",
    "_gate": "with a gate: a bias for novel classes",
    "_authors": "trained as by the code of the method's authors",
    "-lite0": "on EfficientNet-Lite0 with ImageNet weights",
    "-lite2": "on EfficientNet-Lite2 with ImageNet weights",
    "-frozen": "without any training of that network",
}


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
    naming = Table("in names", "what it says", box=None)
    for part, meaning in NAMING.items():
        naming.add_row(part, meaning)
    CONSOLE.print("", recipes, "", naming, sep="\n")
