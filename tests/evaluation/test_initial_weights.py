"""Runs that begin with weights of a file: recorded with the run, and not needed again after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.errors import OtherTraining
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import recipe_of
from fairshot.models.errors import CannotEmbed, UnusableWeights
from fairshot.models.weights import sha256_of
from fairshot.teaching import Store, from_run
from fairshot.tensor_files import read_tensors

SMALL = [
    *("--set", "model.size=32", "--set", "model.resize=32", "--set", "training.batch=8", "--device", "cpu"),
    *("--set", "benchmark.base_classes=3", "--set", "benchmark.way=1", "--set", "benchmark.shots=3"),
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


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> BaseException | None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FAIRSHOT_CACHE", str(folder / "cache"))
    return CliRunner().invoke(app, ["run", *arguments, "--data", "photos", *SMALL]).exception


@pytest.fixture(scope="module")
def frozen(folder: Path) -> Path:
    """Run NCM of CUB's recipe on the weights as they are."""
    with pytest.MonkeyPatch.context() as patch:
        frozen = ("--set", "model.weights=resnet18.pth", "--set", "training.epochs=0", "--out", "frozen")
        assert run(folder, patch, "cub200/ncm", *frozen) is None
    return folder / "frozen"


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


def test_sss_of_cub_is_trained_from_weights_of_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = (
        "--set",
        "model.weights=resnet18.pth",
        "--set",
        "training.epochs=1",
        "--set",
        "method.sr_width=16",
    )
    assert run(folder, monkeypatch, "cub200/sss", *trained, "--out", "sss") is None
    kept, given = read_tensors(folder / "sss" / "model.safetensors"), torch.load("resnet18.pth")["state_dict"]
    change = (kept["embedder.backbone.conv1.weight"] - given["conv1.weight"]).abs().max()
    assert 0 < change < 0.05


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


def test_other_weights_are_another_run(folder: Path, frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(timm.create_model("resnet18").state_dict(), folder / "other.pth")
    other = ("--set", "model.weights=other.pth", "--set", "training.epochs=0", "--out", "other")
    refused = run(folder, monkeypatch, "cub200/ncm", *other, "--base", "frozen")
    assert isinstance(refused, OtherTraining)
    assert "model.weights is resnet18.pth there and other.pth here" in refused.differences


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (["model.weights=nowhere.pth"], UnusableWeights),
        (["model.weights=photos"], UnusableWeights),
        (["model.backbone=test_vit", "model.pretrained=false", "model.size=20"], CannotEmbed),
    ],
)
def test_what_cannot_begin_writes_nothing(
    changes: list[str], kind: type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [word for change in changes for word in ("--set", change)]
    assert isinstance(run(folder, monkeypatch, "cub200/ncm", *options, "--out", "nothing"), kind)
    assert not (folder / "nothing").exists()
