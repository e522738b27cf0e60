"""From an installation to the first right answer about a photo: three commands, real weights, no network."""

import json
import socket
from importlib.util import find_spec
from pathlib import Path

import matplotlib.cbook
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from fairshot.benchmarks import cub200
from fairshot.benchmarks.dataset import data_folder
from fairshot.models.presets import DEFAULT_PRESET, PRESETS
from support.commands import fairshot

SPECIES = ["017.Cardinal", "073.Blue_Jay", "046.Gadwall", "106.Horned_Puffin"]
pytestmark = pytest.mark.skipif(
    find_spec(str(PRESETS[DEFAULT_PRESET].package)) is None, reason="the extra photos is not installed"
)


def without_network() -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse


def teach_and_ask(folder: Path, asked: list[Path]) -> list[dict]:
    """Call the three commands of the README on `photos/` and return the answers."""
    for command in (["new", "mine"], ["teach", "mine", "photos"]):
        done = fairshot(folder, *command, before=without_network)
        assert done.process.exitcode == 0, done.stderr
    done = fairshot(folder, "predict", "mine", *asked, "--json", before=without_network)
    assert done.process.exitcode == 0, done.stderr
    return json.loads(done.stdout)


def test_birds(tmp_path):
    found = cub200.find(data_folder())
    if found is None or not (found / "train").is_dir():
        pytest.skip(
            "CUB-200-2011 is not here; its licence does not allow to keep photos of it with the tests"
        )
    for name in SPECIES:
        (tmp_path / "photos" / name[4:]).mkdir(parents=True)
        for path in sorted((found / "train" / name).iterdir())[:5]:
            (tmp_path / "photos" / name[4:] / path.name).symlink_to(path)
    asked = [sorted((found / "test" / name).iterdir())[0] for name in SPECIES]
    answers = teach_and_ask(tmp_path, asked)
    assert [each["answer"] for each in answers] == [name[4:] for name in SPECIES]


def test_photos_that_come_with_packages(tmp_path):
    """Five overlapping parts of each photo are taught, and a sixth is asked: a flower, a temple, a person."""
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        person = Image.open(file).convert("RGB")
    photos = {name: Image.fromarray(load_sample_image(f"{name}.jpg")) for name in ("china", "flower")}
    asked = []
    for name, photo in {**photos, "person": person}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        width, height = photo.size
        for number in range(6):
            left, top = number * width // 20, number * height // 20
            part = photo.crop((left, top, left + 3 * width // 4, top + 3 * height // 4))
            part.save(tmp_path / "photos" / name / f"{number}.jpg")
        asked.append((tmp_path / "photos" / name / "5.jpg").rename(tmp_path / f"{name}.jpg"))
    answers = teach_and_ask(tmp_path, asked)
    assert [each["answer"] for each in answers] == [path.stem for path in asked]
