"""fairshot: give new classes a fair shot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.estimator import SSS

__all__ = ["SSS"]


def __getattr__(name: str) -> Any:
    """Load the estimator when it is first asked for: it needs torch, which takes seconds to import."""
    if name == "SSS":
        from fairshot.estimator import SSS

        return SSS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
