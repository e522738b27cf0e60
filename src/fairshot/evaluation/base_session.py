"""A method around its base session: built from a recipe, or restored from a run that has finished one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from fairshot.benchmarks.stream import Stream
from fairshot.errors import FileRefused, OtherImages, OtherTraining, PathUnusable, UserError, first_of
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, is_finished, recipe_of
from fairshot.methods import build
from fairshot.methods.method import Method
from fairshot.recipes import Recipe
from fairshot.settings import differences
from fairshot.tensor_files import check_tensors, read_metadata, read_tensors
from fairshot.training.batches import seed_of

if TYPE_CHECKING:
    from lightning_fabric import Fabric

BASE_IMAGES = "base_images"  # in the metadata of a model: the digest of what it was trained on
Restored = TypeVar("Restored")
NAMED = 5  # classes that a message names


def build_method(recipe: Recipe, stream: Stream, trained: bool = False) -> Method[Any]:
    """Build the method of a recipe, its weights drawn from the recipe's seed or loaded as it says.

    With `trained` none are loaded: the trained ones are restored afterwards.
    """
    model = recipe.model.without_weights() if trained else recipe.model
    torch.manual_seed(seed_of(recipe.seed, 2))
    channels, classes = stream.base.train.pictures.channels, len(stream.class_names)
    return build(recipe.method_name, recipe.method, model, channels, stream.base_classes, classes)


def restore_method(run: Path, recipe: Recipe, stream: Stream, fabric: Fabric) -> Method[Any]:
    """Return the method of a finished run as it was after its base session."""
    check_base(run, recipe)
    check_images(run, stream)
    method = build_method(recipe, stream, trained=True)
    load_base_session(run, recipe, method, stream, fabric)
    return method


def load_base_session(run: Path, recipe: Recipe, method: Method[Any], stream: Stream, fabric: Fabric) -> None:
    """Give a method what a run of the same training learnt in its base session.

    If the run decided otherwise, only its network is loaded, and the classifiers of the base classes are made
    anew.
    """
    method.embedder.to(fabric.device)
    same = recipe_of(run) == recipe
    load_model(run / MODEL, method.restore if same else method.restore_modules)
    if not same:
        method.init_base_classifiers(stream.base.train)


def trained_method(run: Path, recipe: Recipe, base_classes: int, total_classes: int) -> Method[Any]:
    """Return the method of a run as its base session left it, without the images of the run."""
    model = recipe.model.without_weights()  # they come from the run

    def restore(tensors: dict[str, Tensor]) -> Method[Any]:
        sizes = tensors["embedder.mean"].shape[1], base_classes, total_classes
        method = build(recipe.method_name, recipe.method, model, *sizes)
        method.restore(tensors)
        return method

    return load_model(run / MODEL, restore)


def load_model(path: Path, restore: Callable[[dict[str, Tensor]], Restored]) -> Restored:
    """Restore something from the model of a run; one that does not fit the recipe of the run is refused."""
    tensors = read_tensors(path)
    try:
        return restore(tensors)
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError) as problem:
        reason = str(problem).partition("\n")[0]
        raise FileRefused(path, f"it does not fit the recipe of its run: {reason}") from None


def check_base(run: Path, recipe: Recipe) -> None:
    """Refuse a run whose base session a recipe cannot use."""
    if not (run / MODEL).is_file():
        raise PathUnusable(
            run,
            f"holds no {MODEL}: it is not a run, its base session is not finished, or its weights were not "
            "kept; repeat the run",
        )
    if differing := differences(recipe_of(run).training_part(), recipe.training_part()):
        raise OtherTraining(run, differing)


def check_images(run: Path, stream: Stream) -> None:
    """Refuse a run whose base session was on other images; if it noted none, on other classes."""
    check_tensors(run / MODEL)
    known = read_metadata(run / MODEL).get(BASE_IMAGES)
    ours = list(stream.class_names[: stream.base_classes])
    theirs = Result.read(run).base_names if is_finished(run) else ours
    same = theirs == ours if known is None else known == stream.base.train.sha256()
    if not same:
        raise OtherImages(run, _difference(theirs, ours))


def _difference(theirs: list[str], ours: list[str]) -> str:
    """Say how images of these classes differ."""
    pairs = zip_longest(theirs, ours, fillvalue="none")
    if differing := [(there, here) for there, here in pairs if there != here]:
        there, here = (first_of(names, NAMED) for names in zip(*differing, strict=True))
        return f"of the classes {there} there and {here} here"
    return "their pixels differ, or another version of the image decoder reads them otherwise"
