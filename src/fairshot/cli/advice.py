"""Which option of a command helps: added to the message of an error or a notice, which names none itself."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from fairshot import errors, progress
from fairshot.benchmarks.dataset import Dataset, MissingData, WrongData
from fairshot.benchmarks.image_folder import TooFewImages
from fairshot.errors import first_of
from fairshot.server.errors import AddressUnavailable
from fairshot.teaching import errors as store_errors

Options = Collection[str] | None  # of the present command; None: no command is under way, all may be named


@dataclass(frozen=True)
class Hint:
    """What to put behind a message, made of the parts that name only options of the present command."""

    before: str
    parts: tuple[str, ...]
    between: str = ", or "

    def text(self, options: Options) -> str:
        """Return it, or nothing if no part is left."""
        parts = [part for part in self.parts if _has(options, part)]
        return self.before + self.between.join(parts) if parts else ""


def _has(options: Options, part: str) -> bool:
    return options is None or set(re.findall(r"--[a-z-]+", part)) <= set(options)


ANOTHER_FOLDER = ("give another --out", "give another --pseudo")
HINTS: dict[type, Hint] = {
    errors.BadOverride: Hint("; an example is ", ("--set training.epochs=10",)),
    errors.NoGPU: Hint("; use ", ("--device cpu",)),
    errors.UnevenEpisode: Hint(", or ", ("another number of --processes",)),
    TooFewImages: Hint(
        "; to teach classes from all images, without a test, ", ("use fairshot new and fairshot teach",)
    ),
    errors.FolderUnusable: Hint("; ", ANOTHER_FOLDER),
    errors.FolderOccupied: Hint("; ", (*ANOTHER_FOLDER, "begin anew in this one with --fresh")),
    errors.CodeChanged: Hint("; ", (*ANOTHER_FOLDER, "begin anew in this one with --fresh")),
    errors.OtherTraining: Hint(", ", ("--set the others alike",)),
    errors.OtherImages: Hint("; say where its own are with ", ("--data", "--root"), " or "),
    errors.PicturesNotFound: Hint("; say where they are with ", ("--data",)),
    errors.PseudoNovelUnfit: Hint("; change ", ("--novel",)),
    errors.HeldOutUnfit: Hint("; give a smaller ", ("--held-out",)),
    AddressUnavailable: Hint("; give another ", ("--port", "--host"), " or "),
    store_errors.UnknownBackbone: Hint("; give ", ("--backbone another name",)),
    store_errors.PretrainedWeightsMissing: Hint(": ", ("--weights FILE.safetensors",)),
    store_errors.UnusableWeights: Hint("; give another file with ", ("--weights, or none",)),
    store_errors.NoBaseFolder: Hint("; give another folder with ", ("--base",)),
    store_errors.TooFewHeldOut: Hint("; give more images, or leave ", ("--choose-threshold out",)),
    store_errors.UnsupportedRun: Hint("; train one with: ", ("fairshot run",)),
}
NAMED = 5  # runs that advice names
SMALL_SIZE, SMALL_RESIZE = 32, 36  # pixels of images that a CPU can learn from in minutes


PRESENT_OPTIONS: ContextVar[Options] = ContextVar("present options", default=None)


class AdvisedCommand(TyperCommand):
    """A command that says which options it has, so that advice names no others."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        PRESENT_OPTIONS.set({name for each in self.params for name in (*each.opts, *each.secondary_opts)})
        return super().invoke(ctx)


@singledispatch
def advice(problem: object, options: Options = None) -> str:
    """Return what to put behind the message of an error or a notice; nothing if no option helps.

    It names only those options that the present command has, and other commands with options of theirs.
    """
    hint = HINTS.get(type(problem))
    return "" if hint is None else hint.text(options)


@advice.register
def _(problem: errors.NoRun, _: Options = None) -> str:
    """Name the finished runs in the folder, or else beside it; those of the default method first."""
    for folder in (problem.folder, problem.folder.parent):
        runs = [str(path.parent) for path in sorted(folder.glob("*/result.json"), key=_default_method_first)]
        if runs:
            return f"; finished runs are {first_of(runs, NAMED)}"
    return "; give the folder of a run, as `fairshot run` writes it"


@advice.register
def _(problem: errors.NoRunsFound, _: Options = None) -> str:
    if problem.path.is_dir():
        return ""
    return "; give folders that `fairshot run` wrote, such as runs/demo"


def _default_method_first(result: Path) -> tuple[bool, Path]:
    """Sort runs of the default method before others: every command that takes a run takes those."""
    from fairshot.recipes import DEFAULT_METHOD  # takes seconds to import, and few errors need it

    try:
        return json.loads(result.read_bytes()).get("method") != DEFAULT_METHOD, result
    except (OSError, ValueError, AttributeError):  # it is no result, or not readable
        return True, result


@advice.register
def _(notice: progress.RunFinished, options: Options = None) -> str:
    return "" if notice.trial else Hint("; ", ("--fresh runs it again",)).text(options)


@advice.register
def _(notice: progress.RunRefused, options: Options = None) -> str:
    return advice(notice.problem, options)


@advice.register
def _(notice: progress.SlowTraining, options: Options = None) -> str:
    parts = ["a small network is far faster: --set model.backbone=tiny"]
    if notice.size > SMALL_SIZE:
        smaller = f"--set model.size={SMALL_SIZE} --set model.resize={SMALL_RESIZE}"
        parts.append(f"with smaller pictures it is faster again: {smaller}")
    return Hint("; ", tuple(parts), "; ").text(options)


@advice.register
def _(problem: errors.UnknownRecipe, _: Options = None) -> str:
    return "" if str(problem).endswith("?") else "; fairshot list names them"


@advice.register
def _(problem: errors.MethodNotLoaded, options: Options = None) -> str:
    if problem.kept is None:
        return "; commands that name the file can use it: fairshot run BENCHMARK/file.py:Class, or compare"
    named = shlex.quote(f"method.name={problem.recipe.parent / problem.kept}")
    return f", or add --set {named}" if _has(options, "--set") else ""


def how_to_get(dataset: Dataset) -> str:
    """Say how the files of a dataset come into the data folder."""
    by_hand = f"put there: {dataset.layouts}"
    return f"{_download(dataset)}, or {by_hand}" if dataset.source else f"no public source; {by_hand}"


def _download(dataset: Dataset) -> str:
    source = dataset.source
    return f"`fairshot data get {dataset.name}` downloads it ({source.size})" if source else ""


@advice.register
def _(problem: MissingData, _: Options = None) -> str:
    return f"; {_download(problem.dataset)}" if problem.dataset.source else ""


@advice.register
def _(problem: WrongData, _: Options = None) -> str:
    if problem.dataset.source is None:
        return ""
    return f"; to download it anew, remove the folder and run `fairshot data get {problem.dataset.name}`"


@advice.register
def _(problem: store_errors.NotAStore, _: Options = None) -> str:
    return f": fairshot new {problem.folder} --from RUN, or --backbone NAME"


@advice.register
def _(problem: store_errors.UnknownClass, _: Options = None) -> str:
    return f"; all are listed by: fairshot classes {problem.folder}"


@advice.register
def _(problem: store_errors.ClassExists, _: Options = None) -> str:
    return f": fairshot merge STORE {problem.name!r} {problem.new_name!r}"


@advice.register
def _(problem: store_errors.RunImagesMissing, options: Options = None) -> str:
    without = (
        "With --without-images the store is made without them: it has no examples of its base classes, and "
        "learns what is unknown from the photos it is taught alone"
    )
    return advice(problem.problem, options) + Hint("\n", (without,)).text(options)


@advice.register
def _(problem: store_errors.RunWithoutWeights, _: Options = None) -> str:
    run = problem.path.parent
    return f": fairshot run {shlex.quote(str(run / 'recipe.yaml'))} --out {shlex.quote(str(run))} --fresh"
