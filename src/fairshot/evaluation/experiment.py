"""One run: a recipe becomes a folder with a result. Interrupted anywhere, the same call goes on."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.image_folder import Split, load_folder, replay_folder
from fairshot.benchmarks.stream import Stream
from fairshot.documents import read_yaml_text
from fairshot.errors import CodeChanged, FolderOccupied, FolderUnusable, PicturesNotFound
from fairshot.evaluation.base_session import (
    BASE_IMAGES,
    build_method,
    check_base,
    check_images,
    load_base_session,
)
from fairshot.evaluation.result import BASE_SESSION, Environment, Result
from fairshot.evaluation.run_folder import (
    CHECKPOINTS,
    FEATURES,
    MODEL,
    OWN_METHOD,
    RECIPE,
    SPLIT,
    TRAINING,
    TRAINING_COLUMNS,
    clear_run,
    code_has_changed,
    is_finished,
    lock_run,
    recorded_recipe,
)
from fairshot.evaluation.sessions import Outcome, run_sessions
from fairshot.evaluation.tracking import UNTRACKED, RunLog, Tracking
from fairshot.files import remove_partial, write_atomically
from fairshot.methods.method import Method
from fairshot.methods.plugins import plugin_file
from fairshot.models.embedder import ModelSettings
from fairshot.progress import SILENT, Reporter, RunFinished, SlowTraining
from fairshot.recipes import Recipe, write_recipe
from fairshot.settings import differences
from fairshot.tensor_files import write_tensors
from fairshot.training.hardware import describe_device
from fairshot.training.loop import Trainer
from fairshot.training.state import Row

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OWN_PICTURES = "folder"  # the benchmark name of recipes for own pictures
SLOW_ON_CPU = 5e9  # weights of a backbone times pixels of an image: ResNet-18 from 22 pixels per side on


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """How a run, or all runs of a study, are run: nothing here changes numbers on one kind of device."""

    command: str = ""  # recorded in each result
    root: Path | None = None  # where benchmarks are looked for
    photos: Path | None = None  # own pictures instead of a benchmark: photos/<class>/*
    fresh: bool = False  # remove what an earlier call left in the folders of runs
    max_minutes: float = math.inf  # for all runs together
    reporter: Reporter = SILENT
    tracking: Tracking = UNTRACKED
    compiled: bool = True  # whether training steps are compiled for a GPU


@dataclass(frozen=True)
class RunOptions(CommonOptions):
    """Where and how a recipe is run: nothing but `prepare` changes its numbers on one kind of device."""

    out: Path
    fabric: Fabric
    split: Path | None = None  # an earlier run whose split of own pictures is used again
    base: Path | None = None  # a finished run whose base session is loaded instead of training one
    prepare: Callable[[Stream], Stream] | None = None  # makes another stream from that of the benchmark
    call: str = ""  # the name of a call that may begin a run several times, and clears a fresh one once


def run(recipe: Recipe, options: RunOptions) -> Result | None:
    """Run a recipe to its result; a finished run is read, an interrupted one continued.

    Of several processes the first writes and gets the result; the others only train, and get None.
    """
    check_base_fits(recipe, options.base, options.out, options.fresh)
    options.tracking.check()
    earlier = options.split or split_of(None if options.fresh else options.out, options.base)
    stream, split = load_pictures(recipe, options, earlier)
    if options.prepare is not None:
        stream = options.prepare(stream)
    if options.base is not None:
        check_images(options.base, stream)
    # before anything is written: it may refuse its settings
    method = build_method(recipe, stream, trained=options.base is not None)
    first = options.fabric.is_global_zero
    tracking = options.tracking if first else UNTRACKED
    with (
        _prepared(recipe, options) if first else nullcontext(),
        closing(RunLog(options.out, recipe, tracking)) as log,
    ):
        options.fabric.barrier()  # the folder is in order before anybody reads it
        if is_finished(options.out):
            options.reporter.say(RunFinished(options.out, trial=options.prepare is not None))
            if not first:
                return None
            result = Result.read(options.out)
            log.log_training(_read_csv(options.out / TRAINING))
            log.log_result(result)
            return result
        if split is not None and first:
            split.write(options.out)
            for line in split.summary():
                options.reporter.say(line)
        return _run(recipe, stream, method, options, log)


def _run(
    recipe: Recipe, stream: Stream, method: Method[Any], options: RunOptions, log: RunLog
) -> Result | None:
    """Train or load the base session, go through the other sessions, write what came of it."""
    log.open()
    environment = Environment.current(describe_device(options.fabric))  # files may change meanwhile
    began = time.monotonic()
    trainer = Trainer(
        fabric=options.fabric,
        settings=recipe.training,
        views=recipe.views,
        size=recipe.model.size,
        seed=recipe.seed,
        folder=options.out / CHECKPOINTS,
        reporter=options.reporter,
        deadline=began + 60 * options.max_minutes,
        compiled=options.compiled,
        after_epoch=log.log_training,
    )
    if options.base is None:
        _warn_if_slow(recipe, method, options)
        method.fit_base(stream.base.train, trainer)
    else:
        load_base_session(options.base, recipe, method, stream, options.fabric)
    trained = time.monotonic()
    if not options.fabric.is_global_zero:
        return None
    seen = {BASE_IMAGES: stream.base.train.sha256()}
    write_tensors(options.out / MODEL, method.tensors(), seen)
    curve = _as_csv(trainer.history)
    write_atomically(options.out / TRAINING, curve)
    outcome = run_sessions(method, stream, options.reporter)
    seconds = {
        "compilation": trainer.compile_seconds,
        BASE_SESSION: trained - began + trainer.earlier_seconds - trainer.compile_seconds,
        "sessions": time.monotonic() - trained,
    }
    _write_features(outcome, method.base_classes, options.out)
    trained_for = _trained_for(trainer, options.base)
    result = _result(recipe, stream, options, method, outcome, seconds, environment, curve, trained_for)
    result.write(options.out)
    log.log_training(trainer.history)  # of checkpoints, if an earlier call did not log them
    log.log_result(result)
    return result


def split_of(*runs: Path | None) -> Path | None:
    """Return the first of these runs that was on own pictures, of which it keeps the split."""
    return next((run for run in runs if run is not None and (run / SPLIT).is_file()), None)


def load_pictures(
    recipe: Recipe, options: CommonOptions, earlier: Path | None = None
) -> tuple[Stream, Split | None]:
    """Load a benchmark; or own pictures, split as an earlier run did, or by the recipe."""
    photos, reporter = options.photos, options.reporter
    if photos is None and earlier is not None:
        photos = remembered_pictures(earlier)
    if photos is None:
        if recipe.benchmark.name == OWN_PICTURES:
            raise PicturesNotFound("benchmark.name: this recipe is for own pictures, and no folder was given")
        return load_stream(recipe.benchmark.name, recipe.benchmark, options.root, reporter), None
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
        raise PicturesNotFound(f"{earlier} was on own pictures, and does not say where they are")
    if not Path(photos).is_dir():
        raise PicturesNotFound(f"the pictures of {earlier} were in {photos}, which is no longer there")
    return Path(photos)


def own_pictures_side(model: ModelSettings) -> int:
    """Return the short side of large own pictures: enough for close views, and no pixel is skipped."""
    return 2 * model.size


def check_base_fits(recipe: Recipe, base: Path | None, out: Path, fresh: bool) -> None:
    """Refuse a base session, if one is given, that a recipe cannot use, or that a fresh run would clear."""
    if base is None:
        return
    if fresh and base.resolve() == out.resolve():
        raise FolderUnusable(out, "gives the base session and cannot be run afresh")
    check_base(base, recipe)


def _warn_if_slow(recipe: Recipe, method: Method[Any], options: RunOptions) -> None:
    weights = sum(weight.numel() for weight in method.embedder.backbone.parameters())
    slow = recipe.training.epochs and weights * recipe.model.size**2 > SLOW_ON_CPU
    if options.fabric.device.type == "cpu" and slow:
        options.reporter.say(SlowTraining(recipe.model.backbone, recipe.model.size, options.photos))


def _result(
    recipe: Recipe,
    stream: Stream,
    options: RunOptions,
    method: Method[Any],
    outcome: Outcome,
    seconds: dict[str, float],
    environment: Environment,
    curve: bytes,
    trained_for: dict[str, Any],
) -> Result:
    return Result(
        method=recipe.method_name,
        benchmark=stream.benchmark,
        seed=recipe.seed,
        command=options.command,
        recipe=recipe.as_dict(),
        class_names=list(stream.class_names),
        sessions=[list(session.classes) for session in stream.sessions],
        confusions=[matrix.tolist() for matrix in outcome.confusions],
        novel_only=outcome.novel_only,
        transductive=method.transductive,
        seconds=seconds,
        environment=environment,
        base=options.base and os.path.relpath(options.base, options.out.parent),  # the same on any machine
        pictures=Split.read(options.out).pictures if split_of(options.out) else "",
        training_sha256=hashlib.sha256(curve).hexdigest(),
        kept_bytes=method.kept_bytes,
        **trained_for,
    )


def _trained_for(trainer: Trainer, base: Path | None) -> dict[str, Any]:
    """Return how long the base session was trained, here or in the run that it was loaded from."""
    if base is None:
        return {"images": trainer.images, "epochs": trainer.base_epochs, "budget": trainer.budget}
    if not is_finished(base):
        return {}
    return Result.read(base).model_dump(include={"images", "epochs", "budget"})


@contextmanager
def _prepared(recipe: Recipe, options: RunOptions) -> Iterator[None]:
    """Keep other processes out of the run folder, and another recipe's leftovers out of this run."""
    out, own = options.out, plugin_file(recipe.method_name)
    code = None if own is None else own.read_bytes()  # it may be what a fresh run clears
    with lock_run(out):
        if options.fresh:
            clear_run(out, options.call)
        remove_partial(out)
        if not (out / RECIPE).is_file():
            write_recipe(out / RECIPE, recipe, code)
        elif (recorded := recorded_recipe(out)) != recipe:
            read_yaml_text(out / RECIPE)  # a damaged one is called so
            known = "unknown here" if recorded is None else differences(recorded.as_dict(), recipe.as_dict())
            raise FolderOccupied(out, f"a run of another recipe: {known}")
        if own is not None and code_has_changed(out, recipe.method_name):
            raise CodeChanged(own, out)
        if code is not None and not is_finished(out):
            write_atomically(out / OWN_METHOD, code)
        yield


def _as_csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, TRAINING_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _read_csv(path: Path) -> list[Row]:
    """Read a training curve; a run that has none, or kept none, has no rows."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _write_features(outcome: Outcome, base_classes: int, out: Path) -> None:
    """Keep the test features for figures and for trying classifiers, at half precision."""
    tensors = {name: value.half() for name, value in outcome.features.items()}
    tensors["labels"] = torch.from_numpy(outcome.labels)
    metadata = {"base_classes": str(base_classes)}
    write_tensors(out / FEATURES, tensors, metadata)
