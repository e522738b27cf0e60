"""Studies: everything made of several runs. Each is one function.

    from pathlib import Path
    from fairshot.studies import StudyOptions, compare

    small = ["benchmark.sessions=2", "training.epochs=1"]
    comparison = compare(["ncm", "sss"], Path("runs/mine"), overrides=small, options=StudyOptions("cpu"))
    for run, result in comparison.results.items():
        print(run, result.metrics.overall_avg)

`compare` runs methods side by side, `tune` chooses settings and `choose_gate` gates on pseudo-novel classes,
`ablate` switches parts of SSS on and off, `poison` attacks Calibration, `judge` compares with what was
published. Each keeps what it finds in its folder, and goes on there when it is called again.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.studies.ablation import Ablation, ablate
    from fairshot.studies.comparison import Comparison, compare
    from fairshot.studies.execute import StudyOptions
    from fairshot.studies.poisoning import Poisoning, poison
    from fairshot.studies.reproducibility import Verdict, judge
    from fairshot.studies.tradeoff import TradeOff, choose_gate
    from fairshot.studies.tuning import Tuning, tune

__all__ = [
    *("Ablation", "Comparison", "Poisoning", "StudyOptions", "TradeOff", "Tuning", "Verdict"),
    *("ablate", "choose_gate", "compare", "judge", "poison", "tune"),
]
_MODULES = {
    "ablation": ("Ablation", "ablate"),
    "comparison": ("Comparison", "compare"),
    "execute": ("StudyOptions",),
    "poisoning": ("Poisoning", "poison"),
    "reproducibility": ("Verdict", "judge"),
    "tradeoff": ("TradeOff", "choose_gate"),
    "tuning": ("Tuning", "tune"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: torch takes seconds."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"{__name__} has no {name}")
