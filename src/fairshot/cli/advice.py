"""Which option of a command helps: added to the message of an error or a notice, which names none itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from contextvars import ContextVar
from functools import singledispatch
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from fairshot import errors, progress
from fairshot.benchmarks.dataset import DATA_VARIABLE, Dataset, MissingData, WrongData
from fairshot.benchmarks.image_folder import TooFewImages
from fairshot.documents import load_json
from fairshot.errors import first_of
from fairshot.hub.errors import HubUnreachable
from fairshot.models import errors as model_errors
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.server.errors import AddressUnavailable
from fairshot.teaching import errors as store_errors

ANOTHER_FOLDER = "give another --out, or give another --pseudo"
OPTIONS: dict[type, str] = {  # by the kind of an error, whose fields may stand in braces
    errors.BadOverride: "; an example is --set training.epochs=10",
    errors.MethodNotLoaded: (
        "; commands that name the file can use it: fairshot run BENCHMARK/file.py:Class, or compare"
    ),
    errors.NoGPU: "; use --device cpu",
    errors.UnevenEpisode: ", or another number of --processes",
    TooFewImages: "; to teach classes from all images, without a test, use fairshot new and fairshot teach",
    errors.FolderUnusable: f"; {ANOTHER_FOLDER}",
    errors.FolderOccupied: f"; {ANOTHER_FOLDER}, or begin anew in this one with --fresh",
    errors.CodeNotTrusted: ": --trust",
    errors.CodeChanged: f"; {ANOTHER_FOLDER}, or begin anew in this one with --fresh",
    errors.OtherTraining: ", --set the others alike",
    errors.OtherImages: (
        "; name the folder of its pictures with --data, or name the folder of all benchmarks with --root"
    ),
    errors.PicturesNotFound: "; say where they are with --data",
    errors.PseudoNovelUnfit: "; change --novel",
    errors.HeldOutUnfit: "; give a smaller --held-out",
    HubUnreachable: "; or give another --endpoint",
    AddressUnavailable: "; give another --port or --host",
    store_errors.StoreDamaged: "; an archive is unpacked by: fairshot import ARCHIVE NEW_STORE",
    model_errors.UnknownBackbone: "; give --backbone another name, or see them all with --backbone list",
    model_errors.CannotEmbed: "; give --backbone another name",
    model_errors.PretrainedWeightsMissing: ": --weights FILE",
    model_errors.UnusableWeights: "; give another file, or none, with --weights",
    model_errors.WeightsDoNotFit: "; give another file with --weights, or another --backbone",
    store_errors.NotAStore: ": fairshot new {folder} for photos, or with --from RUN on a run of yours",
    store_errors.UnknownClass: "; all are listed by: fairshot classes {folder}",
    store_errors.ClassExists: ": fairshot merge STORE {name!r} {new_name!r}",
    store_errors.NoBaseFolder: "; give another folder with --base",
    store_errors.ExportRefused: "; say where its images are with --images",
    store_errors.TooFewHeldOut: "; give more images, or leave --choose-threshold out",
    store_errors.UnsupportedRun: "; train one with: fairshot run",
}
OF_A_RUN = {  # files that a run makes anew
    *("recipe.yaml", "result.json", "split.json", "model.safetensors", "features.safetensors"),
    *("training.csv", "method.py"),
}
NAMED = 5  # runs that advice names
SMALL_SIZE, SMALL_RESIZE = 32, 36  # pixels of images that a CPU can learn from in minutes


PRESENT_OPTIONS: ContextVar[Collection[str]] = ContextVar("options of the present command", default=())


class AdvisedCommand(TyperCommand):
    """A command that says which options it has, so that advice names no others."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        PRESENT_OPTIONS.set({name for each in self.params for name in (*each.opts, *each.secondary_opts)})
        return super().invoke(ctx)


def with_advice(problem: object, options: Collection[str] | None = None) -> str:
    """Return an error or a notice with the advice that the present command, or one with `options`, can use.

    Advice is made of clauses, and these of alternatives. One that names an option which the command lacks is
    left out; behind the name of another command stand that command's options.
    """
    known = PRESENT_OPTIONS.get() if options is None else options
    text = str(problem)
    for separator, clause in re.findall(r"(; |\n|^)((?:(?!; |\n).)+)", advice(problem)):
        before, command, _ = clause.partition("fairshot ")
        parts = [before] if command else clause.split(", or ")
        usable = [part for part in parts if set(re.findall(r"(?<![\w-])--[a-z-]+", part)) <= set(known)]
        if usable:
            text += separator + (clause if command else ", or ".join(usable))
    return text


@singledispatch
def advice(problem: object) -> str:
    """Return what to put behind the message of an error or a notice; nothing if no option helps."""
    return OPTIONS[type(problem)].format_map(vars(problem)) if type(problem) in OPTIONS else ""


@advice.register
def _(problem: errors.NoRun) -> str:
    """Name the finished runs in the folder, or else beside it; those of the default method first."""
    for folder in (problem.folder, problem.folder.parent):
        runs = [str(path.parent) for path in sorted(folder.glob("*/result.json"), key=_default_method_first)]
        if runs:
            return f"; finished runs are {first_of(runs, NAMED)}"
    return "; give the folder of a run, as `fairshot run` writes it"


@advice.register
def _(problem: errors.NoRunsFound) -> str:
    if problem.path.is_dir():
        return ""
    return "; give folders that `fairshot run` wrote, such as runs/demo"


def _default_method_first(result: Path) -> tuple[bool, Path]:
    """Sort runs of the default method before others: every command that takes a run takes those."""
    from fairshot.recipes import DEFAULT_METHOD

    try:
        return load_json(result).get("method") != DEFAULT_METHOD, result
    except errors.UserError:  # it is no result, or not readable
        return True, result


@advice.register
def _(notice: progress.RunFinished) -> str:
    return "" if notice.trial else "; --fresh runs it again"


@advice.register
def _(notice: progress.RunRefused) -> str:
    return advice(notice.problem)


@advice.register
def _(notice: progress.SlowTraining) -> str:
    text = "; a small network is far faster: --set model.backbone=tiny"
    if notice.photos is not None:
        text = f"{_frozen_weights(notice.photos)}\na small network can be trained, and knows far less"
        text += ": --set model.backbone=tiny"
    if notice.size > SMALL_SIZE:
        smaller = f"--set model.size={SMALL_SIZE} --set model.resize={SMALL_RESIZE}"
        text += f"; with smaller pictures it is faster again: {smaller}"
    return text


def _frozen_weights(photos: Path) -> str:
    """Say how own photos are learnt within seconds: in a store on frozen weights, and as a run on them."""
    from fairshot.methods import baseline

    folder, preset = shlex.quote(str(photos)), DEFAULT_PRESET
    return (
        f"\na store on frozen ImageNet weights ({preset}) learns each class within seconds, and answers far "
        f"better: fairshot new STORE, then: fairshot teach STORE {folder}"
        f"\nas a run on them, which measures: fairshot run folder/{baseline()} --data {folder} --set "
        f"model.weights={preset} --set training.epochs=0"
    )


@advice.register
def _(problem: errors.UnknownRecipe) -> str:
    return "" if str(problem).endswith("?") else "; fairshot list names them"


@advice.register
def _(problem: errors.DamagedFile) -> str:
    """Name the command that makes a file of a run or a search anew."""
    if problem.path.name == "search.json":
        return "; search anew: fairshot tune --fresh"
    return "; run it anew: fairshot run --fresh" if problem.path.name in OF_A_RUN else ""


@advice.register
def _(problem: errors.FileRefused) -> str:
    return "; run it anew: fairshot run --fresh" if problem.path.name == "model.safetensors" else ""


@advice.register
def _(problem: errors.TrainingDiverged) -> str:
    if problem.phase:  # its settings are those of the method
        return ""
    return f": --set training.learning_rate={problem.learning_rate / 10:g} --fresh"


def how_to_get(dataset: Dataset) -> str:
    """Say how the files of a dataset come into the data folder."""
    by_hand = f"put there: {dataset.layouts}"
    return f"{_download(dataset)}, or {by_hand}" if dataset.source else f"no public source; {by_hand}"


def _download(dataset: Dataset) -> str:
    source = dataset.source
    return f"`fairshot data get {dataset.name}` downloads it ({source.size})" if source else ""


@advice.register
def _(problem: MissingData) -> str:
    download = f"; {_download(problem.dataset)}" if problem.dataset.source else ""
    has_it = "the folder that has it"
    return f"{download}; name {has_it} with --root, or set {DATA_VARIABLE} to {has_it}"


@advice.register
def _(problem: WrongData) -> str:
    if problem.dataset.source is None:
        return ""
    return f"; to download it anew, remove the folder and run `fairshot data get {problem.dataset.name}`"


@advice.register
def _(problem: store_errors.RunWithoutWeights) -> str:
    run = problem.path.parent
    return f": fairshot run {shlex.quote(str(run / 'recipe.yaml'))} --out {shlex.quote(str(run))} --fresh"


@advice.register
def _(problem: store_errors.RunImagesMissing) -> str:
    return (
        f"{advice(problem.problem)}\nWith --without-images the store is made without them: it has no "
        "examples of its base classes, and learns what is unknown from the photos it is taught alone"
    )
