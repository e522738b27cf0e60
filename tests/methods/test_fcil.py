"""FCIL: mutual information between levels and of predictions, relations that are kept."""

import math

import pytest
import torch

from fairshot.methods.fcil import EmbeddingInfomax, info_nce, mutual_information, relation_change
from support.toys import after_base, toy_method, toy_stream, uniform


def test_the_bound_is_that_of_noise_contrastive_estimation():
    one, other = uniform(4, 5) - 0.5, uniform(4, 5, seed=1) - 0.5
    cosine = [[float(torch.cosine_similarity(a, b, 0)) / 0.2 for b in other] for a in one]
    terms = []
    for i in range(4):
        forth = cosine[i][i] - math.log(sum(math.exp(x) for x in cosine[i]))
        back = cosine[i][i] - math.log(sum(math.exp(cosine[j][i]) for j in range(4)))
        terms.append((forth + back) / 2)
    assert float(info_nce(one, other, 0.2)) == pytest.approx(sum(terms) / 4)
    assert info_nce(torch.eye(4), torch.eye(4), 0.01) == pytest.approx(0)  # nothing is unclear
    assert info_nce(torch.ones(4, 2), torch.ones(4, 2), 0.5) == pytest.approx(-math.log(4))


def test_predictions_tell_most_when_they_are_certain_and_differ():
    assert mutual_information(torch.eye(4)) == pytest.approx(math.log(4))
    assert mutual_information(torch.full((5, 4), 0.25)) == pytest.approx(0)
    assert mutual_information(torch.eye(4)[[1, 1, 1]]) == pytest.approx(0)
    probabilities = (uniform(3, 4) * 3).softmax(1)
    entropy = lambda row: -sum(p * math.log(p) for p in row)  # noqa: E731
    expected = entropy(probabilities.mean(0).tolist()) - sum(map(entropy, probabilities.tolist())) / 3
    assert float(mutual_information(probabilities)) == pytest.approx(expected)


def test_relations_are_compared_as_distributions_over_known_classes():
    moved, origin, known = uniform(2, 5) - 0.4, uniform(2, 5, seed=1) - 0.4, uniform(3, 5, seed=2) - 0.4

    def relation(p: torch.Tensor) -> list[float]:
        weights = [math.exp(8 * float(torch.cosine_similarity(p, k, 0))) for k in known]
        return [weight / sum(weights) for weight in weights]

    terms = [
        sum(b * math.log(b / a) for b, a in zip(relation(origin[i]), relation(moved[i]), strict=True))
        for i in range(2)
    ]
    assert float(relation_change(moved, origin, known, 8)) == pytest.approx(sum(terms) / 2)
    assert relation_change(origin, 3 * origin, known, 8) == pytest.approx(0)


def objective(**options) -> EmbeddingInfomax:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return toy_method("fcil", **options).objective().double().eval()


@torch.no_grad()
def test_the_level_before_the_last_stage_meets_the_last_one_of_another_view():
    trained, views = objective(embedding_weight=0.7), [uniform(3, 1, 14, 14, seed=s) for s in (1, 2)]
    labels = torch.tensor([0, 4, 2])
    loss = float(trained(views, labels, torch.empty(3, 0)))
    levels = [trained.levels(view) for view in views]
    bounds, losses = [], []
    for v in range(2):
        low, high = trained.low(levels[v][0].mean((2, 3))), trained.high(levels[1 - v][1])
        bounds.append(float(info_nce(low, high, 0.1)))
        logits = 16 * trained.head(levels[v][1])
        losses.append(float(torch.nn.functional.cross_entropy(logits, labels)))
        torch.testing.assert_close(levels[v][1], trained.embedder(views[v])[0])
    assert loss == pytest.approx(sum(losses) / 2 - 0.7 * sum(bounds) / 2)


def test_a_session_refines_new_prototypes_and_leaves_old_ones():
    method = after_base("fcil")
    base = method.refined.clone()
    for session in toy_stream().sessions[1:]:
        before = method.refined.clone()
        method.learn(session.train)
        assert torch.equal(method.refined[: len(before)], before)
    assert torch.equal(method.refined[:6], base)
    assert not torch.allclose(method.refined[6:], method.prototypes[6:], atol=1e-3)
    torch.testing.assert_close(method.refined.norm(dim=-1), method.prototypes.norm(dim=-1))


def test_refining_tells_more_of_the_shots_and_structure_keeps_relations():
    shots = toy_stream().sessions[1].train
    information, changed = {}, {}
    for weight in (0.0, 1.0):
        method = after_base("fcil", structure_weight=weight, information_weight=2.0)
        method.learn(shots)
        features = method.embed(shots.pictures)
        information[weight] = float(mutual_information((16 * method.scores(features)).softmax(1)))
        changed[weight] = float(
            relation_change(method.refined[6:, 0], method.prototypes[6:, 0], method.refined[:6, 0], 16)
        )
    method.refined = method.prototypes
    plain = float(mutual_information((16 * method.scores(features)).softmax(1)))
    assert information[0.0] > plain
    assert changed[1.0] < changed[0.0] / 2
