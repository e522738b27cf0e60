"""Studies: everything made of several runs. Each is one function.

    from pathlib import Path
    from fairshot.studies import StudyOptions, compare

    small = ["benchmark.base_classes=10", "benchmark.sessions=2", "training.epochs=1"]
    comparison = compare(["ncm", "teen"], Path("runs/mine"), overrides=small, options=StudyOptions("cpu"))
    for run, result in comparison.results.items():
        print(run, result.metrics.overall_avg)

`compare` runs methods side by side, `tune` chooses settings (`tune_each` those of every method) and
`choose_gate` gates on pseudo-novel classes, `ablate` switches parts of SSS on and off, `poison` attacks
Calibration, `judge` compares with what was published. Each keeps what it finds in its folder, and goes on
there when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairshot.lazy import lazy_names

if TYPE_CHECKING:
    from fairshot.studies.ablation import Ablation as Ablation
    from fairshot.studies.ablation import ablate as ablate
    from fairshot.studies.comparison import Comparison as Comparison
    from fairshot.studies.comparison import compare as compare
    from fairshot.studies.execute import StudyOptions as StudyOptions
    from fairshot.studies.gate_search import choose_gate as choose_gate
    from fairshot.studies.poisoning import Poisoning as Poisoning
    from fairshot.studies.poisoning import poison as poison
    from fairshot.studies.reproducibility import Verdict as Verdict
    from fairshot.studies.reproducibility import judge as judge
    from fairshot.studies.tradeoff import TradeOff as TradeOff
    from fairshot.studies.tuning import Tuning as Tuning
    from fairshot.studies.tuning import tune as tune
    from fairshot.studies.tuning import tune_each as tune_each

__getattr__ = lazy_names(__name__, __file__)
