"""Stores on backbones of timm: weights from a file, with and without base images, and no network."""

from __future__ import annotations

import math
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants as hub
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from fairshot.classifiers.dual import DualClassifier
from fairshot.cli import app
from fairshot.cli.advice import advice
from fairshot.errors import UserError
from fairshot.models import weights as weights_module
from fairshot.models.backbones import build_backbone, model_settings
from fairshot.models.embedder import Features, ModelSettings
from fairshot.models.errors import PretrainedWeightsMissing, UnknownBackbone, UnusableWeights, WeightsDoNotFit
from fairshot.models.presets import DEFAULT_PRESET, PRESETS
from fairshot.speed.teach import measure_store
from fairshot.teaching import Store, backbone_spec, run_spec, sr_training
from fairshot.teaching.backbone_spec import from_backbone
from fairshot.teaching.background import no_background
from fairshot.teaching.confidence import Trials
from fairshot.teaching.held_out import trials_of
from fairshot.teaching.sr_training import BaseFeatures, Comparison, compare

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


def test_without_a_name_a_store_is_on_packaged_weights_which_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = PRESETS[DEFAULT_PRESET]
    if find_spec(preset.package) is None:
        pytest.skip(f"{preset.package} is not installed")
    monkeypatch.setattr(weights_module.platformdirs, "user_cache_path", lambda _: tmp_path / "cache")
    with Store.create(tmp_path / "store", from_backbone()) as store:
        origin = store.history()[-1].detail
    assert (origin["backbone"], origin["weights_sha256"]) == (DEFAULT_PRESET, preset.sha256)
    monkeypatch.setattr(weights_module, "packaged_weights", None)  # from now on the package is gone
    folder = photos(tmp_path / "photos", 3, 3)
    with Store(tmp_path / "store") as store:
        for number in range(3):
            store.teach(
                f"class {number}", [folder / f"class {number}" / f"{index}.jpg" for index in range(2)]
            )
        answers = store.predict([folder / f"class {number}" / "2.jpg" for number in range(3)])
        assert [each.top[0].name for each in answers] == [f"class {number}" for number in range(3)]


def test_presets_are_listed_without_a_store() -> None:
    shown = CliRunner().invoke(app, ["new", "--backbone", "list"])
    assert shown.exit_code == 0
    for preset in PRESETS.values():
        row = next(line for line in shown.stdout.splitlines() if line.startswith(preset.name))
        assert all(text in row for text in (str(preset.size), preset.licence, str(preset.milliseconds)))
        if preset.package is not None:
            assert ("in the extra 'photos'" in row) == (find_spec(preset.package) is None)
        assert ("timm" in row) == (preset.package is None)


@pytest.mark.parametrize("pays", [True, False])
def test_sr_is_kept_if_held_out_photos_say_that_it_pays(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pays: bool
) -> None:
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "cache"))
    for module in (backbone_spec, sr_training):
        monkeypatch.setattr(module, "SR_WIDTH", 32)
    found = Comparison((0.5, 0.75 if pays else 0.25), (0.5, 0.75))
    monkeypatch.setattr(backbone_spec, "compare", lambda *_: found)
    base = photos(tmp_path / "base", 4, 10)
    judged: list[DualClassifier] = []

    def trials(classifier: DualClassifier, features: Features, labels: torch.Tensor) -> Trials:
        judged.append(classifier)
        return trials_of(classifier, features, labels)

    monkeypatch.setattr(run_spec, "trials_of", trials)
    spec = from_backbone(BACKBONE, weights, base, epochs=2)
    assert sorted(spec.names) == [f"class {number}" for number in range(4)]
    assert spec.network.shape_tilde == ((1, 32) if pays else None)
    assert spec.remark.startswith("SR is kept: held-out" if pays else "SR is left out, and g alone decides: ")
    untouched = from_backbone(BACKBONE, weights).network.embedder.backbone.state_dict()
    for name, value in spec.network.embedder.backbone.state_dict().items():
        assert torch.equal(value, untouched[name]), name
    with Store.create(tmp_path / "store", spec) as store:
        assert {info.trained_on for info in store.classes()} == {8}
        assert len(store.base_samples().classes) == 32
        gates = judged[0].gate, store.snapshot().classifier.gate  # confidence is that of how it answers
        spaces = [gate.space.matrix for gate in gates if gate is not None and gate.space is not None]
        torch.testing.assert_close(*spaces)
        assert (gates[0] is spec.classifier.gate) == pays  # only without SR do photos whiten
        store.teach("new", sorted((photos(tmp_path / "more", 5, 5) / "class 4").iterdir()))
        assert len(store.predict(sorted((base / "class 1").iterdir())[:3])) == 3


def base_features(spread: float) -> BaseFeatures:
    """Draw features of six classes, which lie apart along one direction each."""
    draw = torch.Generator().manual_seed(0)

    def images(each: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(6).repeat_interleave(each)
        noise = spread * torch.rand(len(labels), 1, 12, generator=draw)
        return torch.eye(12)[labels][:, None] + noise, labels

    return BaseFeatures(*images(8), *images(4), 6)


def test_sr_is_judged_on_classes_that_it_was_not_trained_on() -> None:
    """Where g answers all right, SR cannot pay."""
    easy = compare(no_background(1, 12), base_features(0.1), 3, math.inf)
    assert easy is not None
    assert easy.accuracy[0] == 1
    assert easy.auroc[0] == 1
    assert not easy.pays
    assert Comparison((0.5, 0.6), (0.7, 0.7)).pays
    assert not Comparison((0.5, 0.5), (0.7, 0.7)).pays
    assert not Comparison((0.5, 0.6), (0.7, 0.6)).pays


def test_without_time_sr_is_left_out(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare(no_background(1, 12), base_features(0.1), 3, -math.inf) is None
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "cache"))
    base = photos(tmp_path / "base", 4, 4)
    for compared in (None, Comparison((0.5, 0.75), (0.5, 0.75))):  # the time was up before, or meanwhile
        monkeypatch.setattr(backbone_spec, "compare", lambda *_, found=compared: found)
        spec = from_backbone(BACKBONE, weights, base, max_minutes=-1)
        assert spec.network.shape_tilde is None
        assert "the time was up" in spec.remark


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
