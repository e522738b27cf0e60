"""Train methods on the CPU in double precision, in one process or in several that share each batch."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from lightning_fabric import Fabric

Trained = dict[str, dict[str, float]]  # by method: losses and sums of weights, by name


def train(fabric: Fabric, methods: dict[str, list[str]]) -> Trained:
    """Train methods with changes of their recipes; return their losses and weights."""
    from fairshot.benchmarks import load_stream
    from fairshot.evaluation.base_session import build_method
    from fairshot.recipes import load_recipe
    from fairshot.training.loop import Trainer

    torch.set_default_dtype(torch.float64)  # differences of rounding stay small, any other would show
    trained = {}
    for name, changes in methods.items():
        few = ["benchmark.base_classes=4", "benchmark.sessions=1", "training.batch=30", "training.epochs=1"]
        recipe = load_recipe(f"doodles/{name}", few + changes)
        stream = load_stream("doodles", recipe.benchmark)
        method = build_method(recipe, stream)
        method.embedder.double()
        trainer = Trainer(fabric, recipe.training, recipe.views, 12, recipe.seed)
        method.train_base(stream.base.train.take(range(0, 300, 3)), trainer)
        weights = {
            key: value.double().abs().sum().item() for key, value in method.embedder.state_dict().items()
        }
        last = trainer.history[-1]
        trained[name] = {"loss": last["loss"], "steps": last["step"], **weights}
    return trained


def train_in_processes(processes: int, methods: dict[str, list[str]], out: Path) -> None:
    """Train in several processes, forked from this one, and write what the first has trained."""
    torch.set_num_threads(1)  # threads do not survive a fork
    fabric = Fabric(accelerator="cpu", devices=processes, precision="64-true", strategy="ddp_fork")

    def work(fabric: Fabric) -> None:
        trained = train(fabric, methods)
        if fabric.is_global_zero:
            out.write_text(json.dumps(trained))

    fabric.launch(work)
