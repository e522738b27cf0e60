"""Train methods on the CPU in double precision, in one process or in several that share each batch.

python shared_training.py PROCESSES METHODS
"""

from __future__ import annotations

import json
import sys

import torch

TRAINED = "TRAINED"  # begins the line of the output that holds what was trained


def train(processes: int, methods: dict[str, list[str]]) -> dict[str, dict[str, float]] | None:
    """Train methods with changes of their recipes; return their losses and weights, in the first process."""
    from lightning_fabric import Fabric

    from fairshot.benchmarks import load_stream
    from fairshot.evaluation.base_session import build_method
    from fairshot.recipes import load_recipe
    from fairshot.training.loop import Trainer

    strategy = "ddp" if processes > 1 else "auto"
    fabric = Fabric(accelerator="cpu", devices=processes, precision="64-true", strategy=strategy)
    fabric.launch()
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
    return trained if fabric.is_global_zero else None


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)  # differences of rounding stay small, any other would show
    if (trained := train(int(sys.argv[1]), json.loads(sys.argv[2]))) is not None:
        print(TRAINED + json.dumps(trained))
