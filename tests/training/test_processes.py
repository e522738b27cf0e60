"""Several processes that share each batch train the same network as one."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from torch import nn

from fairshot.errors import UserError
from fairshot.training.hardware import SharedBatchNorm, share_batch_norms

SCRIPT = """
import json, sys
import torch
from lightning_fabric import Fabric
from fairshot.benchmarks import load_stream
from fairshot.evaluation.base_session import build_method
from fairshot.recipes import load_recipe
from fairshot.training.loop import Trainer

torch.set_default_dtype(torch.float64)  # differences of rounding stay small, any other would show
processes = int(sys.argv[1])
fabric = Fabric(accelerator="cpu", devices=processes, precision="64-true",
                strategy="ddp" if processes > 1 else "auto")
fabric.launch()
found = {}
for name, own in json.loads(sys.argv[2]).items():
    settings = ["benchmark.base_classes=4", "benchmark.sessions=1", "training.batch=30", "training.epochs=1"]
    recipe = load_recipe(f"doodles/{name}", settings + own)
    stream = load_stream("doodles", recipe.benchmark)
    method = build_method(recipe, stream)
    method.embedder.double()
    trainer = Trainer(fabric, recipe.training, recipe.views, 12, recipe.seed)
    method.train_base(stream.base.train, trainer)
    weights = {key: value.double().abs().sum().item() for key, value in method.embedder.state_dict().items()}
    found[name] = {"loss": trainer.history[-1]["loss"], "steps": trainer.history[-1]["step"], **weights}
if fabric.is_global_zero:
    print("RESULT" + json.dumps(found))
"""
# Halves of an episode of 18 images, three classes of six, end within a class.
EPISODES = ["method.way=3", "method.shots=2", "method.queries=4", "method.episode_epochs=1"]
TRAINED = {
    "sss": ["method.sr_width=16", "method.fusions_per_image=2"],
    "cec": EPISODES,
    "c_fscil": [*EPISODES, "method.width=16"],
}


def train(processes: int, tmp_path) -> dict[str, dict[str, float]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(processes), json.dumps(TRAINED)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    return json.loads(line.removeprefix("RESULT"))


def test_two_processes_train_the_same_network_as_one(tmp_path):
    alone, shared = train(1, tmp_path), train(2, tmp_path)
    for method, weights in alone.items():
        assert weights.keys() == shared[method].keys()
        for name, value in weights.items():
            assert shared[method][name] == pytest.approx(value, rel=1e-9, abs=1e-9), (method, name)
    assert alone["sss"]["steps"] == 10
    assert alone["cec"]["steps"] == 10 + 16  # an episode a step, however many processes share it


def test_batch_norms_are_shared_once_and_odd_ones_refused_by_name():
    two = SimpleNamespace(world_size=2)
    network = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm1d(3))
    for _ in range(2):  # a second phase of a training finds them shared already
        share_batch_norms(network, two)
        assert [type(module) for module in network] == [SharedBatchNorm, nn.ReLU, SharedBatchNorm]
    with pytest.raises(UserError, match=r"batch norm 1 \(BatchNorm3d\)"):
        share_batch_norms(nn.Sequential(nn.ReLU(), nn.BatchNorm3d(3)), two)
