"""Weights to begin with: those of packages against a plain forward pass, and files that fit or do not."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from fairshot.errors import ExtraMissing
from fairshot.models import weights as weights_module
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.errors import UnusableWeights, WeightsDoNotFit
from fairshot.models.presets import PRESETS, Preset
from fairshot.models.weights import load_weights, packaged_weights, read_weights, sha256_of
from fairshot.tensor_files import check_tensors

PACKAGED = [preset for preset in PRESETS.values() if preset.package]
LITE0 = PRESETS["efficientnet-lite0"]
NETWORK = "test_resnet"  # a ResNet of timm's own tests: three thin blocks


def needs(preset: Preset) -> None:
    if find_spec(preset.package) is None:
        pytest.skip(f"{preset.package} is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep converted weights of these tests in a folder of their own."""
    folder = tmp_path_factory.getbasetemp() / "converted weights"
    monkeypatch.setattr(weights_module.platformdirs, "user_cache_path", lambda _: folder)
    return folder / "weights"


def plain_forward(published: dict[str, Tensor], images: Tensor) -> Tensor:
    """Compute an EfficientNet-Lite from its published tensors alone: logits of images in [-1, 1].

    A depthwise kernel tells stride 2 by the blocks of EfficientNet: the first of stages 2, 3, 4 and 6.
    """

    def convolve(x: Tensor, name: str, stride: int = 1) -> Tensor:
        kernel = published[f"{name}.weight"]
        side, size = kernel.shape[-1], x.shape[-1]
        total = max((-(-size // stride) - 1) * stride + side - size, 0)  # TensorFlow's padding "same"
        x = functional.pad(x, [total // 2, total - total // 2] * 2)
        return functional.conv2d(x, kernel, stride=stride, groups=x.shape[1] if kernel.shape[1] == 1 else 1)

    def normalise(x: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            published[f"{name}.{each}"] for each in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, variance, weight, bias, eps=1e-3)

    x = functional.relu6(normalise(convolve(images, "_conv_stem", 2), "_bn0"))
    widths = [
        published[f"_blocks.{index}._project_conv.weight"].shape[0] for index in range(_blocks(published))
    ]
    before, stage = published["_conv_stem.weight"].shape[0], 0
    for index, width in enumerate(widths):
        stage += width != before
        stride = 2 if width != before and stage in (2, 3, 4, 6) else 1
        block, entering = f"_blocks.{index}", x
        if f"{block}._expand_conv.weight" in published:
            x = functional.relu6(normalise(convolve(x, f"{block}._expand_conv"), f"{block}._bn0"))
        x = functional.relu6(normalise(convolve(x, f"{block}._depthwise_conv", stride), f"{block}._bn1"))
        x = normalise(convolve(x, f"{block}._project_conv"), f"{block}._bn2")
        x, before = x + entering if x.shape == entering.shape else x, width
    x = functional.relu6(normalise(convolve(x, "_conv_head"), "_bn1")).mean(dim=(2, 3))
    return functional.linear(x, published["_fc.weight"], published["_fc.bias"])


def _blocks(published: dict[str, Tensor]) -> int:
    return 1 + max(int(name.split(".")[1]) for name in published if name.startswith("_blocks."))


def drawing(size: int) -> Tensor:
    """Return a picture with edges, colours and a gradient, in [0, 1]."""
    y, x = torch.meshgrid(*[torch.linspace(0, 1, size)] * 2, indexing="ij")
    disc = ((x - 0.5) ** 2 + (y - 0.4) ** 2 < 0.08).float()
    return torch.stack([disc, 0.7 * y, 0.3 + 0.5 * (x * 9 % 1)])[None].clamp(0, 1)


@pytest.mark.parametrize("preset", PACKAGED, ids=lambda preset: preset.name)
def test_packaged_weights_give_what_a_plain_forward_pass_of_the_published_tensors_gives(
    preset: Preset,
) -> None:
    needs(preset)
    published = read_weights(Path(find_spec(preset.package).submodule_search_locations[0]) / preset.file)
    settings = model_settings(preset.name)
    assert (settings.mean, settings.std, settings.weights_sha256) == ((0.5,) * 3, (0.5,) * 3, preset.sha256)
    embedder, image = Embedder(settings, 3).eval(), drawing(preset.size)
    head = packaged_weights(preset)
    with torch.inference_mode():
        logits = functional.linear(embedder(image)[0], head["classifier.weight"], head["classifier.bias"])
        expected = plain_forward(published, 2 * image - 1)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.5  # the two agree on an answer, not on zeros


def test_converted_weights_are_kept_and_made_anew_when_they_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(LITE0)
    first = packaged_weights(LITE0, tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(weights_module, "find_spec", lambda _: None)  # the package is gone
        again = packaged_weights(LITE0, tmp_path)
        assert all(torch.equal(again[name], value) for name, value in first.items())
        with pytest.raises(ExtraMissing, match="efficientnet-lite2"):
            packaged_weights(PRESETS["efficientnet-lite2"], tmp_path)
    for damaged in (whole[:-1000], whole[:-5] + b"\0" + whole[-4:], b""):
        kept.write_bytes(damaged)
        assert torch.equal(packaged_weights(LITE0, tmp_path)["conv_stem.weight"], first["conv_stem.weight"])
        assert kept.read_bytes() == whole
    nowhere = tmp_path / "a file"
    nowhere.write_text("where a folder should be")
    assert packaged_weights(LITE0, nowhere).keys() == first.keys()  # they need not be kept


def test_several_may_convert_at_once(tmp_path: Path) -> None:
    needs(LITE0)
    with ThreadPoolExecutor(3) as pool:
        converted = list(pool.map(lambda _: packaged_weights(LITE0, tmp_path), range(3)))
    for each in converted:
        assert all(torch.equal(value, converted[0][name]) for name, value in each.items())
    (kept,) = tmp_path.iterdir()
    check_tensors(kept)


def test_a_package_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / str(LITE0.package) / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / str(LITE0.package) / LITE0.file).write_bytes(b"PK other weights")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnusableWeights, match="SHA-256"):
        packaged_weights(LITE0, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_has_the_input_that_timm_records(preset: Preset) -> None:
    recorded = timm.get_pretrained_cfg(preset.backbone)
    assert (recorded.mean, recorded.std) == (preset.mean, preset.std)
    if preset.name != "dinov2-small":  # of which a smaller input is taken
        assert (recorded.input_size[-1], round(preset.size / recorded.crop_pct)) == (
            preset.size,
            preset.resize,
        )
    assert ModelSettings(**preset.section()).pinned().weights_sha256 == preset.sha256


def network(name: str = NETWORK, **further: object) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, **further)


def loaded(path: Path, name: str = NETWORK, channels: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(1)
    backbone = timm.create_model(name, num_classes=0, in_chans=channels)
    load_weights(backbone, name, channels, str(path), None)
    return backbone.state_dict()


@pytest.fixture(scope="module")
def published() -> dict[str, Tensor]:
    return network(num_classes=5).state_dict()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda tensors: tensors,
        lambda tensors: {
            "epoch": 3,
            "state_dict": {f"module.{name}": each for name, each in tensors.items()},
        },
        lambda tensors: {"model": {f"backbone.{name}": each for name, each in tensors.items()}, "args": [1]},
        lambda tensors: (
            {f"embedder.backbone.{name}": each for name, each in tensors.items()} | {"mean": torch.ones(1)}
        ),
        lambda tensors: {name: each for name, each in tensors.items() if "num_batches" not in name},
    ],
    ids=["plain", "in parallel", "in a checkpoint", "of a run", "of an old torch"],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_checkpoints_are_read_whatever_is_around_their_tensors(published, wrapped, legacy, tmp_path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(wrapped(published), path, _use_new_zipfile_serialization=not legacy)
    found = loaded(path)
    assert all(
        torch.equal(value, published[name]) for name, value in found.items() if "num_batches" not in name
    )
    assert not any(name.startswith("fc.") for name in found)


def test_names_of_torchvisions_resnets_are_those_of_timm(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    path = tmp_path / "resnet18.pth"
    torch.save(resnet18().state_dict(), path)
    assert torch.equal(loaded(path, "resnet18")["layer4.1.bn2.weight"], torch.ones(512))


def test_grey_pictures_get_the_sum_over_colours_as_timm_does_it(published, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(published, path)
    expected = published["conv1.0.weight"].sum(dim=1, keepdim=True)
    torch.testing.assert_close(loaded(path, channels=1)["conv1.0.weight"], expected)


def test_transformers_of_another_input_size_get_their_positions_resized(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    save_file(network("test_vit", num_classes=0).state_dict(), path)
    settings = ModelSettings(backbone="test_vit", small_stem=False, size=96, weights=str(path))
    assert Embedder(settings, 3).backbone.pos_embed.shape == (1, 37, 64)


def test_what_does_not_fit_is_told(published, tmp_path: Path) -> None:
    changed = {name: value for name, value in published.items() if name != "layer1.0.bn1.weight"}
    changed["layer2.0.conv1.weight"] = torch.zeros(3, 3, 3, 3)
    changed["layer9.0.conv1.weight"] = torch.zeros(1)
    path = tmp_path / "weights.safetensors"
    save_file(changed, path)
    with pytest.raises(WeightsDoNotFit) as refused:
        loaded(path)
    problem = refused.value
    assert problem.missing == ["layer1.0.bn1.weight"]
    assert problem.other_shapes[0].startswith("layer2.0.conv1.weight (3, 3, 3, 3) instead of ")
    assert problem.unexpected == ["layer9.0.conv1.weight"]
    assert all(kind in str(problem) for kind in ("missing: ", "of another shape: ", "unexpected: "))


def test_a_deeper_network_is_not_taken_for_a_shallower_one(tmp_path: Path) -> None:
    path = tmp_path / "resnet34.safetensors"
    save_file(network("resnet34").state_dict(), path)
    with pytest.raises(WeightsDoNotFit) as refused:
        loaded(path, "resnet18")
    assert not refused.value.missing
    assert refused.value.unexpected[0].startswith("layer1.2.")


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.write_text, (self.path, "code was run")


@pytest.mark.parametrize("legacy", [False, True, None], ids=["zip", "old torch", "pickle"])
def test_no_file_of_weights_runs_code(published, legacy, tmp_path: Path) -> None:
    path, trace = tmp_path / "weights.pth", tmp_path / "trace"
    content = {"state_dict": published, "trap": Trap(trace)}
    if legacy is None:
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UnusableWeights):
        read_weights(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"PK\3\4" + bytes(60), b"\x80\2}", b"\x80", b"<html>", bytes(100), json.dumps([1]).encode()],
    ids=["empty", "zip begun", "zip of nothing", "pickle", "pickle begun", "page", "zeros", "json"],
)
def test_what_is_no_file_of_weights_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(UnusableWeights) as refused:
        read_weights(path)
    assert refused.value.path == path


@pytest.mark.parametrize("content", [torch.zeros(3), {"epoch": 3}, {}, {"state_dict": {"a": 1}}])
def test_a_checkpoint_without_tensors_by_name_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(content, path)
    with pytest.raises(UnusableWeights, match="holds no tensors by name"):
        read_weights(path)


def test_a_file_that_changed_since_it_was_named_is_refused(published, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(published, path)
    settings = ModelSettings(backbone=NETWORK, small_stem=False, size=32, weights=str(path)).pinned()
    assert settings.weights_sha256 == sha256_of(str(path))
    assert np.isfinite(Embedder(settings, 3).backbone.conv1[0].weight.sum().item())
    save_file({name: value + 1 for name, value in published.items()}, path)
    with pytest.raises(UnusableWeights, match="is not the file it should be"):
        Embedder(settings, 3)
