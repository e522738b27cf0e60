"""fairshot: give new classes a fair shot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairshot.lazy import lazy_names

if TYPE_CHECKING:
    from fairshot.estimator import SSS as SSS
    from fairshot.teaching import Store as Store

__getattr__ = lazy_names(__name__, __file__)
