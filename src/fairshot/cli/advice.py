"""Which option of a command helps: added to the message of an error, which names none itself."""

from __future__ import annotations

from functools import singledispatch

from fairshot.errors import UserError


@singledispatch
def advice(problem: UserError) -> str:
    """Return what to put behind the message of an error; nothing for those that need no option."""
    del problem
    return ""
