"""A budget of images: what the training loop counts is what went through the network and what is printed."""

import io
import math

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from fairshot import studies
from fairshot.cli import app
from fairshot.errors import TrainingStopped, UserError
from fairshot.methods import methods
from fairshot.models.embedder import Embedder
from fairshot.reporting.conditions import BUDGETS, conditions
from fairshot.reporting.groups import group_results
from fairshot.reporting.terminal import conditions_table
from fairshot.studies import StudyOptions, compare
from fairshot.studies.comparison import Comparison
from fairshot.training.loop import Trainer
from support.toys import MODEL, TRAINING, VIEWS, cpu, toy_method, toy_stream

SMALL = ["benchmark.base_classes=4", "benchmark.way=2", "benchmark.sessions=1", "model.size=14"]
BUDGET = 1000


@pytest.fixture
def entered(monkeypatch):
    """Count the images that enter a network in training, except in the step that is tried on a copy."""
    seen, normalised, tried = [], Embedder.normalised, Trainer._images_per_step

    def count(embedder, images):
        seen.extend(images[:, 0, 0, 0].tolist() if embedder.training else [])
        return normalised(embedder, images)

    def leave_out(*arguments):
        before = len(seen)
        images = tried(*arguments)
        assert len(seen) > before
        del seen[before:]
        return images

    monkeypatch.setattr(Embedder, "normalised", count)
    monkeypatch.setattr(Trainer, "_images_per_step", leave_out)
    return seen


@pytest.mark.parametrize("name", sorted(methods()))
def test_every_method_passes_the_images_of_the_budget(name, entered):
    settings = TRAINING.model_copy(update={"epochs": 1, "images": BUDGET, "learning_rate": 0.01})
    trainer = Trainer(cpu(), settings, VIEWS, MODEL.size, 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = toy_method(name)
        method.train_base(toy_stream().base.train, trainer)
    per_epoch = (trainer.images - trainer.reserved_images) / trainer.base_epochs
    assert len(entered) == trainer.images
    assert BUDGET <= trainer.images < BUDGET + per_epoch
    assert bool(trainer.reserved_images) == bool(method.further_epochs(method.settings))
    assert trainer.budget == "images"


def test_the_table_prints_what_was_counted_and_which_rule_held(tmp_path, entered):
    chosen = [*SMALL, f"training.images={BUDGET}", "training.authors_epochs=2", "method.views=1"]
    (found,) = compare(["ncm"], tmp_path, overrides=chosen, options=StudyOptions("cpu")).results.values()
    assert (found.epochs, found.budget, found.images) == (4, "images", len(entered))
    authors = found.model_copy(update={"method": "fact", "images": 1234567, "epochs": 9, "budget": "authors"})
    table = Console(file=io.StringIO(), width=200)
    table.print(conditions_table([found, authors]))
    for result in (found, authors):
        values = conditions(group_results([result])[0]).values
        assert (values["images"], values["budget"]) == (f"{result.images:,}", BUDGETS[result.budget])
        assert f"{result.images:,}" in table.file.getvalue()


def test_authors_epochs_hold_where_they_are_more():
    settings = TRAINING.model_copy(update={"images": 100, "authors_epochs": 3})
    trainer = Trainer(cpu(), settings, VIEWS, MODEL.size, 0)
    toy_method("ncm").train_base(toy_stream().base.train, trainer)
    assert (trainer.base_epochs, trainer.budget, trainer.images) == (3, "authors", 3 * 240)


def test_an_interrupted_training_goes_on_counting(tmp_path):
    settings = TRAINING.model_copy(update={"images": 1000})

    def train(folder, deadline=math.inf):
        trainer = Trainer(cpu(), settings, VIEWS, MODEL.size, 0, folder, deadline=deadline)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            toy_method("ncm").train_base(toy_stream().base.train, trainer)
        return trainer.images

    with pytest.raises(TrainingStopped):
        train(tmp_path / "stopped", deadline=0)
    assert train(tmp_path / "stopped") == train(tmp_path / "whole") == 1200


def test_budgets_and_seeds_are_read_from_the_command_line(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(studies, "compare", lambda *given, **_: asked.append(given) or Comparison([], []))
    few = ("compare", "all", "--set", "model.size=14", "--out", str(tmp_path))
    for options in (("--seed", "0,1,2"), ("--seeds", "3"), ("--seed", "0", "--seed", "1,2")):
        assert CliRunner().invoke(app, [*few, *options, "--budget", "images=1.5e6"]).exit_code == 0
    assert [given[3] for given in asked] == [[0, 1, 2]] * 3
    assert asked[0][5] == ["model.size=14", "training.images=1500000"]
    for wrong in (("--seed", "x"), ("--seeds", "2", "--seed", "1"), ("--budget", "epochs=3")):
        refused = CliRunner().invoke(app, [*few, *wrong])
        assert isinstance(refused.exception, UserError)
        assert wrong[0] in str(refused.exception)
