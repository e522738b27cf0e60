"""ALICE: fused classes under an angular margin, a projector that is dropped, balanced prototypes."""

import math

import pytest
import torch

from fairshot.methods.alice import AngularPenalty
from fairshot.methods.prototype_method import nearest_to_mean
from support.toys import after_base, toy_method, toy_stream, uniform


def test_the_images_nearest_their_class_mean_are_chosen():
    features, labels = uniform(40, 2, 6), torch.arange(40) % 3
    means = torch.stack([features[labels == c].mean(0) for c in range(3)])
    expected = []
    for c in range(3):
        cosines = {}
        for i in range(40):
            if labels[i] == c:
                pairs = [(features[i, v], means[c, v]) for v in range(2)]
                cosines[i] = sum(float(a @ b / (a.norm() * b.norm())) for a, b in pairs)
        expected += sorted(cosines, key=cosines.__getitem__)[-4:]
    assert nearest_to_mean(features, labels, means, 4).tolist() == sorted(expected)


def test_base_prototypes_are_of_as_few_images_as_those_of_new_classes():
    method = after_base("alice")
    method.learn(toy_stream().sessions[1].train)
    assert method.counts.tolist() == [5] * 8
    base = toy_stream().base.train
    features, labels = method.embed(base.pictures)["g"], torch.from_numpy(base.labels)
    means = torch.stack([features[labels == c].mean(0) for c in range(6)])
    chosen = nearest_to_mean(features, labels, means, 5)
    for c in range(6):
        own = features[chosen[labels[chosen] == c]]
        torch.testing.assert_close(method.prototypes[c], own.mean(0), rtol=1e-4, atol=1e-5)


def test_the_projector_is_trained_and_then_dropped():
    method = toy_method("alice")
    objective = method.objective()
    assert any(name.startswith("projector") for name, _ in objective.named_parameters())
    assert not any("projector" in name or "sr." in name for name in after_base("alice").tensors())
    assert len(objective.head.eta) == 6 + 15  # base classes and their pairs


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_the_margin_is_taken_off_the_true_cosine(margin):
    method = toy_method("alice", fusions_per_image=0, margin=margin, scale=10)
    objective = AngularPenalty(method.embedder, 6, method.settings).double().eval()
    views, labels = [uniform(5, 1, 14, 14, seed=s) for s in (1, 2)], torch.tensor([0, 3, 5, 1, 1])
    loss = objective(views, labels, torch.empty(5, 0))
    losses = []
    for view in views:
        cosines = objective.head(objective.projector(objective.embedder(view)[0]))
        for row, label in zip(cosines.tolist(), labels.tolist(), strict=True):
            logits = [10 * (cosine - margin * (c == label)) for c, cosine in enumerate(row)]
            losses.append(math.log(sum(map(math.exp, logits))) - logits[label])
    assert float(loss.detach()) == pytest.approx(sum(losses) / len(losses))
