"""What tests of the pages share: what somebody who reads them has at hand."""

import json
import shutil
from pathlib import Path

import pytest

from support.commands import fairshot
from support.page_commands import SHORT
from support.stripes import photo


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """Return photos of two birds, labels of an annotation, and runs of `make demo`, very short ones."""
    folder = tmp_path_factory.mktemp("demo")
    for kind, name in enumerate(("robin", "magpie")):
        for number in range(1, 6):
            photo(folder / "photos" / name / f"{number}.jpg", kind, number)
    for name in ("another.jpg", "photo.jpg", "inbox/1.jpg"):
        photo(folder / name, kind=0, number=6)
    labelled = {
        "images": [{"id": 1, "file_name": "another.jpg"}],
        "categories": [{"id": 1, "name": "robin"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1}],
    }
    (folder / "result.json").write_text(json.dumps(labelled))
    made = fairshot(folder, "compare", "ncm", "sss", "--out", "runs/demo", *SHORT)
    assert made.wait() == 0, made.stderr
    shutil.copytree(folder / "runs" / "demo" / "sss-seed0", folder / "runs" / "doodles-sss-seed0")
    return folder
