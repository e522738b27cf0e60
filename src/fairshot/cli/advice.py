"""Which option of a command helps: added to the message of an error, which names none itself."""

from __future__ import annotations

import shlex
from functools import singledispatch

from fairshot.benchmarks.dataset import Dataset, MissingData, WrongData
from fairshot.benchmarks.image_folder import TooFewImages
from fairshot.errors import BadOverride, MethodNotLoaded, NoGPU, UnevenEpisode, UnknownRecipe, UserError


@singledispatch
def advice(problem: UserError) -> str:
    """Return what to put behind the message of an error; nothing for those that need no option."""
    del problem
    return ""


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
