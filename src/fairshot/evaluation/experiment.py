"""Experiment: a recipe becomes a run folder. Interrupted anywhere, the same call goes on from there."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.image_folder import Split, load_folder, replay_folder
from fairshot.benchmarks.stream import Stream
from fairshot.errors import UserError
from fairshot.evaluation.base_session import (
    BASE_IMAGES,
    build_method,
    check_base,
    check_images,
    load_base_session,
)
from fairshot.evaluation.result import Environment, Result
from fairshot.evaluation.run_folder import (
    CHECKPOINTS,
    FEATURES,
    MODEL,
    OWN_METHOD,
    RECIPE,
    RESULT,
    SPLIT,
    TRAINING,
    TRAINING_COLUMNS,
    clear_run,
    code_has_changed,
    lock_run,
    recorded_recipe,
)
from fairshot.evaluation.sessions import Outcome, run_sessions
from fairshot.files import remove_partial, write_atomically
from fairshot.methods.method import Method
from fairshot.methods.plugins import plugin_file
from fairshot.models.embedder import ModelSettings
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.settings import differences
from fairshot.training.hardware import describe_device
from fairshot.training.loop import Trainer
from fairshot.training.state import Row

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OWN_PICTURES = "folder"  # the benchmark name of recipes for own pictures
SMALL_SIZE, SMALL_RESIZE = 32, 36  # pixels, of pictures that a CPU can learn from in minutes
MUCH_FOR_A_CPU = 5e9  # weights of a backbone times the pixels it looks at: ResNet-18 from 22 pixels a side on


@dataclass(frozen=True)
class RunOptions:
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


def run(recipe: Recipe, place: RunOptions) -> Result | None:
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


def load_pictures(recipe: Recipe, place: RunOptions) -> tuple[Stream, Split | None]:
    """Load a benchmark; or own pictures, split as the run named, this one or its base did before."""
    runs = [place.base] if place.fresh else [place.out, place.base]
    earlier = [run for run in runs if run is not None and had_own_pictures(run)]
    split = place.split or next(iter(earlier), None)
    return find_pictures(recipe, place.root, place.photos, split, place.reporter)


def find_pictures(
    recipe: Recipe, root: Path | None, photos: Path | None, earlier: Path | None, reporter: Reporter
) -> tuple[Stream, Split | None]:
    """Load a benchmark; or own pictures, split as an earlier run did, or by the recipe."""
    if photos is None and earlier is not None:
        photos = remembered_pictures(earlier)
    if photos is None:
        if recipe.benchmark.name == OWN_PICTURES:
            raise UserError("benchmark.name: this recipe is for own pictures; say where they lie with --data")
        return load_stream(recipe.benchmark.name, recipe.benchmark, root, reporter), None
    resize = Resize(own_pictures_side(recipe.model), enlarge=False)
    if earlier is None:
        return load_folder(photos, recipe.benchmark, recipe.seed, reporter, resize)
    split = Split.read(earlier)
    split.check(recipe.benchmark)
    return replay_folder(photos, split, reporter, resize), split.lying_in(photos)


def remembered_pictures(earlier: Path) -> Path:
    """Return the folder of own pictures that an earlier run, or its split, remembers."""
    photos = Split.read(earlier).photos
    if photos is None:
        raise UserError(f"{earlier} was on own pictures; say where they lie with --data")
    if not Path(photos).is_dir():
        raise UserError(f"the pictures of {earlier} lay in {photos}; say where they lie now with --data")
    return Path(photos)


def had_own_pictures(run: Path) -> bool:
    """Whether a run was on own pictures, of which it keeps the split."""
    return (run / SPLIT).is_file()


def own_pictures_side(model: ModelSettings) -> int:
    """Return the short side of large own pictures: enough for close views, and no pixel is skipped."""
    return 2 * model.size


def _run(recipe: Recipe, stream: Stream, method: Method[Any], place: RunOptions) -> Result | None:
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
        load_base_session(place.base, recipe, method, stream, place.fabric)
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


def _warn_if_slow(recipe: Recipe, method: Method[Any], place: RunOptions) -> None:
    """Say what helps where a network that was meant for a GPU is trained without one."""
    weights = sum(weight.numel() for weight in method.embedder.backbone.parameters())
    if place.fabric.device.type == "cpu" and weights * recipe.model.size**2 > MUCH_FOR_A_CPU:
        advice = (
            f"{recipe.model.backbone} at {recipe.model.size} pixels is very slow to train on a CPU; a small "
            "network is far faster: --set model.backbone=tiny"
        )
        if recipe.model.size > SMALL_SIZE:
            advice += (
                f"; with smaller pictures it is faster again: --set model.size={SMALL_SIZE} --set "
                f"model.resize={SMALL_RESIZE}"
            )
        place.reporter.say(advice)


def check_taken_over(recipe: Recipe, place: RunOptions) -> None:
    """Refuse a base session, if one is given, that a recipe cannot take over, or that this would clear."""
    if place.base is None:
        return
    if place.fresh and place.base.resolve() == place.out.resolve():
        raise UserError(f"{place.base} gives the base session and cannot be run afresh; give another --out")
    check_base(place.base, recipe)


def _result(
    recipe: Recipe, stream: Stream, place: RunOptions, method: Method[Any], outcome: Outcome
) -> Result:
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
        pictures=Split.read(place.out).pictures if had_own_pictures(place.out) else "",
    )


@contextmanager
def _prepared(recipe: Recipe, place: RunOptions) -> Iterator[None]:
    """Keep other processes out of the run folder, and another recipe's leftovers out of this run."""
    own = plugin_file(recipe.method_name)
    code = None if own is None else own.read_bytes()  # it may be what a fresh run clears
    with lock_run(place.out):
        if place.fresh:
            clear_run(place.out, place.call)
        remove_partial(place.out)
        if not (place.out / RECIPE).is_file():
            write_atomically(place.out / RECIPE, recipe.as_yaml().encode())
        elif (recorded := recorded_recipe(place.out)) != recipe:
            known = "unknown here" if recorded is None else differences(recorded.as_dict(), recipe.as_dict())
            raise UserError(
                f"{place.out} holds a run of another recipe: {known}; give another --out, or begin anew "
                "in this one with --fresh"
            )
        if own is not None and code is not None:
            _keep_own_method(recipe.method_name, code, place.out)
        yield


def _keep_own_method(name: str, code: bytes, out: Path) -> None:
    """Keep the file of a method of one's own, and refuse one that is no longer what began the run."""
    kept = out / OWN_METHOD
    if code_has_changed(out, name):
        raise UserError(
            f"{plugin_file(name)} has changed since the run in {out} began (see {kept}); give another --out, "
            "or begin anew in this one with --fresh"
        )
    if not (out / RESULT).is_file():
        write_atomically(kept, code)


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
