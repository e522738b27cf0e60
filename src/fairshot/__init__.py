"""fairshot: give new classes a fair shot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.estimator import SSS
    from fairshot.teaching import Store

__all__ = ["SSS", "Store"]


def __getattr__(name: str) -> Any:
    """Load the estimator or the store when it is first asked for: torch takes seconds to import."""
    if name == "SSS":
        from fairshot.estimator import SSS

        return SSS
    if name == "Store":
        from fairshot.teaching import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
