"""Which option of a command helps: added to the message of an error, which names none itself."""

from __future__ import annotations

import shlex
from functools import singledispatch

from fairshot.benchmarks.dataset import Dataset, MissingData, WrongData
from fairshot.benchmarks.image_folder import TooFewImages
from fairshot.errors import BadOverride, MethodNotLoaded, NoGPU, UnevenEpisode, UnknownRecipe, UserError
from fairshot.server.errors import AddressUnavailable
from fairshot.teaching import errors as store_errors

OPTIONS: dict[type, str] = {
    AddressUnavailable: "; give another --port or --host",
    store_errors.RunWithoutWeights: ": --fresh",
    store_errors.UnknownBackbone: "; give --backbone another name",
    store_errors.PretrainedWeightsMissing: ": --weights FILE.safetensors",
    store_errors.UnusableWeights: "; give another file with --weights, or none",
    store_errors.NoBaseFolder: "; give another folder with --base",
    store_errors.TooFewHeldOut: "; give more images, or leave --choose-threshold out",
    store_errors.UnsupportedRun: "; train one with: fairshot run doodles/sss",
}


@singledispatch
def advice(problem: UserError) -> str:
    """Return what to put behind the message of an error; nothing for those that need no option."""
    return OPTIONS.get(type(problem), "")


@advice.register
def _(problem: store_errors.NotAStore) -> str:
    return f": fairshot new {problem.folder} --from RUN, or --backbone NAME"


@advice.register
def _(problem: store_errors.UnknownClass) -> str:
    return f"; all are listed by: fairshot classes {problem.folder}"


@advice.register
def _(problem: store_errors.ClassExists) -> str:
    return f": fairshot merge STORE {problem.name!r} {problem.new_name!r}"


@advice.register
def _(problem: store_errors.RunImagesMissing) -> str:
    return (
        f"{advice(problem.problem)}\nWith --without-images the store is made without them: it has no "
        "examples of its base classes, and learns what is unknown from the photos it is taught alone"
    )


@advice.register
def _(problem: UnknownRecipe) -> str:
    return "" if str(problem).endswith("?") else "; fairshot list names them"


@advice.register
def _(problem: BadOverride) -> str:
    del problem
    return "; an example is --set training.epochs=10"


@advice.register
def _(problem: MethodNotLoaded) -> str:
    if problem.kept is None:
        return "; commands that name the file can use it: fairshot run BENCHMARK/file.py:Class, or compare"
    return f", or add --set {shlex.quote(f'method.name={problem.recipe.parent / problem.kept}')}"


def how_to_get(dataset: Dataset) -> str:
    """Say how the files of a dataset come into the data folder."""
    by_hand = f"put there: {dataset.layouts}"
    return f"{_download(dataset)}, or {by_hand}" if dataset.source else f"no public source; {by_hand}"


def _download(dataset: Dataset) -> str:
    source = dataset.source
    return f"`fairshot data get {dataset.name}` downloads it ({source.size})" if source else ""


@advice.register
def _(problem: MissingData) -> str:
    return f"; {_download(problem.dataset)}" if problem.dataset.source else ""


@advice.register
def _(problem: WrongData) -> str:
    if problem.dataset.source is None:
        return ""
    return f"; to download it anew, remove the folder and run `fairshot data get {problem.dataset.name}`"


@advice.register
def _(problem: TooFewImages) -> str:
    del problem
    return "; to teach classes from all images, without a test, use fairshot new and fairshot teach"


@advice.register
def _(problem: NoGPU) -> str:
    del problem
    return "; use --device cpu"


@advice.register
def _(problem: UnevenEpisode) -> str:
    del problem
    return ", or another number of --processes"
