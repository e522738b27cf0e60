"""Several processes that share each batch train the same network as one."""

import json
from types import SimpleNamespace

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from fairshot.errors import BadSetting
from fairshot.training.hardware import SharedBatchNorm, share_batch_norms
from support.commands import CONTEXT
from support.shared_training import train, train_in_processes

# Halves of an episode of 18 images, three classes of six, end within a class.
EPISODES = ["method.way=3", "method.shots=2", "method.queries=4", "method.episode_epochs=1"]
METHODS = {
    "sss": ["method.sr_width=16", "method.fusions_per_image=2"],
    "cec": EPISODES,
    "c_fscil": [*EPISODES, "method.width=16"],
}


def test_two_processes_train_the_same_network_as_one(tmp_path):
    two = CONTEXT.Process(target=train_in_processes, args=(2, METHODS, tmp_path / "trained.json"))
    two.start()
    try:
        fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
        fabric.launch()
        alone = train(fabric, METHODS)
    finally:
        torch.set_default_dtype(torch.float32)
        two.join(240)
    assert two.exitcode == 0
    shared = json.loads((tmp_path / "trained.json").read_text())
    for method, weights in alone.items():
        assert weights.keys() == shared[method].keys()
        for name, value in weights.items():
            assert shared[method][name] == pytest.approx(value, rel=1e-9, abs=1e-9), (method, name)
    assert alone["sss"]["steps"] == 3
    assert alone["cec"]["steps"] == 3 + 5  # an episode per step, however many processes share it


@pytest.mark.parametrize(("device", "kind"), [("cpu", SharedBatchNorm), ("cuda", nn.SyncBatchNorm)])
def test_batch_norms_are_shared_once_and_odd_ones_refused_by_name(device, kind):
    two = SimpleNamespace(world_size=2, device=torch.device(device))
    network = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm1d(3))
    for _ in range(2):  # a second phase of a training finds them shared already
        share_batch_norms(network, two)
        assert [type(module) for module in network] == [kind, nn.ReLU, kind]
    values = torch.randn(4, 3)
    assert torch.equal(network.eval()[2](values), nn.BatchNorm1d(3).eval()(values))
    with pytest.raises(BadSetting, match=r"batch norm 1 \(BatchNorm3d\)"):
        share_batch_norms(nn.Sequential(nn.ReLU(), nn.BatchNorm3d(3)), two)
