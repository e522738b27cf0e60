"""The measurement of training: what it counts, and a whole small one."""

import itertools
import math
import multiprocessing
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.errors import UserError
from fairshot.recipes import load_recipe
from fairshot.speed import train as speed
from fairshot.speed.train import base_objective, measure_training, network_work, random_pictures
from fairshot.training import loop as train
from fairshot.training.batches import Batches
from fairshot.training.hardware import choose_hardware

SMALL = ["training.batch=8", "model.size=8", "method.sr_width=16", "method.fused_views=2"]


@pytest.mark.parametrize(
    ("changes", "images"),
    [
        ([], 2 * 2 * 2),  # views, flips, plain and fused
        (["method.fused_views=1"], 2 * (2 + 1)),
        (["method.intra=false"], 2 * 2),
        (["method.inter=false", "method.intra=false"], 2),
    ],
)
def test_counts_what_the_network_sees_of_a_source_image(changes, images):
    objective = base_objective(load_recipe("doodles/sss", [*SMALL, *changes]), 3, 1)
    assert network_work(objective)[0] == images


def test_a_small_measurement_has_every_number():
    recipe = load_recipe("doodles/sss", SMALL)
    data = random_pictures(recipe, classes=3, images=24)
    ours, streamed, plain = measure_training(recipe, choose_hardware("cpu"), data)
    assert (ours.name, streamed.name) == ("fairshot, pictures on the device", "fairshot, streamed")
    assert plain.name.startswith("plain")
    for row in (ours, streamed, plain):
        assert row.images_per_second > 0
        assert row.seconds_per_epoch == pytest.approx(24 * 8 / row.images_per_second)
        assert math.isnan(row.peak_gigabytes)  # a CPU has none of its own
    share = ours.matrix_share / ours.images_per_second
    assert share > 0
    assert share == pytest.approx(plain.matrix_share / plain.images_per_second)


def test_each_row_keeps_its_pictures_where_its_name_says(monkeypatch):
    kept = []
    monkeypatch.setattr(train, "Batches", lambda *given: kept.append(given[8]) or Batches(*given))
    recipe = load_recipe("doodles/sss", SMALL)
    measure_training(recipe, choose_hardware("cpu"), random_pictures(recipe, 3, 24))
    assert kept == [True, False]


def test_plain_training_is_timed_without_batches_that_were_prepared_before(monkeypatch):
    prepared, calls = multiprocessing.Value("i", 0), itertools.count(1)

    class Counted(speed._PlainDataset):
        def __init__(self, *given):
            super().__init__(*given)
            self.prepared = prepared

        def __getitem__(self, index):
            with self.prepared.get_lock():
                self.prepared.value += 1
            return super().__getitem__(index)

    # Time passes only while workers prepare images: a second each.
    clock = SimpleNamespace(perf_counter=lambda: prepared.value + 1e-6 * next(calls))
    monkeypatch.setattr(speed, "time", clock)
    monkeypatch.setattr(speed, "_PlainDataset", Counted)
    recipe = load_recipe("doodles/sss", SMALL)
    *_, plain = measure_training(recipe, choose_hardware("cpu"), random_pictures(recipe, 3, 12 * 9))
    # A step takes 8 images and their neighbour, and the network sees 8 of each.
    assert plain.images_per_second == pytest.approx(8 * 8 / 9, rel=1e-3)


def test_plain_training_on_fewer_images_than_a_batch_has_takes_them_all():
    recipe = load_recipe("doodles/sss", [*SMALL, "training.batch=30"])
    *_, plain = measure_training(recipe, choose_hardware("cpu"), random_pictures(recipe, 3, 10))
    assert plain.images_per_second > 0


def test_a_benchmark_is_measured_on_its_own_pictures():
    small = ["--set", "training.batch=16", "--set", "model.size=8", "--set", "method.sr_width=16"]
    small += ["--set", "benchmark.base_classes=4"]
    command = ["bench", "train", "--benchmark", "doodles", "--device", "cpu", *small]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "base training of doodles/sss" in done.output


def test_a_benchmark_beside_a_recipe_of_another_is_refused():
    done = CliRunner().invoke(app, ["bench", "train", "doodles/sss", "--benchmark", "cifar100"])
    assert isinstance(done.exception, UserError)
    assert "--benchmark cifar100: doodles/sss is a recipe of doodles" in str(done.exception)
