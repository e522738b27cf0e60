"""The folder of a run: the names of the files in it, its lock, its recipe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fairshot.benchmarks.image_folder import FILE_NAME
from fairshot.errors import FolderUnusable, NoRun, UserError
from fairshot.files import write_atomically
from fairshot.methods.plugins import PLUGIN_COPY, plugin_file
from fairshot.recipes import Recipe, read_recipe

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
TRACKERS = ("tensorboard", "wandb")  # folders of what was logged to them
TRADEOFF, TRADEOFF_PAGE = "tradeoff.json", "tradeoff.md"
MIRROR_TRADEOFF, MIRROR_TRADEOFF_PAGE = "tradeoff-mirror.json", "tradeoff-mirror.md"  # with mirror images
POISONING, POISONING_PAGE = "poisoning.json", "poisoning.md"
PSEUDO_NOVEL = "pseudo-novel"  # the folder of the training on which the trade-off's gates are chosen
TRIALS = "trials.json"  # of a search for settings, whose folder is not that of a run
SEARCH, TRIAL_RUNS = "search.json", "trials"  # what that search is asked for, and the folder of its runs
CLEARED = ".cleared"  # the name of the last call that has one and cleared the folder


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Make the folder of a run, and keep other processes out of it."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FolderUnusable(run, f"cannot be made a folder ({problem})") from None
    try:
        with FileLock(run / ".lock", timeout=0):
            yield
    except Timeout:
        raise FolderUnusable(run, "is in use by another process") from None


def clear_run(run: Path, call: str = "") -> None:
    """Remove what runs write and what was found out about them, and nothing else that may be there.

    A call that has a name clears a run once: one that it begins again, after a machine was lost, goes on.
    """
    cleared = run / CLEARED
    if call and cleared.is_file() and cleared.read_text() == call:
        return
    trade_offs = (TRADEOFF, TRADEOFF_PAGE, MIRROR_TRADEOFF, MIRROR_TRADEOFF_PAGE)
    pages = (*trade_offs, POISONING, POISONING_PAGE)
    for name in (RESULT, SPLIT, RECIPE, OWN_METHOD, TRAINING, LOG, MODEL, FEATURES, *pages):
        (run / name).unlink(missing_ok=True)
    for name in (CHECKPOINTS, FIGURES, PSEUDO_NOVEL, *TRACKERS):
        shutil.rmtree(run / name, ignore_errors=True)
    if call:
        write_atomically(cleared, call.encode())


def recipe_of(run: Path) -> Recipe:
    """Return the recipe of a run."""
    if not (run / RECIPE).is_file():
        raise NoRun(run, RECIPE)
    return read_recipe(run / RECIPE)


def is_finished(run: Path) -> bool:
    """Whether a folder is that of a run with a result."""
    return (run / RESULT).is_file()


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
