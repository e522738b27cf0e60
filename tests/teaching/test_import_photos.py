"""Exports of Label Studio and COCO become folders of photos, and nothing is written elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fairshot import documents
from fairshot.cli import app
from fairshot.errors import CannotWrite, FileRefused
from fairshot.teaching.errors import ExportRefused
from fairshot.teaching.label_exports import Box, read_export
from fairshot.teaching.names import folder_name
from fairshot.teaching.photo_import import cut_out, import_photos

WIDTH, HEIGHT = 200, 100


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write an image whose pixels say where they are, and others."""
    folder = tmp_path / "export" / "images"
    folder.mkdir(parents=True)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.uint8)
    Image.fromarray(np.stack([x, y, 0 * x], axis=2)).save(folder / "places.png")
    for name in ("one", "two", "three"):
        Image.new("RGB", (32, 24), "red").save(folder / f"{name}.jpg")
    return folder


def write(images: Path, document: Any, name: str = "result.json") -> Path:
    path = images.parent / name
    path.write_text(json.dumps(document))
    return path


def tree(out: Path) -> dict[str, int]:
    return {path.name: len(list(path.iterdir())) for path in sorted(out.iterdir())}


def coco(images: list[dict[str, Any]], annotations: list[dict[str, Any]], **names: int) -> dict[str, Any]:
    return {
        "info": {"description": "0123456789abcdef0123456789abcdef"},  # looks like a checksum, and is none
        "images": images,
        "categories": [{"id": number, "name": name} for name, number in names.items()],
        "annotations": [{"id": number, **each} for number, each in enumerate(annotations)],
    }


def test_coco_boxes_are_cut_out_with_a_margin(images: Path, tmp_path: Path) -> None:
    places = {"id": 1, "file_name": "images/places.png", "width": WIDTH, "height": HEIGHT}
    export = write(
        images,
        coco(
            [places, {"id": 2, "file_name": "elsewhere\\one.jpg"}, {"id": 3, "file_name": "gone.jpg"}],
            [
                {"image_id": 1, "category_id": 1, "bbox": [40, 20, 50, 30]},
                {"image_id": 1, "category_id": 2, "bbox": [0, 0, 200, 100], "segmentation": [[1, 2, 3, 4]]},
                {"image_id": 1, "category_id": 2, "bbox": [0, 0, 3, 3]},  # too small
                {"image_id": 1, "category_id": 2, "bbox": [0, 0, 50, 50], "iscrowd": 1},
                {"image_id": 2, "category_id": 2, "bbox": []},  # of the whole image
                {"image_id": 3, "category_id": 2},
            ],
            cat=1,
            dog=2,
        ),
    )
    report = import_photos(export, tmp_path / "photos")
    assert tree(tmp_path / "photos") == {"cat": 1, "dog": 2}
    (crop,) = (tmp_path / "photos" / "cat").iterdir()
    pixels = np.asarray(Image.open(crop))
    assert pixels.shape == (36, 60, 3)
    assert pixels[0, 0].tolist() == [35, 17, 0]
    assert pixels[-1, -1].tolist() == [94, 52, 0]
    (whole,) = (tmp_path / "photos" / "dog").glob("one-*.jpg")
    assert whole.read_bytes() == (images / "one.jpg").read_bytes()
    assert report.skipped.keys() == {"images/places.png", "gone.jpg"}
    again = import_photos(export, tmp_path / "photos")
    assert again.written == 0
    assert again.photos == report.photos


def rectangle(*labels: str, **value: float) -> dict[str, Any]:
    return {
        "type": "rectanglelabels",
        "value": {**value, "rectanglelabels": list(labels)},
        "original_width": WIDTH,
        "original_height": HEIGHT,
    }


def task(image: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "data": {"note": "x", "image": image},
        "annotations": [{"result": list(results), **more}],
    }


def choice(*choices: str, **more: Any) -> dict[str, Any]:
    return {"type": "choices", "value": {"choices": list(choices)}, **more}


def test_label_studio_choices_and_rectangles(images: Path, tmp_path: Path) -> None:
    export = write(
        images,
        [
            task(
                "/data/upload/3/0a1b2c3d-places.png",  # the name that an upload gets
                rectangle("cat", x=20, y=20, width=25, height=30),
                rectangle("cat", x=20, y=20, width=25, height=30),
                rectangle("turned", x=50, y=20, width=20, height=20, rotation=90),
                {"id": "r", "type": "rectangle", "value": {"x": 0, "y": 0, "width": 50, "height": 50}},
                choice("of a region", id="r"),
                {"type": "polygonlabels", "value": {"points": [[1, 2]], "polygonlabels": ["cat"]}},
            ),
            task("/data/local-files/?d=images%2Fone.jpg", choice("dog")),
            task("https://example.org/x/two.jpg?token=1", choice("dog", "cat")),
            task("s3://bucket/three.jpg", choice("dog"), was_cancelled=True),
            task("three.jpg", choice("fish")),
        ],
    )
    report = import_photos(export, tmp_path / "photos", margin=0)
    assert tree(tmp_path / "photos") == {"cat": 1, "dog": 1, "fish": 1, "of a region": 1, "turned": 1}
    (crop,) = (tmp_path / "photos" / "cat").iterdir()
    assert np.asarray(Image.open(crop))[0, 0].tolist() == [40, 20, 0]
    (turned,) = (tmp_path / "photos" / "turned").iterdir()
    pixels = np.asarray(Image.open(turned))  # 40 x 20 pixels, turned to the left of its corner at 100, 20
    assert pixels.shape == (40, 20, 3)
    assert pixels[0, 0].tolist() == [80, 20, 0]
    assert len(report.skipped) == 2
    assert "several classes: cat, dog" in report.skipped["https://example.org/x/two.jpg?token=1"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        *(("../../etc", "etc"), ("/etc/passwd", "etc passwd"), ("..", "unnamed"), ("a/b\\c", "a b c")),
        *(
            (".hidden", "hidden"),
            ("a\nb\u202e", "a b"),
            ("C:\\x", "C x"),
            ("ÿ" * 300, "ÿ" * 100),
            ("cat", "cat"),
        ),
    ],
)
def test_names_of_classes_become_names_of_folders(
    name: str, folder: str, images: Path, tmp_path: Path
) -> None:
    assert folder_name(name) == folder
    out = tmp_path / "deep" / "photos"
    before = set(tmp_path.rglob("*"))
    report = import_photos(write(images, [task("one.jpg", choice(name))]), out)
    assert tree(out) == {folder: 1}
    assert report.renamed == ({} if name == folder else {name: folder})
    new = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(tmp_path / "deep") or path.name == "result.json" for path in new)


def test_images_and_folders_that_lead_elsewhere_are_not_used(images: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (images / "three.jpg").rename(outside / "three.jpg")
    (images / "link.jpg").symlink_to(outside / "three.jpg")
    out = tmp_path / "photos"
    out.mkdir()
    (out / "cat").symlink_to(outside)
    export = write(
        images,
        [
            task("link.jpg", choice("dog")),
            task("../../outside/three.jpg", choice("dog")),
            task("one.jpg", choice("cat")),
            task("two.jpg", choice("dog")),
        ],
    )
    report = import_photos(export, out)
    assert dict(report.photos) == {"dog": 1}
    assert report.skipped.keys() == {"link.jpg", "../../outside/three.jpg", "one.jpg"}
    assert [path.name for path in outside.iterdir()] == ["three.jpg"]


def test_a_turned_image_is_not_cut(images: Path, tmp_path: Path) -> None:
    places = {"id": 1, "file_name": "places.png", "width": HEIGHT, "height": WIDTH}
    export = write(images, coco([places], [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9]}], cat=1))
    with pytest.raises(ExportRefused, match="drawn on 100 x 200"):
        import_photos(export, tmp_path / "photos")
    assert not (tmp_path / "photos").exists()


def test_boxes_outside_give_nothing() -> None:
    pixels = np.zeros((10, 20, 3), np.uint8)
    assert cut_out(pixels, Box(2, 2, 3, 3)).size == 0
    assert cut_out(pixels, Box(-1, -1, 2, 2)).shape == pixels.shape
    assert cut_out(pixels, Box(0.9, 0.9, 0.1, 0.1)).size == 0


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[1, 2]",
        '{"images": 3}',
        '{"images": [], "annotations": [], "categories": []}',
        '[{"image": "a.jpg", "choice": "cat"}]',
        "[" * 100_000,
        '{"images": [{"id": 1, "file_name": "a.jpg", "width": 1e999}], "annotations": [], "categories": []}',
    ],
)
def test_what_is_no_export_is_refused(text: str, images: Path, tmp_path: Path) -> None:
    export = images.parent / "export.json"
    export.write_text(text)
    with pytest.raises((ExportRefused, FileRefused)):
        import_photos(export, tmp_path / "photos")
    assert not (tmp_path / "photos").exists()


def test_a_huge_export_is_refused(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = write(images, [task("one.jpg", choice("cat"))])
    monkeypatch.setattr(documents, "JSON_BYTES", 20)
    with pytest.raises(FileRefused, match="more than 20 bytes"):
        read_export(export)


def test_the_command_says_what_it_did(images: Path, tmp_path: Path) -> None:
    export = write(images, [task("one.jpg", choice("a/b")), task("gone.jpg", choice("cat"))])
    (images.parent / "elsewhere").mkdir()
    export = export.rename(images.parent / "elsewhere" / "export.json")
    command = ["import-photos", str(export), str(tmp_path / "photos")]
    assert isinstance(CliRunner().invoke(app, command).exception, ExportRefused)
    told = CliRunner().invoke(app, [*command, "--images", str(images)]).output
    assert "1 photos of 1 classes" in told
    assert "skipped gone.jpg" in told
    assert "the folder of a/b is called a b" in told


def test_a_name_that_no_file_can_have_is_skipped(images: Path, tmp_path: Path) -> None:
    named = [{"id": 1, "file_name": "x" * 900 + ".jpg"}, {"id": 2, "file_name": "images/one.jpg"}]
    labels = [{"image_id": number, "category_id": 1} for number in (1, 2)]
    report = import_photos(write(images, coco(named, labels, red=1)), tmp_path / "out")
    assert (report.written, len(report.skipped)) == (1, 1)


def test_a_disk_that_cannot_be_written_is_no_fault_of_the_images(images: Path, tmp_path: Path) -> None:
    export = write(
        images,
        coco([{"id": 1, "file_name": "images/one.jpg"}], [{"image_id": 1, "category_id": 1}], red=1),
    )
    (tmp_path / "out").write_text("a file where a folder should be")
    with pytest.raises(CannotWrite):
        import_photos(export, tmp_path / "out")
