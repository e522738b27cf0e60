"""Experiment: a recipe becomes a run folder. Interrupted anywhere, the same call goes on from there."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load, save

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.folder import Split, load_folder, replay_folder
from fairshot.benchmarks.stream import Stream
from fairshot.errors import UserError
from fairshot.evaluation.result import Environment, Result
from fairshot.evaluation.run_folder import (
    CHECKPOINTS,
    FEATURES,
    MODEL,
    NAMED,
    RECIPE,
    RESULT,
    SPLIT,
    TRAINING,
    TRAINING_COLUMNS,
    claimed,
    clear_run,
    recipe_of,
    recorded_recipe,
)
from fairshot.evaluation.sessions import Outcome, run_sessions
from fairshot.files import remove_partial, write_atomically
from fairshot.methods import build
from fairshot.methods.method import Method
from fairshot.models.embedder import ModelSettings
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.training.batches import seed_of
from fairshot.training.hardware import describe_device
from fairshot.training.loop import Row, Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OWN_PICTURES = "folder"  # the benchmark name of recipes for own pictures
BASE_IMAGES = "base_images"  # in the metadata of a model: the digest of what it was trained on
MUCH_FOR_A_CPU = 5e9  # weights of a backbone times the pixels it looks at: ResNet-18 from 22 pixels a side on


@dataclass(frozen=True)
class Place:
    """Where and how a recipe is run: nothing here changes its numbers on one kind of device."""

    out: Path
    fabric: Fabric
    command: str = ""
    root: Path | None = None  # where benchmarks are looked for
    photos: Path | None = None  # own pictures instead of a benchmark: photos/<class>/*
    split: Path | None = None  # an earlier run whose split of these pictures is used again
    base: Path | None = None  # a finished run whose base session is taken over instead of training one
    fresh: bool = False  # forget what an earlier call left in `out`
    max_minutes: float = math.inf
    reporter: Reporter = SILENT
    call: str = ""  # the name of a call that may begin a run several times, and clears a fresh one once


def run(recipe: Recipe, place: Place) -> Result | None:
    """Run a recipe to its result; a finished run is read, an interrupted one continued.

    Of several processes the first writes and gets the result; the others only train, and get None.
    """
    check_taken_over(recipe, place)
    stream, split = load_pictures(recipe, place)
    if place.base is not None:
        check_images(place.base, stream)
    method = build_method(recipe, stream)  # before anything is written: it may refuse its settings
    with _prepared(recipe, place) if place.fabric.is_global_zero else nullcontext():
        place.fabric.barrier()  # the folder is in order before anybody reads it
        if (place.out / RESULT).is_file():
            place.reporter.say(f"{place.out} is finished already; --fresh runs it again")
            return Result.read(place.out) if place.fabric.is_global_zero else None
        if split is not None and place.fabric.is_global_zero:
            split.write(place.out)
            for line in split.summary():
                place.reporter.say(line)
        return _run(recipe, stream, method, place)


def load_pictures(recipe: Recipe, place: Place) -> tuple[Stream, Split | None]:
    """Load a benchmark; or own pictures, split as the run named, this one or its base did before."""
    runs = [place.base] if place.fresh else [place.out, place.base]
    earlier = [run for run in runs if run is not None and had_own_pictures(run)]
    split = place.split or next(iter(earlier), None)
    return find_pictures(recipe, place.root, place.photos, split, place.reporter)


def find_pictures(
    recipe: Recipe, root: Path | None, photos: Path | None, earlier: Path | None, reporter: Reporter
) -> tuple[Stream, Split | None]:
    """Load a benchmark; or own pictures, split as an earlier run did, or by the recipe."""
    if photos is None:
        if recipe.benchmark.name == OWN_PICTURES:
            raise UserError("benchmark.name: this recipe is for own pictures; say where they lie with --data")
        return load_stream(recipe.benchmark.name, recipe.benchmark, root, reporter), None
    resize = Resize(own_pictures_side(recipe.model), enlarge=False)
    if earlier is None:
        return load_folder(photos, recipe.benchmark, recipe.seed, reporter, resize)
    split = Split.read(earlier)
    split.check(recipe.benchmark)
    return replay_folder(photos, split, reporter, resize), split


def had_own_pictures(run: Path) -> bool:
    """Whether a run was on own pictures, of which it keeps the split."""
    return (run / SPLIT).is_file()


def own_pictures_side(model: ModelSettings) -> int:
    """Return the short side of large own pictures: enough for close views, and no pixel is skipped."""
    return 2 * model.size


def _run(recipe: Recipe, stream: Stream, method: Method[Any], place: Place) -> Result | None:
    began = time.monotonic()
    trainer = Trainer(
        fabric=place.fabric,
        settings=recipe.training,
        views=recipe.views,
        size=recipe.model.size,
        seed=recipe.seed,
        folder=place.out / CHECKPOINTS,
        reporter=place.reporter,
        deadline=began + 60 * place.max_minutes,
    )
    if place.base is None:
        _warn_if_slow(recipe, method, place)
        method.fit_base(stream.base.train, trainer)
    else:
        _take_over(place.base, recipe, method, stream, place.fabric)
    trained = time.monotonic()
    if not place.fabric.is_global_zero:
        return None
    seen = {BASE_IMAGES: stream.base.train.sha256()}
    write_atomically(place.out / MODEL, save(_plain(method.tensors()), metadata=seen))
    write_atomically(place.out / TRAINING, _as_csv(trainer.history))
    outcome = run_sessions(method, stream, place.reporter)
    result = _result(recipe, stream, place, method, outcome)
    result.seconds = {
        "compilation": trainer.compile_seconds,
        "base session": trained - began + trainer.earlier_seconds - trainer.compile_seconds,
        "sessions": time.monotonic() - trained,
    }
    _write_features(outcome, method.base_classes, place.out)
    result.write(place.out)
    return result


def _warn_if_slow(recipe: Recipe, method: Method[Any], place: Place) -> None:
    """Say what helps where a network that was meant for a GPU is trained without one."""
    weights = sum(weight.numel() for weight in method.embedder.backbone.parameters())
    if place.fabric.device.type == "cpu" and weights * recipe.model.size**2 > MUCH_FOR_A_CPU:
        place.reporter.say(
            f"{recipe.model.backbone} at {recipe.model.size} pixels is very slow to train on a CPU; "
            "a small network is far faster: --set model.backbone=tiny"
        )


def restore_method(run: Path, recipe: Recipe, stream: Stream, fabric: Fabric) -> Method[Any]:
    """Return the method of a finished run as it was after its base session."""
    check_base(run, recipe)
    check_images(run, stream)
    method = build_method(recipe, stream)
    _take_over(run, recipe, method, stream, fabric)
    return method


def check_taken_over(recipe: Recipe, place: Place) -> None:
    """Refuse a base session, if one is given, that a recipe cannot take over, or that this would clear."""
    if place.base is None:
        return
    if place.fresh and place.base.resolve() == place.out.resolve():
        raise UserError(f"{place.base} gives the base session and cannot be run afresh; give another --out")
    check_base(place.base, recipe)


def check_base(run: Path, recipe: Recipe) -> None:
    """Refuse a run whose base session a recipe cannot take over."""
    if not (run / MODEL).is_file():
        raise UserError(
            f"{run} holds no {MODEL}: it is not a run, its base session is not finished, or its weights were "
            "not kept; repeat the run"
        )
    theirs, ours = _flat(recipe_of(run).training_part()), _flat(recipe.training_part())
    differing = [name for name in theirs | ours if theirs.get(name) != ours.get(name)]
    if differing:
        told = ", ".join(
            f"{name} is {theirs.get(name)} there and {ours.get(name)} here" for name in differing
        )
        raise UserError(
            f"the base session of {run} comes from another recipe: {told}; only settings of the decision may "
            "differ, --set the others alike"
        )


def check_images(run: Path, stream: Stream) -> None:
    """Refuse a run whose base session was on other images; if it noted none, on other classes."""
    with safe_open(run / MODEL, "pt") as model:
        known = (model.metadata() or {}).get(BASE_IMAGES)
    ours = list(stream.class_names[: stream.base_classes])
    theirs = Result.read(run).base_names if (run / RESULT).is_file() else ours
    same = theirs == ours if known is None else known == stream.base.train.sha256()
    if not same:
        raise UserError(
            f"the base session of {run} was on other images than those found here: "
            f"{_difference(theirs, ours)}; say where its own lie with --data or --root"
        )


def _difference(theirs: list[str], ours: list[str]) -> str:
    """Say what sets images of these classes apart."""
    pairs = zip_longest(theirs, ours, fillvalue="none")
    if differing := [(there, here) for there, here in pairs if there != here]:
        there, here = (_some(names) for names in zip(*differing, strict=True))
        return f"of the classes {there} there and {here} here"
    return "their pixels differ, or another version of the image decoder reads them otherwise"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _flat(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Name each value by its section and key."""
    flat: dict[str, Any] = {}
    for section, values in parts.items():
        within = isinstance(values, dict)
        flat |= {f"{section}.{key}": value for key, value in values.items()} if within else {section: values}
    return flat


def _take_over(run: Path, recipe: Recipe, method: Method[Any], stream: Stream, fabric: Fabric) -> None:
    """Give a method what a run of the same training learnt in its base session.

    If the run decided otherwise, only its network is taken, and the classifiers of the base classes are made
    anew.
    """
    method.embedder.to(fabric.device)
    tensors = load((run / MODEL).read_bytes())
    if recipe_of(run) == recipe:
        method.restore(tensors)
    else:
        method.restore_parts(tensors)
        method.start_base(stream.base.train)


def build_method(recipe: Recipe, stream: Stream) -> Method[Any]:
    """Build the method of a recipe, its weights drawn from the recipe's seed."""
    torch.manual_seed(seed_of(recipe.seed, 2))
    channels, classes = stream.base.train.pictures.channels, len(stream.class_names)
    return build(recipe.method_name, recipe.method, recipe.model, channels, stream.base_classes, classes)


def _result(recipe: Recipe, stream: Stream, place: Place, method: Method[Any], outcome: Outcome) -> Result:
    return Result(
        method=recipe.method_name,
        benchmark=stream.benchmark,
        seed=recipe.seed,
        command=place.command,
        recipe=recipe.as_dict(),
        class_names=list(stream.class_names),
        sessions=[list(session.classes) for session in stream.sessions],
        confusions=[matrix.tolist() for matrix in outcome.confusions],
        novel_only=outcome.novel_only,
        transductive=method.transductive,
        seconds={},
        environment=Environment.current(describe_device(place.fabric)),
    )


@contextmanager
def _prepared(recipe: Recipe, place: Place) -> Iterator[None]:
    """Keep other processes out of the run folder, and another recipe's leftovers out of this run."""
    with claimed(place.out):
        if place.fresh:
            clear_run(place.out, place.call)
        remove_partial(place.out)
        if not (place.out / RECIPE).is_file():
            write_atomically(place.out / RECIPE, recipe.as_yaml().encode())
        elif recorded_recipe(place.out) != recipe:
            raise UserError(
                f"{place.out} holds a run of another recipe (see its recipe.yaml); give another --out, "
                "or begin anew in this one with --fresh"
            )
        yield


def _as_csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, TRAINING_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _write_features(outcome: Outcome, base_classes: int, out: Path) -> None:
    """Keep the test features for figures and for trying classifiers, at half precision."""
    tensors = {name: value.half() for name, value in outcome.features.items()}
    tensors["labels"] = torch.from_numpy(outcome.labels)
    metadata = {"base_classes": str(base_classes)}
    write_atomically(out / FEATURES, save(_plain(tensors), metadata=metadata))


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.contiguous().cpu() for name, value in tensors.items()}
