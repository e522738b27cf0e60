"""Every command in a line, known without importing it: most need torch, and that takes seconds."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = {  # by heading and name
    "Experiments": {
        "run": "Train on the base classes, learn the sessions, report how balanced the classifier stayed.",
        "compare": (
            "Run methods on benchmarks with several seeds and class orders, and print them side by side."
        ),
        "list": "List methods, benchmarks and recipes.",
        "recipe": "Recipes: what they say, key by key.",
        "data": "Benchmarks: which there are, where their data is, and how to get it.",
    },
    "Reports": {
        "report": "Turn runs into one page to look at, figures and tables to publish.",
        "reproducibility": (
            "Say of each method whether our runs reach what was published, with commands, seeds and times."
        ),
    },
    "Studies": {
        "tune": "Try a grid of settings on pseudo-novel classes made of base training images alone.",
        "tradeoff": (
            "Draw the curve of every rule on the run's sessions, and the point "
            "chosen without looking at them."
        ),
        "ablate": "Switch parts of SSS on one by one, or change how it decides.",
        "poison": (
            "Attack Calibration with images of wrong classes, noise and copies; tell what they cost at worst."
        ),
        "bench": "Measure speed, beside the plain way to do the same.",
    },
    "Stores of taught classes": {
        "new": "Make a store, on a trained run or on a backbone.",
        "teach": "Teach a class from a few photos, or more photos of a class it knows; tell what that did.",
        "predict": "Say what images show.",
        "forget": "Take a class out; undo brings it back.",
        "rename": "Give a class another name.",
        "merge": "Put all that is known of one class into another.",
        "undo": "Take back the last change that still stands; again for the one before.",
        "history": "List what was done, the latest first.",
        "classes": "List the classes: base ones in the order of training, then taught ones by name.",
        "adapt": "Move classes a little towards unlabelled images that surely show them (Calibration).",
        "evaluate": (
            "Measure accuracy, balance, confidence and the finding of unknown things on a folder of images."
        ),
        "export": "Write the store as an ONNX model, checked against torch, or as one archive.",
        "import": "Unpack a store from its archive.",
        "doodles": "Write drawings of the embedded benchmark as image files, to try a store with.",
        "serve": "Serve a store: a web page, and a REST API described at /docs.",
    },
}
FILES = {  # of this folder, where they have another name than the command
    "list": "listing",
    "reproducibility": "report",
    **dict.fromkeys(COMMANDS["Stores of taught classes"], "teach"),
    "serve": "serve",
}


class Overview(TyperGroup):
    """Holds a stand-in for each command, and imports the command itself when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command instead of its stand-in."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in and load_command(str(name)), rest


def add_stand_ins(app: typer.Typer) -> None:
    """Give an app whose class is `Overview` its commands."""
    for heading, commands in COMMANDS.items():
        for name, line in commands.items():
            app.command(name, help=line, rich_help_panel=heading)(_stand_in)


def load_command(name: str) -> Any:
    """Import a command, or a group of commands, by its name."""
    module = importlib.import_module(f"fairshot.cli.{FILES.get(name, name)}")
    alone = typer.Typer()
    if hasattr(module, f"{name}_command"):
        alone.command(name)(getattr(module, f"{name}_command"))
    else:
        alone.add_typer(module.app, name=name)
    return typer.main.get_group(alone).commands[name]


def _stand_in() -> None: ...
