"""TOPIC: a neural gas over the features, anchors that hold old nodes, and nodes that grow."""

import numpy as np
import pytest
import torch

from fairshot.methods.topic import (
    FineTuning,
    anchor_loss,
    by_class,
    neighbours,
    neural_gas,
    spaced,
    spread_around,
)
from support.toys import after_base, fit_toy, toy_stream


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_gas_spreads_over_clusters():
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]]).double()
    features = torch.cat([centre + 0.1 * uniform(20, 2, seed=i) for i, centre in enumerate(centres)])
    nodes = neural_gas(features, torch.tensor([0, 1, 2, 3]), rounds=30)  # all begin in the first cluster
    distance = torch.cdist(features, nodes).amin(1)
    assert distance.max() < 0.2  # every image has a node near it
    expected = torch.stack([features[20 * i : 20 * i + 20].mean(0) for i in range(4)])
    torch.testing.assert_close(nodes[torch.cdist(expected, nodes).argmin(1)], expected, atol=0.02, rtol=0)


def test_a_gas_starts_from_images_of_every_class():
    labels = torch.tensor([0, 1, 0, 1, 0, 2, 0, 2, 0])
    assert spaced(labels, 2).tolist() == [0, 8, 1, 3, 5, 7]
    assert spaced(labels, 3).tolist() == [0, 4, 8, 1, 3, 5, 7]


def test_neighbours_are_nearest_and_second_nearest_of_some_image():
    cosines = torch.tensor([[0.9, 0.1, 0.8, 0.0], [0.2, 0.7, 0.6, 0.1]])
    edges = neighbours(cosines)
    assert {tuple(pair) for pair in torch.nonzero(edges).tolist()} == {(0, 2), (2, 0), (1, 2), (2, 1)}


def test_spread_is_the_variance_of_a_region_blended_with_the_usual_one():
    features, cosines = uniform(9, 3), torch.eye(3).double()[torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])]
    parts = [features[:4], features[4:7], features[7:]]
    variances = torch.stack([part.var(0, unbiased=False) for part in parts])
    torch.testing.assert_close(spread_around(features, cosines), (variances + variances.mean(0)) / 2)


def test_the_anchor_loss_weighs_a_move_by_the_spread():
    anchors, nodes, spread = uniform(2, 3), uniform(2, 3, seed=1), uniform(2, 3, seed=2) + 0.1
    terms = [float((anchors[i, j] - nodes[i, j]) ** 2 / spread[i, j]) for i in range(2) for j in range(3)]
    assert float(anchor_loss(anchors, nodes, spread)) == pytest.approx(sum(terms) / 6)
    assert anchor_loss(nodes, nodes, spread) == 0


def test_the_nearest_node_of_a_class_speaks_for_it():
    cosines = torch.tensor([[0.1, 0.9, 0.3, -0.2]])
    torch.testing.assert_close(
        by_class(cosines, torch.tensor([1, 0, 1, 2]), 3), torch.tensor([[0.9, 0.3, -0.2]])
    )


def lesson() -> tuple:
    method, shots = after_base("topic"), toy_stream().sessions[1].train
    labels = torch.from_numpy(shots.labels)
    means, _ = method.extended(method.embed(shots.pictures), labels)
    return method, FineTuning(method, method.images(shots.pictures), labels, means)


def test_shots_are_drawn_to_their_node_and_neighbours_of_other_classes_parted():
    _, one = lesson()
    shots = torch.nn.functional.normalize(uniform(10, 128).float() - 0.5, dim=1)
    with torch.no_grad():
        nodes = one.all_nodes()
        drawn = []
        for shot, label in zip(shots, one.labels, strict=True):
            drawn.append(
                min(
                    float((shot - n).norm())
                    for n, c in zip(nodes, one.node_labels, strict=True)
                    if c == label
                )
            )
        pushed = []
        for i in range(len(one.old), len(nodes)):
            for j in range(len(nodes)):
                if one.edges[i, j] and one.node_labels[i] != one.node_labels[j]:
                    pushed.append(max(0.0, 0.5 - float((nodes[i] - nodes[j]).norm())))
        expected = np.mean(drawn) + (np.mean(pushed) if pushed else 0.0)
        assert float(one.min_max_loss(shots, nodes)) == pytest.approx(expected, rel=1e-4)


def test_old_nodes_stay_and_one_grows_for_each_new_class():
    method, _ = fit_toy("topic", seed=0)
    nodes, kept = method.nodes.clone(), method.exemplars.clone()
    assert len(nodes) == len(kept) == len(method.exemplar_labels) >= 12
    assert set(method.exemplar_labels.tolist()) == set(range(6))
    weights = next(method.embedder.parameters()).clone()
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    assert torch.equal(method.nodes[: len(nodes)], nodes)
    assert torch.equal(method.exemplars[: len(nodes)], kept)
    assert method.exemplar_labels[len(nodes) :].tolist() == [6, 7, 8, 9]
    assert method.nodes.shape[0] == method.spread.shape[0] == method.edges.shape[0] == len(nodes) + 4
    torch.testing.assert_close(method.nodes.norm(dim=1), torch.ones(len(nodes) + 4))
    assert not torch.equal(next(method.embedder.parameters()), weights)  # the whole network learns on


def test_anchors_keep_old_pictures_where_they_were():
    moves = {}
    for weight in (0.0, 1.0):
        method = after_base("topic", anchor=weight, learning_rate=0.005)
        pictures = toy_stream().base.test.pictures
        before = torch.nn.functional.normalize(method.embed(pictures)["g"][:, 0], dim=1)
        method.learn(toy_stream().sessions[1].train)
        after = torch.nn.functional.normalize(method.embed(pictures)["g"][:, 0], dim=1)
        moves[weight] = float((after - before).norm(dim=1).mean())
    assert moves[1.0] < 0.7 * moves[0.0]
