"""TOPIC: a neural gas over the features, anchors that keep old nodes in place, and new nodes."""

import numpy as np
import pytest
import torch

from fairshot.methods.topic import (
    FineTuning,
    anchor_loss,
    by_class,
    neural_gas,
    node_edges,
    region_variance,
    spaced,
)
from support.toys import after_base, fit_toy, toy_stream, uniform


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
    edges = node_edges(cosines)
    assert {tuple(pair) for pair in torch.nonzero(edges).tolist()} == {(0, 2), (2, 0), (1, 2), (2, 1)}


def test_the_variance_of_a_region_is_averaged_with_that_of_all():
    features, cosines = uniform(9, 3), torch.eye(3).double()[torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])]
    parts = [features[:4], features[4:7], features[7:]]
    variances = torch.stack([part.var(0, unbiased=False) for part in parts])
    torch.testing.assert_close(region_variance(features, cosines), (variances + variances.mean(0)) / 2)


def test_the_anchor_loss_weighs_a_move_by_the_variance():
    anchors, nodes, variance = uniform(2, 3), uniform(2, 3, seed=1), uniform(2, 3, seed=2) + 0.1
    terms = [float((anchors[i, j] - nodes[i, j]) ** 2 / variance[i, j]) for i in range(2) for j in range(3)]
    assert float(anchor_loss(anchors, nodes, variance)) == pytest.approx(sum(terms) / 6)
    assert anchor_loss(nodes, nodes, variance) == 0


def test_the_nearest_node_of_a_class_gives_its_cosine():
    cosines = torch.tensor([[0.1, 0.9, 0.3, -0.2]])
    torch.testing.assert_close(
        by_class(cosines, torch.tensor([1, 0, 1, 2]), 3), torch.tensor([[0.9, 0.3, -0.2]])
    )


def fine_tuning() -> tuple:
    method, shots = after_base("topic"), toy_stream().sessions[1].train
    labels = torch.from_numpy(shots.labels)
    return method, FineTuning(method, method.images(shots.pictures), labels, 8)


def test_shots_are_pulled_to_their_node_and_neighbours_of_other_classes_pushed_apart():
    method, tuning = fine_tuning()
    shots = torch.nn.functional.normalize(uniform(10, method.embedder.width).float() - 0.5, dim=1)
    with torch.no_grad():
        nodes = tuning.all_nodes()
        pulls = []
        for shot, label in zip(shots, tuning.labels, strict=True):
            pulls.append(
                min(
                    float((shot - n).norm())
                    for n, c in zip(nodes, tuning.node_labels, strict=True)
                    if c == label
                )
            )
        pushes = []
        for i in range(len(tuning.old_nodes), len(nodes)):
            for j in range(len(nodes)):
                if tuning.edges[i, j] and tuning.node_labels[i] != tuning.node_labels[j]:
                    pushes.append(max(0.0, 0.5 - float((nodes[i] - nodes[j]).norm())))
        expected = np.mean(pulls) + (np.mean(pushes) if pushes else 0.0)
        assert float(tuning.min_max_loss(shots, nodes)) == pytest.approx(expected, rel=1e-4)


def test_old_nodes_stay_and_each_new_class_gets_one():
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
    assert method.nodes.shape[0] == method.variance.shape[0] == method.edges.shape[0] == len(nodes) + 4
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
