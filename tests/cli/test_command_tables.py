"""Tables of measurements in a terminal of 80 columns: no number and no title is cut short or broken."""

import math

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fairshot.cli import app, console, data
from fairshot.speed import data as pictures
from fairshot.speed import mixtures, train
from fairshot.speed import teach as measure

TRAINING = [
    train.TrainingSpeed("fairshot", 123_456.0, 0.413, 0.24, 123.0, 4.5, 120.3),
    train.TrainingSpeed(
        "plain: PIL in 16 workers, float32, eager", 897.0, 0.01, 33.6, math.nan, math.nan, math.nan
    ),
    train.TrainingSpeed("plain: bf16", 1_794.0, 0.02, 16.8, math.nan, math.nan, 1.5),
]
PICTURES = pictures.DataSpeed(600, 600, 900.0, 1_200_000.0, 5_000.0, 300.0)
STORE = [measure.Timing("predict one photo among 100,000 classes", 0.1234, 12.5, 0.1)]
MIXTURES = [mixtures.MixtureSpeed("novel classes, g~", 240, 12.34, 1234.56, 12.34, 1234.56, 1e-06)]


@pytest.fixture
def printed(monkeypatch):
    """What a command prints to 80 columns, when measuring gives these rows."""
    for module in (console, data):
        monkeypatch.setattr(module, "CONSOLE", Console(width=80))
    monkeypatch.setattr(train, "measure_training", lambda *_: TRAINING)
    monkeypatch.setattr(train, "random_pictures", lambda *_: None)
    monkeypatch.setattr(pictures, "measure_data", lambda *_: PICTURES)
    monkeypatch.setattr(pictures, "generated_photographs", lambda _, count: range(count))
    monkeypatch.setattr(measure, "measure_store", lambda *_, **__: STORE)
    monkeypatch.setattr(mixtures, "measure_mixtures", lambda *_, **__: MIXTURES)

    def run(*arguments):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert "…" not in done.output
        assert max(map(len, done.output.splitlines())) <= 80
        return done.output

    return run


@pytest.mark.parametrize(
    ("what", "row"),
    [
        ("train", "fairshot 123,456 41.3% 0.24 123 4 120.3 137.6"),
        ("train", "plain: bf16 1,794 2.0% 16.80 - - 1.5 2.0"),
        ("data", "open and verify the cache 1,200,000 4000.0"),
        ("teach", "predict one photo among 100,000 classes 123 12,500 100 missed"),
        ("bgmm", "novel classes, g~ 240 12.34 1234.56 100.0 12.34 1234.56 1e-06"),
    ],
)
def test_measured_numbers_stand_in_one_line(printed, what, row):
    lines = [" ".join(line.split()) for line in printed("bench", what).splitlines()]
    assert row in lines


def test_long_names_are_broken_between_words(printed):
    text = printed("bench", "train")
    for word in ("plain:", "PIL", "workers,", "float32,", "eager", "of matrix", "cold", "warm"):
        assert word in text


def test_the_whole_path_of_data_is_shown(printed, tmp_path):
    folder = tmp_path / ("a" * 60) / ("b" * 60)
    (folder / "cifar-100-python").mkdir(parents=True)
    done = CliRunner().invoke(app, ["data", "list", "--root", str(folder)])
    cells = [line.split("│")[3].strip() for line in done.output.splitlines() if line.startswith("│")]
    assert str(folder / "cifar-100-python") in "".join(cells)
    assert f"Data is looked for in {folder}\n" in done.output


def test_the_protocol_of_a_benchmark(printed, tmp_path):
    lines = [
        line.split() for line in printed("data", "check", "doodles", "--root", str(tmp_path)).splitlines()
    ]
    assert ["base", "30", "2250", "75", "750"] in lines
    assert ["8", "5", "25", "5", "1750"] in lines
