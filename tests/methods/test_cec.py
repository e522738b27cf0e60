"""CEC: attention over prototypes and one query, episodes with rotated images as novel classes."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairshot.errors import TrainingStopped, UserError
from fairshot.methods.cec import GraphAttention, PseudoIncrementalEpisodes
from fairshot.training.episodes import Episode
from fairshot.training.loop import TrainingSettings
from support.toys import after_base, fit_toy, toy_method, toy_stream, uniform


def attention() -> GraphAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GraphAttention(6).double()


def attended_by_hand(layer: GraphAttention, tokens: torch.Tensor) -> torch.Tensor:
    """Self-attention over tokens (T, d), one token after the other."""
    out = []
    for token in tokens:
        products = [float(layer.query(token) @ layer.key(other)) / math.sqrt(6) for other in tokens]
        total = sum(math.exp(product) for product in products)
        mixed = sum(
            math.exp(p) / total * layer.value(other) for p, other in zip(products, tokens, strict=True)
        )
        out.append(layer.norm(token + layer.output(mixed)))
    return torch.stack(out)


@torch.no_grad()
def test_it_is_self_attention_over_all_prototypes_and_one_query():
    layer, prototypes, queries = attention(), uniform(2, 4, 6), uniform(2, 3, 6, seed=1)
    adapted, query = layer(prototypes, queries)
    for e in range(2):
        for n in range(3):
            expected = attended_by_hand(layer, torch.cat([prototypes[e], queries[e, n : n + 1]]))
            torch.testing.assert_close(adapted[e, n], expected[:-1])
            torch.testing.assert_close(query[e, n], expected[-1])


def test_a_new_class_changes_what_queries_and_old_prototypes_become():
    method = after_base("cec")
    features = method.embed(toy_stream().base.test.pictures.take([0, 40]))
    before = method.scores(features)
    method.learn(toy_stream().sessions[1].train)
    assert not torch.allclose(method.scores(features)[:, :6], before, atol=1e-4)
    assert method.scores({"g": features["g"][:0]}).shape == (0, 8)


def test_an_order_is_made_of_episodes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), 20))
    episode = Episode(way=4, shots=2, queries=3)
    order = episode.order(labels, np.random.default_rng(1))
    assert len(order) == 7 * episode.images  # of 20 images each, as many as 140 images allow
    for task in order.reshape(7, 4, 5):
        classes = [set(labels[images]) for images in task]
        assert all(len(one) == 1 for one in classes)
        assert len(set.union(*classes)) == 4
        assert all(len(set(images)) == 5 for images in task)
    assert np.array_equal(order, episode.order(labels, np.random.default_rng(1)))
    assert not np.array_equal(order, episode.order(labels, np.random.default_rng(2)))


def test_a_class_with_too_few_images_repeats_some():
    labels = np.array([0] * 3 + [1] * 30)
    order = Episode(way=2, shots=2, queries=3).order(labels, np.random.default_rng(0))
    assert (labels[order.reshape(-1, 5)] == labels[order.reshape(-1, 5)][:, :1]).all()


def episodes(**shape) -> PseudoIncrementalEpisodes:
    return toy_method("cec").episode_objective(Episode(**shape)).double().eval()


def test_the_images_of_an_episode_are_rotated_alike():
    objective = episodes(way=2, shots=1, queries=1)
    images, noise = uniform(12, 1, 5, 5), torch.full((12,), 0.99, dtype=torch.float64)
    noise[0], noise[4], noise[8] = 0.1, 0.5, 0.9  # the first of each of three episodes decides
    rotated = objective.rotated(images, noise)
    for i in range(12):
        expected = np.rot90(images[i, 0].numpy(), 1 + i // 4)
        np.testing.assert_array_equal(rotated[i, 0].numpy(), expected)


def test_the_loss_tells_base_and_pseudo_novel_classes_apart():
    objective = episodes(way=2, shots=2, queries=1)
    view, noise = uniform(6, 1, 14, 14), torch.full((6, 1), 0.4, dtype=torch.float64)  # by 180 degrees
    with torch.no_grad():
        loss = objective([view], torch.zeros(6), noise)
        embed = lambda images: objective.embedder(images)[0]  # noqa: E731
        plain, rotated = embed(view), embed(view.rot90(2, (2, 3)))
        prototypes = torch.stack([part[[0 + i, 1 + i]].mean(0) for part in (plain, rotated) for i in (0, 3)])
        queries = torch.stack([part[2 + i] for part in (plain, rotated) for i in (0, 3)])
        losses = []
        for label, query in enumerate(queries):
            adapted, seen = objective.attention(prototypes[None], query[None, None])
            cosines = [16 * float(torch.cosine_similarity(seen[0, 0], p, dim=0)) for p in adapted[0, 0]]
            losses.append(math.log(sum(map(math.exp, cosines))) - cosines[label])
    assert float(loss) == pytest.approx(sum(losses) / 4)


def test_the_attention_learns_only_in_the_episodes():
    method, seen = toy_method("cec"), {}

    class Watching:
        fabric = SimpleNamespace(world_size=1)
        settings = type("S", (), {"model_copy": lambda self, update: update})()
        reserve = staticmethod(lambda objective, data, settings: None)

        def train(self, objective, data, phase="base", settings=None):
            trained = {name for name, weight in objective.named_parameters() if weight.requires_grad}
            seen[phase] = (any("attention" in name for name in trained), settings)

    method.train_base(toy_stream().base.train, Watching())
    assert seen["base"] == (False, None)
    assert seen["episodes"][0]
    assert seen["episodes"][1]["batch"] == 3 * 10


def test_a_training_that_stops_in_the_episodes_says_so(tmp_path):
    training, messages = TrainingSettings(epochs=1, batch=60, learning_rate=0.02), []
    for _ in range(100):
        try:
            fit_toy("cec", folder=tmp_path, training=training, deadline=0.0)
        except TrainingStopped as stopped:
            messages.append(str(stopped))
        else:
            break
    first, last = messages[0], messages[-1]
    assert re.fullmatch(r"stopped after 1 of (\d+) steps", first)
    assert re.fullmatch(r"stopped after (\d+) of \1 steps in episodes", last)


@pytest.mark.parametrize("name", ["cec", "c_fscil"])
@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"queries": 39}, 1, r"3 classes with 2 \+ 39 images needs 123 training images, but there are 120"),
        ({}, 4, "has 30, which 4 processes cannot share evenly"),
    ],
)
def test_impossible_episodes_are_refused_before_anything_is_trained(name, options, processes, message):
    class NoTrainer:
        fabric = SimpleNamespace(world_size=processes)

    with pytest.raises(UserError, match=message):
        toy_method(name, **options).train_base(toy_stream().base.train, NoTrainer())
