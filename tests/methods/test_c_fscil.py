"""C-FSCIL: a sharpened cosine, prototypes nudged towards quasi-orthogonality, one layer realigned."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from fairshot.methods.c_fscil import crowding, nudged, soft_abs
from fairshot.training.episodes import Episode
from support.toys import after_base, toy_method, toy_stream, uniform


def cosines(prototypes: torch.Tensor) -> torch.Tensor:
    unit = normalize(prototypes, dim=1)
    return (unit @ unit.T)[~torch.eye(len(unit), dtype=torch.bool)]


def test_the_sharpened_cosine_is_even_and_ignores_what_is_nearly_orthogonal():
    values = torch.linspace(-1, 1, 41, dtype=torch.float64)
    sharp = soft_abs(values, 10)
    for value, found in zip(values.tolist(), sharp.tolist(), strict=True):
        expected = sum(1 / (1 + math.exp(-10 * (sign * value - 0.5))) for sign in (1, -1))
        assert found == pytest.approx(expected)
    torch.testing.assert_close(sharp, sharp.flip(0))
    assert soft_abs(torch.tensor(0.1), 10) < 0.03
    assert soft_abs(torch.tensor(0.9), 10) > 0.97


def test_the_loss_of_an_episode():
    objective = toy_method("c_fscil").episode_objective(Episode(2, 2, 1)).double().eval()
    view = uniform(12, 1, 14, 14)  # two episodes
    with torch.no_grad():
        loss = objective([view], torch.zeros(12), torch.empty(12, 0))
        features = objective.embedder(view)[1]
        losses = []
        for first in (0, 6):
            classes = [features[first + 3 * c : first + 3 * c + 3] for c in range(2)]
            prototypes = [images[:2].mean(0) for images in classes]
            for c in range(2):
                similar = [soft_abs(torch.cosine_similarity(classes[c][2], p, 0), 10) for p in prototypes]
                losses.append(-math.log(similar[c] / sum(similar)))
    assert float(loss) == pytest.approx(sum(losses) / 4, rel=1e-4)


def test_crowding_counts_each_pair_once():
    prototypes = uniform(4, 6) - 0.3
    penalties = []
    for i in range(4):
        for j in range(i):
            cosine = float(torch.cosine_similarity(prototypes[i], prototypes[j], 0))
            penalties.append(math.exp(3 * cosine) + math.exp(-3 * cosine) - 2)
    assert float(crowding(prototypes, 3)) == pytest.approx(sum(penalties) / 6)
    assert crowding(torch.eye(5), 4) == 0


def test_nudging_parts_prototypes_and_keeps_them_near():
    prototypes = uniform(8, 32) - 0.35  # all of them somewhat alike
    moved = nudged(prototypes, repulsion=4, steps=100, learning_rate=0.05)
    assert cosines(moved).abs().mean() < cosines(prototypes).abs().mean() / 2
    own = torch.cosine_similarity(moved, prototypes, dim=1)
    others = normalize(moved, dim=1) @ normalize(prototypes, dim=1).T
    assert (others.argmax(1) == torch.arange(8)).all()  # each still resembles itself most
    assert own.min() > 0.9


@pytest.mark.parametrize("mode", ["nudged", "bipolar"])
def test_a_session_realigns_the_layer_to_targets_that_are_apart(mode):
    method = after_base("c_fscil", mode=mode, realigning_rate=0.1)
    before = {key: value.clone() for key, value in method.tensors().items()}
    plain = after_base("c_fscil", mode="mean")
    for one in (method, plain):
        one.learn(toy_stream().sessions[1].train)
    with torch.no_grad():
        if mode == "nudged":
            assert cosines(method.targets()).abs().mean() < cosines(plain.targets()).abs().mean()
        means = plain.targets()
        signs = means.sign()
        gained = torch.cosine_similarity(method.targets(), signs, 1) - torch.cosine_similarity(
            means, signs, 1
        )
        assert mode == "nudged" or gained.mean() > 0
    changed = [key for key, value in before.items() if not torch.equal(value, method.tensors()[key])]
    assert set(changed) == {"realigned.weight", "realigned.bias", "prototypes", "counts"}


def test_mode_mean_changes_no_weight():
    method = after_base("c_fscil", mode="mean")
    before = {key: value.clone() for key, value in method.tensors().items()}
    method.learn(toy_stream().sessions[1].train)
    for key in before:
        if key.startswith(("embedder.", "realigned.")):
            assert torch.equal(before[key], method.tensors()[key])
    with torch.no_grad():
        expected = method.projector(method.prototypes[:, 0])
        assert torch.equal(method.targets(), expected)
