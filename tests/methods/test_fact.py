"""FACT: virtual prototypes are orthogonal and stay fixed; the losses that reserve space; its predictions."""

import math

import pytest
import torch

from fairshot.errors import BadSetting
from fairshot.methods.fact import FACT, FACTSettings, ForwardCompatible
from fairshot.models.backbones import build_backbone, stages
from fairshot.models.embedder import ModelSettings
from support.toys import after_base, fit_toy, toy_method, toy_stream, uniform


def objective(**options) -> ForwardCompatible:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return toy_method("fact", **options).objective().double().eval()


def test_virtual_prototypes_are_orthogonal_one_per_future_class():
    method = toy_method("fact")
    assert method.virtual.shape == (4, method.embedder.width)
    torch.testing.assert_close(method.virtual @ method.virtual.T, torch.eye(4))
    assert objective(reserved=2).allowed.sum(1).tolist() == [2] * 6


def test_virtual_prototypes_stay_frozen_through_training_and_sessions():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = toy_method("fact").virtual
    method, _ = fit_toy("fact", seed=0)
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    assert torch.equal(method.virtual, drawn)
    assert not any("virtual" in name for name, _ in objective().named_parameters())


def cross_entropy(logits: dict[int, float], target: int) -> float:
    return math.log(sum(math.exp(value) for value in logits.values())) - logits[target]


def test_with_its_class_masked_an_image_belongs_to_the_best_virtual_class_allowed():
    trained, logits, rows = objective(reserved=2), 3 * uniform(5, 10), torch.tensor([0, 5, 2, 2, 1])
    losses = []
    for row, label in zip(logits.tolist(), rows.tolist(), strict=True):
        others = {c: value for c, value in enumerate(row) if c != label}
        allowed = [6 + v for v in range(4) if trained.allowed[label, v]]
        losses.append(cross_entropy(others, max(allowed, key=row.__getitem__)))
    assert float(trained.virtual_loss(logits, rows)) == pytest.approx(sum(losses) / 5)


def test_mixups_belong_to_a_virtual_class_and_then_to_a_base_class():
    logits = 3 * uniform(5, 10, seed=4)
    for found, row in zip(objective().mixup_loss(logits).tolist(), logits.tolist(), strict=True):
        virtual = max(range(6, 10), key=row.__getitem__)
        rest = {c: value for c, value in enumerate(row) if c != virtual}
        base = max(range(6), key=row.__getitem__)
        expected = cross_entropy(dict(enumerate(row)), virtual) + cross_entropy(rest, base)
        assert found == pytest.approx(expected)


def test_neighbours_are_mixed_after_the_second_stage():
    trained, views = objective(), [uniform(4, 1, 14, 14, seed=s) for s in (1, 2)]
    trained.beta = torch.nn.Identity()  # noise becomes the weights themselves
    with torch.no_grad():
        plain, mixed = trained.logits(views, torch.tensor([1.0, 0.0, 0.3]).double()).chunk(2)
        first, second, third = stages(trained.embedder.backbone)
        for v, view in enumerate(views):
            maps = second(first(trained.embedder.normalised(view)))
            blend = 0.3 * maps[2] + 0.7 * maps[3]
            g = third(blend[None])
            expected = 16 * torch.cat([trained.head(g), g / g.norm() @ trained.virtual.T], 1)[0]
            torch.testing.assert_close(mixed[3 * v], plain[3 * v])
            torch.testing.assert_close(mixed[3 * v + 1], plain[3 * v + 2])
            torch.testing.assert_close(mixed[3 * v + 2], expected)


def test_neighbours_of_the_same_class_have_no_mixup_loss():
    trained = objective(views=1, weight=1.0)
    views, noise = [uniform(3, 1, 14, 14)], uniform(3, 1, seed=1)
    with torch.no_grad():
        plain, mixed = trained.logits(views, noise[:2, 0]).chunk(2)
        labels = torch.tensor([2, 2, 4])
        expected = torch.nn.functional.cross_entropy(plain[:, :6], labels[:2])
        expected = expected + trained.virtual_loss(plain, labels[:2])
        expected = expected + trained.mixup_loss(mixed)[1] / 2
        torch.testing.assert_close(trained(views, labels, noise), expected)


def test_a_prediction_blends_cosines_with_those_to_virtual_prototypes():
    method = after_base("fact", virtual_share=0.3, nearest_virtual=2)
    method.learn(toy_stream().sessions[1].train)
    features = method.embed(toy_stream().base.test.pictures.take([0, 50]))
    for row, feature in zip(method.scores(features).tolist(), features["g"][:, 0], strict=True):
        cosine = lambda a, b: float(a @ b / (a.norm() * b.norm()))  # noqa: E731
        plain = [16 * cosine(feature, p[0]) for p in method.prototypes]
        to_virtual = [cosine(feature, v) for v in method.virtual]
        kept = sorted(range(4), key=to_virtual.__getitem__)[-2:]
        through = [
            sum(to_virtual[v] * cosine(p[0], method.virtual[v]) for v in kept) for p in method.prototypes
        ]
        softmax = lambda logits: [math.exp(x) / sum(map(math.exp, logits)) for x in logits]  # noqa: E731
        expected = [0.7 * a + 0.3 * b for a, b in zip(softmax(plain), softmax(through), strict=True)]
        assert row == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("name", "count"), [("tiny", 3), ("resnet20", 3), ("resnet12", 4), ("resnet18", 4)])
def test_stages_compose_to_the_network(name, count):
    network = build_backbone(ModelSettings(backbone=name), 3).eval()
    parts, images = stages(network), torch.rand(2, 3, 16, 16)
    assert len(parts) == count
    maps = images
    for part in parts:
        maps = part(maps)
    torch.testing.assert_close(maps, network(images))


def test_a_network_without_stages_is_refused():
    model = ModelSettings(backbone="mobilenetv3_small_050", small_stem=False, size=32)
    method = FACT(FACTSettings(), model, channels=3, base_classes=3, total_classes=5)
    with pytest.raises(BadSetting, match=r"model\.backbone: .* residual network"):
        method.objective()
