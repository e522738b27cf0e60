"""Files that strangers give: exports of labels, weights, and what lies in a watched folder."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from fairshot.models.errors import UnusableWeights, WeightsDoNotFit
from fairshot.models.weights import load_weights, read_weights
from fairshot.teaching.errors import ExportRefused
from fairshot.teaching.photo_import import import_photos
from fairshot.watching.file_actions import write_sidecar
from support.commands import fairshot


def write_export(folder: Path, file: str = "a.jpg", name: str = "cat", width: int = 64) -> Path:
    """Write COCO's JSON of one box beside an image."""
    Image.new("RGB", (64, 48)).save(folder / "a.jpg")
    image = {"id": 1, "file_name": file, "width": width, "height": 48}
    annotation = {"image_id": 1, "category_id": 1, "bbox": [1, 1, 30, 30]}
    document = {"images": [image], "categories": [{"id": 1, "name": name}], "annotations": [annotation]}
    (folder / "export.json").write_text(json.dumps(document))
    return folder / "export.json"


@pytest.mark.parametrize("width", [10**9 + 1, 10**400], ids=["large", "no float"])
def test_sizes_that_no_image_has_are_refused(width: int, tmp_path: Path) -> None:
    with pytest.raises(ExportRefused):
        import_photos(write_export(tmp_path, width=width), tmp_path / "out")
    region = {"type": "rectanglelabels", "original_width": width, "original_height": 48}
    value = {"x": 1, "y": 1, "width": 9, "height": 9, "rectanglelabels": ["cat"]}
    task = {"data": {"image": "a.jpg"}, "annotations": [{"result": [region | {"value": value}]}]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(ExportRefused):
        import_photos(tmp_path / "tasks.json", tmp_path / "out")


def test_an_image_of_very_many_boxes_is_refused(tmp_path: Path) -> None:
    export = write_export(tmp_path)
    document = json.loads(export.read_text())
    first = document["annotations"][0]
    document["annotations"] = [first | {"bbox": [1, 1, 30 + n / 1000, 30]} for n in range(1001)]
    export.write_text(json.dumps(document))
    with pytest.raises(ExportRefused, match="1,001 boxes"):
        import_photos(export, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("reference", ["pipe.jpg", "elsewhere/pipe.jpg"])
def test_a_pipe_among_images_is_not_read(reference: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ExportRefused, match="is no file"):
        import_photos(write_export(tmp_path, reference), tmp_path / "out")


def test_names_do_not_steer_a_terminal(tmp_path: Path) -> None:
    for given in ({"name": "\x1b]0;title\x07\u202ecat"}, {"file": "\x1b[2J\u009b.jpg"}):
        done = fairshot(tmp_path, "import-photos", write_export(tmp_path, **given), tmp_path / "out")
        shown = done.stdout + done.stderr
        assert "\\x1b" in shown
        assert not {"\x1b", "\x07", "\u202e", "\u009b"} & set(shown)


def weights(**changed: torch.Tensor) -> dict[str, torch.Tensor]:
    plain = {"conv1.weight": torch.zeros(4, 3, 3, 3), "conv1.bias": torch.zeros(4)}
    return plain | {name.replace("_", "."): value for name, value in changed.items()}


class Backbone(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pretrained_cfg = {"first_conv": "conv1", "classifier": "fc"}
        self.conv1 = torch.nn.Conv2d(channels, 4, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (torch.zeros(1).expand(4, 3, 10**6, 10**6), UnusableWeights),  # of 12 TB, in a file of a kilobyte
        (torch.zeros(4, 3, 3, 3).to_sparse(), UnusableWeights),
        (torch.zeros(4, 3, 3, 3, dtype=torch.complex64), UnusableWeights),
        (torch.zeros(4, 3, 3, 3, device="meta"), UnusableWeights),
        (torch.full((4, 3, 3, 3), torch.nan), UnusableWeights),
        (torch.zeros(7), WeightsDoNotFit),
        (torch.zeros(4, 5, 3, 3), WeightsDoNotFit),
    ],
    ids=["repeated", "sparse", "complex", "meta", "nan", "flat", "channels"],
)
def test_strange_tensors_are_refused(
    changed: torch.Tensor, error: type[Exception], channels: int, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pth"
    torch.save(weights(), path)
    load_weights(Backbone(channels), "own", channels, str(path), None)
    torch.save(weights(conv1_weight=changed), path)
    with pytest.raises(error):
        load_weights(Backbone(channels), "own", channels, str(path), None)


def test_weights_that_unpack_to_more_than_their_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data.pkl", b"\x80\2" + b"]" * 100_000)  # lists, of 56 bytes each
        packed.writestr("archive/version", "3\n")
    with pytest.raises(UnusableWeights, match="compressed"):
        read_weights(path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_beside_a_picture_is_left_alone(kind: str, tmp_path: Path) -> None:
    """Otherwise one of them keeps all later files from being tagged."""
    sidecar = tmp_path / "a.jpg.xmp"
    make = {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda path: os.symlink("nowhere", path)}
    make[kind](sidecar)
    assert not write_sidecar(tmp_path / "a.jpg", "cat")
    assert write_sidecar(tmp_path / "b.jpg", "cat")
    assert write_sidecar(tmp_path / "b.jpg", "dog")
