"""The estimator begins with weights of a file or of a preset."""

import hashlib

import numpy as np
import timm
import torch

from fairshot import SSS
from fairshot.estimators.inputs import Targets
from fairshot.models.presets import PRESETS


def test_an_estimator_begins_with_weights_and_is_loaded_without_them(tmp_path):
    weights = tmp_path / "weights.pth"
    torch.manual_seed(3)
    torch.save(timm.create_model("test_resnet").state_dict(), weights)
    images = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    options = {"backbone": "test_resnet", "epochs": 0, "sr": False, "device": "cpu", "weights": str(weights)}
    estimator = SSS(**options).fit(images, [0, 1] * 6)
    given = torch.load(weights)["conv1.0.weight"]
    assert torch.equal(estimator.method_.embedder.backbone.conv1[0].weight, given)
    assert (
        estimator.method_.embedder.settings.weights_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    )
    estimator.save(tmp_path / "saved")
    weights.unlink()
    again = SSS.load(tmp_path / "saved")
    assert (again.predict(images) == estimator.predict(images)).all()


def test_weights_of_a_preset_bring_its_backbone_and_input():
    preset = PRESETS["efficientnet-lite0"]
    photographs = np.zeros((2, 40, 50, 3), dtype=np.uint8)
    for given, size, resize in (({}, preset.size, preset.resize), ({"size": 128}, 128, None)):
        _, model = SSS(weights=preset.name, **given)._base_pictures(photographs, Targets.of([0, 1]))
        assert (model.backbone, model.size, model.resize) == (preset.backbone, size, resize)
        assert (model.mean, model.weights_sha256) == (preset.mean, preset.sha256)
