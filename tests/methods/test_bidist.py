"""BiDist: only the last stage is fine-tuned, with two teachers; a small net mixes both branches."""

import math

import numpy as np
import pytest
import torch

from fairshot.methods.bidist import FineTuning, base_teacher_weights
from fairshot.models.backbones import stages
from support.toys import after_base, fit_toy, toy_stream, uniform


def test_one_picture_of_every_class_is_kept():
    method, _ = fit_toy("bidist", seed=0)
    base = toy_stream().base.train
    assert method.exemplar_labels.tolist() == list(range(6))
    g, labels = method.embed(base.pictures)["g"][:, 0], torch.from_numpy(base.labels)
    for c in range(6):
        own = torch.nonzero(labels == c)[:, 0]
        cosine = torch.cosine_similarity(g[own], g[own].mean(0, keepdim=True), dim=1)
        nearest = base.take([int(own[cosine.argmax()])])
        assert torch.equal(method.exemplars[c], method.images(nearest.pictures)[0])
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    assert method.exemplar_labels.tolist() == list(range(10))
    assert method.exemplars.dtype == torch.uint8


def test_a_session_leaves_the_base_branch_and_all_but_the_last_stage_alone():
    method = after_base("bidist")
    before = {key: value.clone() for key, value in method.tensors().items()}
    method.learn(toy_stream().sessions[1].train)
    changed = {key for key, value in before.items() if not torch.equal(value, method.tensors()[key])}
    last = len(method.current.backbone.stages) - 1
    assert any(key.startswith(f"current.backbone.stages.{last}.") for key in changed)
    assert any(key.startswith("mixer.") for key in changed)
    for key in changed:
        allowed = (
            f"current.backbone.stages.{last}.",
            "mixer.",
            "classifier",
            "prototypes",
            "counts",
            "exemplar",
        )
        assert key.startswith(allowed), key
        assert "running" not in key
    assert len(stages(method.current.backbone)) == 3


def test_the_base_teacher_counts_wholly_for_base_classes_and_by_resemblance_for_others():
    means = uniform(7, 5) - 0.4
    found = base_teacher_weights(means, 4, 16.0)
    assert found[:4].tolist() == [1.0] * 4
    for c in range(4, 7):
        shares = {
            other: math.exp(16 * float(torch.cosine_similarity(means[c], means[other], 0)))
            for other in range(7)
            if other != c
        }
        expected = sum(shares[other] for other in range(4)) / sum(shares.values())
        assert float(found[c]) == pytest.approx(expected)


def fine_tuning() -> FineTuning:
    method, shots = after_base("bidist"), toy_stream().sessions[1].train
    labels = torch.from_numpy(shots.labels)
    features = method.embed(shots.pictures)
    means, _ = method.extended(features, labels)
    images = torch.cat([method.images(shots.pictures), method.exemplars])
    return FineTuning(method, images, torch.cat([labels, method.exemplar_labels]), means)


@torch.no_grad()
def test_the_teachers_are_the_base_branch_and_the_branch_before():
    tuning = fine_tuning()
    logits = 3 * uniform(16, 8)
    losses = []
    for i in range(16):
        parts = []
        for teacher in (tuning.base_teacher[i], tuning.previous_teacher[i]):
            p, q = teacher.double().softmax(0), logits[i, : len(teacher)].softmax(0)
            parts.append(sum(float(a) * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)))
        weight = float(tuning.base_weights[i])
        losses.append(weight * parts[0] + (1 - weight) * parts[1])
    assert float(tuning.distillation(logits)) == pytest.approx(sum(losses) / 16, rel=1e-4)
    # before the first session they agree
    torch.testing.assert_close(tuning.base_teacher, tuning.previous_teacher[:, :6])


def test_without_a_session_both_branches_agree():
    method = after_base("bidist")
    features = method.embed(toy_stream().base.test.pictures.take([0, 30]))
    assert torch.equal(features["g"], features["g_tilde"])
    expected = torch.cosine_similarity(features["g"], method.prototypes[:, 0][None], dim=2)
    torch.testing.assert_close(method.scores(features), expected)


def test_the_mixing_net_tells_novel_images_from_base_ones():
    method, stream = after_base("bidist"), toy_stream()
    method.learn(stream.sessions[1].train)
    test = stream.seen_test(1)
    features = method.embed(test.pictures)
    with torch.no_grad():
        novel = method.mixer(torch.nn.functional.normalize(features["g"][:, 0], dim=1)).sigmoid()[:, 0]
    is_novel = torch.from_numpy(np.asarray(test.labels >= 6))
    assert novel[is_novel].mean() > novel[~is_novel].mean() + 0.1
    mixed = method.scores(features)
    base = torch.cosine_similarity(features["g"], method.prototypes[:, 0][None], dim=2)
    current = torch.cosine_similarity(features["g_tilde"], method.classifier[None], dim=2)
    torch.testing.assert_close(mixed, (1 - novel[:, None]) * base + novel[:, None] * current)
