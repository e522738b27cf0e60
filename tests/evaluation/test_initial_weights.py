"""Runs that begin with weights of a file: recorded with the run, and not needed again after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from fairshot.errors import OtherTraining
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import recipe_of
from fairshot.models.errors import CannotEmbed, UnusableWeights, WeightsDoNotFit
from fairshot.models.weights import sha256_of
from fairshot.recipes import load_recipe
from fairshot.teaching import Store, from_run
from fairshot.tensor_files import read_tensors
from fairshot.training.hardware import choose_hardware

SMALL = [
    *("model.size=32", "model.resize=32", "training.batch=8", "training.epochs=0"),
    *("benchmark.base_classes=3", "benchmark.way=1", "benchmark.shots=3"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write photos of four colours, and weights of a ResNet-18 under torchvision's names."""
    folder = tmp_path_factory.mktemp("weights")
    rng = np.random.default_rng(0)
    for number in range(4):
        (folder / "photos" / f"class {number}").mkdir(parents=True)
        for index in range(8):
            pixels = rng.integers(0, 60, (40, 44, 3)) + 50 * number
            Image.fromarray(pixels.astype(np.uint8)).save(
                folder / "photos" / f"class {number}" / f"{index}.png"
            )
    torch.manual_seed(5)
    torch.save({"state_dict": timm.create_model("resnet18").state_dict()}, folder / "resnet18.pth")
    return folder


def begin(folder: Path, recipe: str, out: str, *changes: str, base: Path | None = None) -> Path:
    """Run a recipe of CUB on the photos."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FAIRSHOT_CACHE", str(folder / "cache"))
        options = RunOptions(folder / out, choose_hardware("cpu"), photos=folder / "photos", base=base)
        run(load_recipe(recipe, [*SMALL, *changes]), options)
    return folder / out


@pytest.fixture(scope="module")
def frozen(folder: Path) -> Path:
    """Run NCM on the weights as they are."""
    return begin(folder, "cub200/ncm", "frozen", "model.weights=resnet18.pth")


def test_without_an_epoch_a_run_is_on_the_very_weights_and_records_them(folder: Path, frozen: Path) -> None:
    kept, given = (
        read_tensors(frozen / "model.safetensors"),
        torch.load(folder / "resnet18.pth")["state_dict"],
    )
    for name, value in given.items():
        assert name.startswith("fc.") or torch.equal(kept[f"embedder.backbone.{name}"], value), name
    model = Result.read(frozen).recipe["model"]
    assert (model["weights"], model["weights_sha256"]) == (
        "resnet18.pth",
        sha256_of(str(folder / "resnet18.pth")),
    )
    assert (frozen / "training.csv").read_text().splitlines() == [
        "step,epoch,loss,learning_rate,images_per_second"
    ]
    assert recipe_of(frozen).training.epochs == 0


def test_sss_of_cub_is_trained_from_weights_of_a_file(folder: Path) -> None:
    changes = ("model.weights=resnet18.pth", "training.epochs=1", "method.sr_width=16")
    trained = begin(folder, "cub200/sss", "sss", *changes)
    kept = read_tensors(trained / "model.safetensors")
    given = torch.load(folder / "resnet18.pth")["state_dict"]
    change = (kept["embedder.backbone.conv1.weight"] - given["conv1.weight"]).abs().max()
    assert 0 < change < 0.05
    gated = begin(folder, "cub200/sss_gate", "sss_gate", *changes, base=trained)
    assert Result.read(gated).base == "sss"
    decided = read_tensors(gated / "model.safetensors")
    assert torch.equal(decided["embedder.backbone.conv1.weight"], kept["embedder.backbone.conv1.weight"])


def test_what_a_run_made_of_weights_needs_them_no_more(
    folder: Path, frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRSHOT_CACHE", str(folder / "cache"))
    (folder / "resnet18.pth").rename(folder / "away.pth")
    try:
        with Store.create(tmp_path / "store", from_run(frozen)) as store:
            assert store.network.embedder.settings.weights is None
        with Store(tmp_path / "store") as store:
            answers = store.predict(sorted((folder / "photos" / "class 0").iterdir())[:2])
            assert len(answers) == 2
    finally:
        (folder / "away.pth").rename(folder / "resnet18.pth")


def test_other_weights_are_another_training(folder: Path, frozen: Path) -> None:
    torch.save(timm.create_model("resnet18").state_dict(), folder / "other.pth")
    with pytest.raises(OtherTraining) as refused:
        begin(folder, "cub200/ncm", "other", "model.weights=other.pth", base=frozen)
    assert "model.weights is resnet18.pth there and other.pth here" in refused.value.differences
    assert "model.weights_sha256 is " in refused.value.differences


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (["model.weights=nowhere.pth"], UnusableWeights),
        (["model.weights=photos"], UnusableWeights),
        (["model.weights=resnet18.pth", "model.backbone=resnet34"], WeightsDoNotFit),
        (["model.backbone=test_vit", "model.pretrained=false", "model.size=20"], CannotEmbed),
    ],
)
def test_what_cannot_begin_writes_nothing(changes: list[str], kind: type[Exception], folder: Path) -> None:
    with pytest.raises(kind):
        begin(folder, "cub200/ncm", "nothing", *changes)
    assert not (folder / "nothing").exists()
