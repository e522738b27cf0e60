"""Which option of a command helps: added to the message of an error, which names none itself."""

from __future__ import annotations

import shlex
from functools import singledispatch

from fairshot.errors import BadOverride, MethodNotLoaded, UnknownRecipe, UserError


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
