"""What every method promises; the tests find each method by themselves."""

from contextlib import suppress
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fairshot.benchmarks.stream import Stream
from fairshot.errors import TrainingStopped
from fairshot.evaluation.metrics import metrics_from_confusions
from fairshot.evaluation.sessions import run_sessions
from fairshot.methods import method_named, methods
from fairshot.methods.method import Method
from fairshot.models.backbones import SMALL as BACKBONES
from fairshot.models.backbones import SmallResNet
from fairshot.models.embedder import Embedder
from fairshot.progress import SILENT
from fairshot.training.batches import Batches
from fairshot.training.hardware import choose_hardware
from fairshot.training.loop import Step, TrainingSettings
from fairshot.training.views import NOISE_COLUMNS
from support.toys import MODEL, SMALL, VIEWS, after_base, fit_toy, learnt_base, toy_method, toy_stream

every_method = pytest.mark.parametrize("name", methods())
FLOORS = {"base": 70.0, "inc": 55.0, "overall": 65.0}
RUNNING = {"running_mean", "running_var", "num_batches_tracked", "images_passed"}
FEW = 10  # images of each class, as many as an episode takes
SHORT = TrainingSettings(epochs=2, batch=30, learning_rate=0.02, average_decay=0.7)


def reached(method: Method, stream: Stream) -> dict[str, float]:
    outcome = run_sessions(method, stream)
    metrics = metrics_from_confusions(outcome.confusions, [len(s.classes) for s in stream.sessions])
    return {"base": metrics.sessions[0].overall, "inc": metrics.inc_avg, "overall": metrics.last}


@every_method
def test_it_learns_a_toy_stream(name):
    found = reached(after_base(name), toy_stream())
    assert all(found[key] > floor for key, floor in FLOORS.items()), found


def test_without_training_the_toy_stream_is_not_learnt():
    """What the floors are worth."""
    method, base = toy_method("ncm"), toy_stream().base.train
    method.init_classifiers(method.embed(base.pictures), torch.from_numpy(base.labels))
    found = reached(method, toy_stream())
    assert all(found[key] < floor for key, floor in FLOORS.items()), found


def test_bytes_kept_are_of_the_classes_seen_and_not_of_the_networks():
    feature, count, picture = 64 * 4, 8, 14 * 14
    for name, each in {
        "ncm": feature + count,
        "bidist": 2 * feature + 2 * count + picture,  # mean, weight, label of the picture; two networks
    }.items():
        method = after_base(name)
        assert method.kept_bytes == 6 * each
        method.learn(toy_stream().sessions[1].train)
        assert method.kept_bytes == 8 * each


@every_method
def test_it_is_told_the_number_of_classes_only_if_it_declares_so(name):
    kind = method_named(name)
    settings = kind.Settings.model_validate(SMALL.get(name, {}))
    given = {True: {"total_classes": 10}, False: {}}
    kind(settings, MODEL, 1, 6, **given[kind.card.knows_future])
    with pytest.raises(ValueError, match="number of classes"):
        kind(settings, MODEL, 1, 6, **given[not kind.card.knows_future])


@every_method
def test_what_comes_later_changes_nothing_before(name):
    """Its predictions up to a session are the same whether or not more sessions follow."""
    stream = toy_stream()
    shorter = Stream(stream.benchmark, stream.class_names[:8], stream.sessions[:2])
    whole, part = run_sessions(after_base(name), stream), run_sessions(after_base(name), shorter)
    for one, other in zip(whole.confusions, part.confusions, strict=False):
        np.testing.assert_array_equal(one, other)


@cache
def briefly_trained(name: str, seed: int) -> tuple[dict, list]:
    method, curve = fit_toy(name, seed, training=SHORT, images=FEW)
    return method.tensors(), curve


@every_method
def test_interrupted_after_every_step_it_learns_the_same(name, tmp_path):
    starts = 0
    method = None
    while method is None:
        starts += 1
        with suppress(TrainingStopped):
            method, curve = fit_toy(name, 0, tmp_path, SHORT, deadline=0.0, images=FEW)
    never, undisturbed = briefly_trained(name, 0)
    assert starts > 4, "it was not interrupted after every step"
    for key, value in never.items():
        assert torch.equal(method.tensors()[key], value), key
    assert [row["loss"] for row in curve] == [row["loss"] for row in undisturbed]
    assert [row["step"] for row in curve] == sorted({row["step"] for row in curve})


@every_method
def test_a_seed_decides_everything(name):
    first, second = after_base(name), after_base(name)
    for method, global_seed in ((first, 3), (second, 4)):
        with torch.random.fork_rng():
            torch.manual_seed(global_seed)  # learning draws nothing from the generator of the process
            for session in toy_stream().sessions[1:]:
                method.learn(session.train)
    for key, value in first.tensors().items():
        assert torch.equal(second.tensors()[key], value), key
    one, other = briefly_trained(name, 0)[0], briefly_trained(name, 1)[0]
    assert any(not torch.equal(other[key], value) for key, value in one.items())


@every_method
def test_it_predicts_one_image(name):
    method, stream = after_base(name), toy_stream()
    method.learn(stream.sessions[1].train)
    pictures = stream.seen_test(1).pictures
    several = method.scores(method.embed(pictures.take(range(0, 160, 40))))
    alone = method.scores(method.embed(pictures.take([40])))
    assert several.shape == (4, 8)
    assert alone.shape == (1, 8)
    torch.testing.assert_close(alone[0], several[1], rtol=1e-4, atol=1e-5)
    assert 0 <= int(method.predict(method.embed(pictures.take([40])))) < 8


@every_method
def test_all_it_has_learnt_is_in_its_tensors(name):
    """After the base session and after a later one."""
    method, stream = after_base(name), toy_stream()
    for session in stream.sessions[1:]:
        copy = toy_method(name)
        copy.restore({key: value.clone() for key, value in method.tensors().items()})
        method.learn(session.train)
        copy.learn(session.train)
        pictures = session.test.pictures.take(range(0, 40, 8))
        assert torch.equal(copy.scores(copy.embed(pictures)), method.scores(method.embed(pictures)))
        assert copy.seen_classes == method.seen_classes == max(session.classes) + 1


@every_method
def test_its_classifiers_can_be_made_anew_of_what_was_trained(name):
    """As a search for settings and a run on the base session of another do."""
    method, stream = toy_method(name), toy_stream()
    method.restore_modules({key: value.clone() for key, value in learnt_base(name).items()})
    method.init_base_classifiers(stream.base.train)
    for key, value in learnt_base(name).items():
        assert torch.equal(method.tensors()[key], value), key
    anew, trained = run_sessions(method, stream), run_sessions(after_base(name), stream)
    for one, other in zip(anew.confusions, trained.confusions, strict=True):
        np.testing.assert_array_equal(one, other)


DECISIONS = [(name, each) for name in methods() for each in sorted(method_named(name).decision_settings)]


@cache
def short_training(name: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    return training_with(name)


def training_with(name: str, **options: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of a short training, and the network that comes of it."""
    training = SHORT.model_copy(update={"epochs": 1})
    method, history = fit_toy(name, training=training, images=FEW, **options)
    return [row["loss"] for row in history], method.embedder.state_dict()


NEEDED = {  # settings without which another one is refused
    "gate_strength": {"gate": "constant"},
    "class_covariance_share": {"whitening": True},
}


def another(name: str, setting: str) -> Any:
    """A valid value of a setting that is not the one the toy has."""
    kind, small = method_named(name).Settings, SMALL.get(name, {})
    given = getattr(kind.model_validate(small), setting)
    choices = get_args(kind.model_fields[setting].annotation)
    for value in (*choices, True, False, 2, 7, 0.3, 0.6):
        with suppress(ValidationError):
            if (
                getattr(kind.model_validate(small | NEEDED.get(setting, {}) | {setting: value}), setting)
                != given
            ):
                return value
    raise AssertionError(f"no other value found for {setting}, which is {given}")


@pytest.mark.parametrize(("name", "setting"), DECISIONS)
def test_a_setting_of_the_decision_leaves_the_training_as_it_is(name, setting):
    changed = NEEDED.get(setting, {}) | {setting: another(name, setting)}
    losses, network = training_with(name, **changed)
    expected, same = short_training(name)
    assert losses == expected
    assert all(torch.equal(network[key], same[key]) for key in same)


@every_method
def test_it_learns_all_or_nothing_and_only_new_classes_in_order(name):
    method, stream = after_base(name), toy_stream()
    before = {key: value.clone() for key, value in method.tensors().items()}
    with pytest.raises(ValueError, match="without a gap"):
        method.learn(stream.sessions[2].train)
    assert before.keys() == method.tensors().keys()
    for key, value in method.tensors().items():
        assert torch.equal(before[key], value), key


@every_method
def test_more_pictures_of_known_classes_add_no_class(name):
    method, stream = after_base(name), toy_stream()
    method.learn(stream.sessions[1].train)
    base = stream.base.test
    more = [np.flatnonzero(base.labels == c)[:3] for c in (1, 4)]
    method.learn(base.take(np.concatenate(more)))
    method.learn(stream.sessions[1].train)
    assert method.seen_classes == 8
    predicted = method.predict(method.embed(stream.seen_test(1).pictures))
    assert float((predicted.numpy() == stream.seen_test(1).labels).mean()) > 0.6


@every_method
def test_base_classes_may_be_ruled_out(name):
    method, stream = after_base(name), toy_stream()
    method.learn(stream.sessions[1].train)
    features = method.embed(stream.base.test.pictures)
    assert method.scores(features, novel_only=True).argmax(1).min() >= 6
    assert torch.equal(method.scores(features).argmax(1), method.predict(features))


def one_block(channels: int) -> SmallResNet:
    """Return a network that is traced soon: further blocks do what the first does."""
    network = SmallResNet(channels, (16, 16, 16), blocks=1, stem_stride=2)
    network.stages = nn.Sequential(network.stages[0], nn.Identity(), nn.Identity())
    return network


@every_method
def test_its_objective_compiles_as_one_graph(name, monkeypatch):
    """No loop over images, no shape that depends on data: what CUDA graphs need.

    Nor does the forward pass move anything but running statistics, which the backward pass does not read;
    all else that changes from step to step has `after_step`.
    """
    monkeypatch.setitem(BACKBONES, MODEL.backbone, one_block)
    method, stream = toy_method(name), toy_stream()
    seen = []

    class Once:
        """A trainer that compiles each phase and takes no step."""

        fabric = choose_hardware("cpu")
        reporter = SILENT
        settings = SHORT

        def reserve(self, objective, data, settings):
            """Leave no room in a budget that there is not."""

        def train(self, objective, data, phase="base", settings=SHORT):
            columns = objective.views * NOISE_COLUMNS + objective.noise
            shape = (settings.batch, objective.neighbours, columns)
            batches = Batches(data, *shape, 0, torch.device("cpu"), order=objective.order)
            pictures, labels, noise = batches[0]
            step = torch.compile(
                Step(objective, VIEWS, batches.channels), backend="eager", fullgraph=True, dynamic=False
            )
            before = {key: value.clone() for key, value in objective.named_buffers()}
            loss = step(pictures.buffer, pictures.offsets, pictures.sizes, labels, noise, MODEL.size)
            moved = {key for key, value in objective.named_buffers() if not torch.equal(value, before[key])}
            assert {key.rpartition(".")[2] for key in moved} <= RUNNING
            loss.backward()
            objective.after_step()
            assert loss.shape == ()
            assert torch.isfinite(loss)
            seen.append(phase)

    method.fit_base(stream.base.train, Once())
    torch._dynamo.reset()
    assert seen[0] == "base"


@every_method
def test_an_answer_takes_as_many_passes_as_it_says(name):
    method, seen = after_base(name), []
    for part in (module for module in vars(method).values() if isinstance(module, Embedder)):
        part.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    method.predict(method.embed(toy_stream().base.test.pictures.take([0])))
    assert sum(seen) == type(method).passes(method.settings)


@every_method
def test_it_says_what_it_is(name):
    kind = method_named(name)
    assert kind.__module__ == f"fairshot.methods.{name}"
    assert kind.__doc__
    assert kind.card.summary
    assert kind.card.stores
    assert kind.passes(kind.Settings()) >= 1


@every_method
def test_what_it_keeps_is_told_in_words_that_fit_a_column(name):
    stores = method_named(name).card.stores
    assert 0 < len(stores) <= 48
    assert max(map(len, stores.split())) <= 11  # a narrow column breaks between words
