"""The folder of a run: what lies in it, by name. Whoever reads a run finds its parts by these."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fairshot.benchmarks.image_folder import FILE_NAME
from fairshot.errors import UserError, first_of
from fairshot.files import write_atomically
from fairshot.methods.plugins import PLUGIN_COPY, plugin_file
from fairshot.recipes import DEFAULT_METHOD, Recipe, read_recipe

RESULT = "result.json"
RECIPE = "recipe.yaml"  # with every default filled in
LOG = "log.txt"
SPLIT = FILE_NAME  # of own pictures
MODEL = "model.safetensors"  # all that the base session learnt
FEATURES = "features.safetensors"  # of the test images of all sessions
OWN_METHOD = PLUGIN_COPY  # a copy of the file that a method of one's own came from
TRAINING = "training.csv"
TRAINING_COLUMNS = ("step", "epoch", "loss", "learning_rate", "images_per_second")
CHECKPOINTS = "checkpoints"
FIGURES = "figures"
TRADEOFF, TRADEOFF_PAGE = "tradeoff.json", "tradeoff.md"
POISONING, POISONING_PAGE = "poisoning.json", "poisoning.md"
PSEUDO_NOVEL = "pseudo-novel"  # the folder of the training on which the trade-off's gates are chosen
TRIALS = "trials.json"  # of a search for settings, whose folder is not that of a run
SEARCH, TRAININGS = "search.json", "trainings"  # what that search is asked for, and the networks it trains
CLEARED = ".cleared"  # the name of the last call that has one and cleared the folder
NAMED = 5  # runs or classes that a message names


def nearby_runs(folder: Path) -> str:
    """Return a hint that names the finished runs in a folder, or else beside it, to put behind a message."""
    for place in (folder, folder.parent):
        runs = [str(path.parent) for path in sorted(place.glob(f"*/{RESULT}"), key=_default_method_first)]
        if runs:
            return f"; finished runs are {first_of(runs, NAMED)}"
    return ""


def _default_method_first(result: Path) -> tuple[bool, Path]:
    """Sort runs of the package's own method before others: every command that takes a run takes those."""
    try:
        return json.loads(result.read_bytes()).get("method") != DEFAULT_METHOD, result
    except (OSError, ValueError, AttributeError):  # it is no result, or not readable
        return True, result


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Make the folder of a run, and keep other processes out of it."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"--out {run}: this folder cannot be made ({problem}); give another") from None
    try:
        with FileLock(run / ".lock", timeout=0):
            yield
    except Timeout:
        raise UserError(f"{run} is in use by another process; wait for it or give another --out") from None


def clear_run(run: Path, call: str = "") -> None:
    """Remove what runs write and what was found out about them, and nothing else that may lie there.

    A call that has a name clears a run once: one that it begins again, after a machine was lost, goes on.
    """
    cleared = run / CLEARED
    if call and cleared.is_file() and cleared.read_text() == call:
        return
    pages = (TRADEOFF, TRADEOFF_PAGE, POISONING, POISONING_PAGE)
    for name in (RESULT, SPLIT, RECIPE, OWN_METHOD, TRAINING, LOG, MODEL, FEATURES, *pages):
        (run / name).unlink(missing_ok=True)
    for name in (CHECKPOINTS, FIGURES, PSEUDO_NOVEL):
        shutil.rmtree(run / name, ignore_errors=True)
    if call:
        write_atomically(cleared, call.encode())


def recipe_of(run: Path) -> Recipe:
    """Return the recipe of a run."""
    if not (run / RECIPE).is_file():
        raise UserError(
            f"{run} holds no {RECIPE}; give the folder of a run, as `fairshot run` writes it"
            f"{nearby_runs(run)}"
        )
    return read_recipe(run / RECIPE)


def command_on_base(
    run: Path, method: Mapping[str, Any], out: str, photos: Path | None, root: Path | None
) -> str:
    """Return the command that decides by other settings on the base session and the images of a run."""
    command = ["fairshot", "run", str(run / RECIPE), "--base", str(run)]
    for key, value in method.items():
        command.append(f"--set=method.{key}={value if isinstance(value, str) else json.dumps(value)}")
    return shlex.join([*command, *where_pictures_lie(photos, root), "--out", out])


def where_pictures_lie(photos: Path | None, root: Path | None) -> list[str]:
    """Return the options of a command that say where the pictures of a run lie, if anything must be said."""
    given = (("--data", photos), ("--root", root))
    return [word for option, folder in given if folder is not None for word in (option, str(folder))]


def code_has_changed(run: Path, method: str) -> bool:
    """Whether a method of one's own is no longer the code that began a run, of which the run keeps a copy."""
    own, kept = plugin_file(method), run / OWN_METHOD
    return own is not None and kept.is_file() and kept.read_bytes() != own.read_bytes()


def recorded_recipe(folder: Path) -> Recipe | None:
    """Return the recipe a run was begun with; settings added since it was written have their defaults."""
    try:
        return read_recipe(folder / RECIPE)
    except UserError:  # there is none, or it is of a method or a version that is not known here
        return None
