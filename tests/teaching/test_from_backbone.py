"""Stores on backbones of timm: weights from a file, with and without base images, and no network."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants as hub
from PIL import Image
from safetensors.torch import save_file

from fairshot.cli.advice import advice
from fairshot.errors import UserError
from fairshot.models.backbones import build_backbone, model_settings
from fairshot.models.embedder import ModelSettings
from fairshot.models.errors import PretrainedWeightsMissing, UnknownBackbone, UnusableWeights, WeightsDoNotFit
from fairshot.speed.teach import measure_store
from fairshot.teaching import Store, backbone_spec
from fairshot.teaching.backbone_spec import from_backbone

BACKBONE = "test_resnet"  # a ResNet of timm's own tests: three thin blocks, 160 pixels


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write weights as timm publishes them, the classifier among them."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    save_file(timm.create_model(BACKBONE, num_classes=7).state_dict(), path)
    return path


def photos(folder: Path, classes: int, each: int) -> Path:
    """Write photos of coloured stripes: each class has its colour and direction."""
    draw = np.random.default_rng(0)
    for number in range(classes):
        (folder / f"class {number}").mkdir(parents=True)
        colour = np.random.default_rng(number).integers(60, 256, 3)
        for index in range(each):
            ramp = (np.arange(200)[:, None, None] // (4 + 6 * number)) % 2 * colour
            noise = draw.integers(0, 60, (200, 220, 3))
            Image.fromarray(np.clip(ramp + noise, 0, 255).astype(np.uint8)).save(
                folder / f"class {number}" / f"{index}.jpg"
            )
    return folder


def test_backbone_alone_is_taught_from_photos(weights: Path, tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 4, 6)
    with Store.create(tmp_path / "store", from_backbone(BACKBONE, weights)) as store:
        assert store.layout.g_tilde is None  # g~ is g
        assert store.network.views.count == 1
        for number in range(4):
            store.teach(
                f"class {number}", [folder / f"class {number}" / f"{index}.jpg" for index in range(5)]
            )
        answers = store.predict([folder / f"class {number}" / "5.jpg" for number in range(4)])
        assert [each.top[0].name for each in answers] == [f"class {number}" for number in range(4)]
        assert "on the backbone test_resnet" in store.history()[-1].sentence()
        loaded = store.network.embedder.backbone.state_dict()
    published = timm.create_model(BACKBONE, num_classes=7)
    settings = model_settings(BACKBONE)
    assert settings.size == 160
    assert set(loaded) == {name for name in published.state_dict() if not name.startswith("fc.")}


def test_sr_is_trained_behind_the_frozen_backbone(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(backbone_spec, "SR_WIDTH", 32)
    base = photos(tmp_path / "base", 3, 10)
    spec = from_backbone(BACKBONE, weights, base, epochs=2)
    assert sorted(spec.names) == ["class 0", "class 1", "class 2"]
    assert spec.network.shape_tilde == (2, 32)
    assert spec.classifier.settings.gamma > 0
    untouched = from_backbone(BACKBONE, weights).network.embedder.backbone.state_dict()
    for name, value in spec.network.embedder.backbone.state_dict().items():
        assert torch.equal(value, untouched[name]), name  # statistics of batch norms too
    with Store.create(tmp_path / "store", spec) as store:
        assert {info.trained_on for info in store.classes()} == {8}
        assert len(store.base_samples().classes) == 24
        store.teach("new", sorted((photos(tmp_path / "more", 4, 5) / "class 3").iterdir()))
        assert len(store.predict(sorted((base / "class 1").iterdir())[:3])) == 3


def test_weights_that_do_not_fit_are_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsDoNotFit, match=r"does not fit resnet18: \d+ tensors missing") as refused:
        from_backbone("resnet18", weights)
    assert "conv1.weight" in refused.value.missing
    (tmp_path / "broken").write_bytes(b"no weights")
    with pytest.raises(UnusableWeights, match="neither a file of safetensors nor of torch"):
        from_backbone(BACKBONE, tmp_path / "broken")


@pytest.mark.parametrize("name", ["resnett18", "tiny"])
def test_a_backbone_that_timm_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(UnknownBackbone) as refused:
        model_settings(name)
    assert str(refused.value).endswith("; did you mean resnet18?") == (name == "resnett18")


def test_without_a_network_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(PretrainedWeightsMissing) as refused:
        from_backbone(BACKBONE)
    assert refused.value.backbone == BACKBONE
    assert advice(refused.value) == ": --weights FILE"


class Answer(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("reached", [True, False])
def test_a_hub_out_of_reach_is_asked_once(reached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def create(*_: object, **__: object) -> None:
        found.append(hub.HF_HUB_OFFLINE)
        raise OSError("no such weights")

    monkeypatch.setattr(timm, "create_model", create)
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        monkeypatch.setattr(hub, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        if reached:
            Thread(target=server.handle_request, daemon=True).start()
        else:
            server.server_close()
        with pytest.raises(UserError, match="could not be loaded"):
            build_backbone(ModelSettings(backbone=BACKBONE, small_stem=False, pretrained=True), 3)
    assert found == [not reached]
    assert not hub.HF_HUB_OFFLINE


def test_speed_is_measured_on_whole_stores() -> None:
    """Small here; `fairshot bench teach` measures ResNet-18 and 100,000 classes."""
    timings = measure_store(BACKBONE, sr_width=16, many_classes=1100, repeats=2)
    assert [timing.what.split(" ")[0] for timing in timings] == ["open", "teach", "predict", "predict"]
    assert timings[-1].what == "predict one photo among 1,100 classes"
    assert all(0 < timing.seconds <= timing.worst for timing in timings)
