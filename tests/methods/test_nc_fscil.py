"""NC-FSCIL: vertices of equal angles that never change, and features aligned with them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fairshot.errors import BadSetting
from fairshot.methods.nc_fscil import (
    DotRegression,
    NCFSCILSettings,
    balanced_mean,
    dot_regression,
    mixup_loss,
    simplex_etf,
)
from support.toys import SMALL, after_base, fit_toy, toy_method, toy_stream, uniform


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(0, 20))
def test_vertices_have_equal_lengths_and_equal_angles(classes, spare):
    vertices = simplex_etf(classes, classes + spare)
    cosines = vertices @ vertices.T
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(cosines, expected, rtol=1e-4, atol=1e-5)
    assert vertices.sum(0).abs().max() < 1e-4  # their mean is the origin


def test_vertices_stay_through_training_and_sessions():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = toy_method("nc_fscil").vertices
    method, _ = fit_toy("nc_fscil", seed=0)
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    assert drawn.shape == (10, SMALL["nc_fscil"]["width"])
    assert torch.equal(method.vertices, drawn)
    assert not any("vertices" in name for name, _ in toy_method("nc_fscil").objective().named_parameters())


def test_dot_regression_is_half_the_squared_distance_from_one():
    outputs, vertices = uniform(4, 5) - 0.5, simplex_etf(4, 5).double()
    for loss, output, vertex in zip(dot_regression(outputs, vertices), outputs, vertices, strict=True):
        cosine = sum(float(a * b) for a, b in zip(output, vertex, strict=True)) / float(output.norm())
        assert float(loss) == pytest.approx((cosine - 1) ** 2 / 2)
    assert torch.allclose(dot_regression(3 * vertices, vertices), torch.zeros(4).double())


def objective(**options) -> DotRegression:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return toy_method("nc_fscil", **options).objective().double().eval()


@pytest.mark.parametrize(("mixed_share", "cut_share"), [(0.0, 0.0), (0.5, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_a_mixed_image_has_both_vertices_as_targets_by_their_shares(mixed_share, cut_share):
    trained = objective(mixed_share=mixed_share, cut_share=cut_share, loss_weight=3)
    trained.beta = torch.nn.Identity()  # noise becomes the weights themselves
    views, labels = [uniform(4, 1, 14, 14, seed=s) for s in (1, 2)], torch.tensor([0, 3, 3, 5])
    noise = torch.tensor(
        [[0.2, 0.9, 0.5, 0.5], [0.7, 0.1, 0.9, 0.2], [0.4, 0.4, 0.1, 0.1], [0.0] * 4]
    ).double()
    losses = []
    with torch.no_grad():
        for view in views:
            for i in range(3):
                blend, lam = mixed_by_hand(view[i], view[i + 1], *noise[i].tolist(), mixed_share, cut_share)
                _, output = trained.embedder(blend[None])
                both = [dot_regression(output, trained.vertices[labels[k]][None]) for k in (i, i + 1)]
                losses.append(float(lam * both[0] + (1 - lam) * both[1]))
        assert float(trained(views, labels, noise)) == pytest.approx(3 * sum(losses) / 6)


def mixed_by_hand(one, other, weight, choice, row, column, mixed_share, cut_share):
    """Return a mix of two images and the share of the first in it, pixel by pixel."""
    if choice < mixed_share:
        return weight * one + (1 - weight) * other, weight
    blend, kept, size, half = one.clone(), 0, one.shape[-1], (1 - weight) ** 0.5 / 2
    for y in range(size):
        for x in range(size):
            inside = abs((y + 0.5) / size - row) < half and abs((x + 0.5) / size - column) < half
            if inside and choice < mixed_share + cut_share:
                blend[:, y, x] = other[:, y, x]
            else:
                kept += 1
    return blend, kept / size**2


def test_shares_of_more_images_than_there_are_are_refused():
    with pytest.raises(ValidationError, match=r"at most 1 together, got 0\.7 and 0\.4"):
        NCFSCILSettings(mixed_share=0.7)
    assert NCFSCILSettings(mixed_share=0.6, cut_share=0.4)


def test_a_box_of_cutmix_has_the_area_and_the_centre_that_were_drawn():
    trained = objective(mixed_share=0.0, cut_share=1.0)
    middle, corner = trained.pixel_weights(torch.tensor([[0.75, 0.0, 0.5, 0.5], [0.75, 0.0, 0.0, 1.0]]), 20)
    assert float(middle.mean()) == pytest.approx(0.75)
    assert middle[5:15, 5:15].sum() == 0  # half as long as the image is a box of a quarter of its area
    assert float(corner.mean()) == pytest.approx(1 - 0.25 / 4)  # three quarters of it lie over the edge
    assert corner[:5, 15:].sum() == 0


def test_every_class_weighs_the_same_in_a_session_however_many_samples_it_has():
    losses, labels = uniform(8), torch.tensor([4, 4, 4, 4, 4, 0, 1, 1])
    classes = [
        [float(loss) for loss, label in zip(losses, labels, strict=True) if label == c] for c in (0, 1, 4)
    ]
    expected = sum(sum(own) / len(own) for own in classes) / 3
    assert float(balanced_mean(losses, labels)) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixup_of_outputs_has_both_vertices_as_targets_and_every_class_weighs_the_same(share):
    outputs = torch.nn.functional.normalize(uniform(5, 6) - 0.5, dim=1)
    classes, order = torch.tensor([2, 2, 2, 0, 1]), torch.tensor([3, 0, 2, 4, 1])
    vertices = simplex_etf(4, 6).double()
    expected = 0.0
    for part, labels in ((share, classes), (1 - share, classes[order])):
        for c in set(labels.tolist()):
            own = [i for i in range(5) if labels[i] == c]
            for i in own:
                blend = share * outputs[i] + (1 - share) * outputs[order[i]]
                cosine = float(blend @ vertices[c] / blend.norm())
                expected += part * (cosine - 1) ** 2 / 2 / len(own) / len(set(labels.tolist()))
    assert float(mixup_loss(outputs, classes, vertices, share, order)) == pytest.approx(expected)


def tuned_weights(**options) -> torch.Tensor:
    """The neck after the first session of the toy."""
    method = after_base("nc_fscil", **options)
    method.learn(toy_stream().sessions[1].train)
    return torch.cat([weight.detach().flatten() for weight in method.projector.parameters()])


def test_a_session_learnt_again_is_the_same_although_mixups_are_random():
    drawn = tuned_weights(blended_share=1.0)
    torch.manual_seed(5)
    assert torch.equal(tuned_weights(blended_share=1.0), drawn)
    assert not torch.allclose(tuned_weights(blended_share=0.0), drawn)


def test_a_recipe_that_sets_neither_mixups_nor_a_gradient_norm_has_none():
    assert torch.equal(tuned_weights(), tuned_weights(blended_share=0.0, gradient_norm=None))


def test_a_step_is_no_longer_than_the_gradient_norm_allows():
    method = after_base("nc_fscil")
    before = torch.cat([weight.detach().flatten() for weight in method.projector.parameters()])
    short = tuned_weights(steps=1, learning_rate=0.5, gradient_norm=0.01) - before
    free = tuned_weights(steps=1, learning_rate=0.5, gradient_norm=None) - before
    assert float(short.norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)
    assert float(free.norm()) > 0.5 * 0.02
    assert float(torch.cosine_similarity(short, free, dim=0)) == pytest.approx(1, abs=1e-4)


def test_a_session_tunes_the_neck_towards_the_vertices_and_nothing_else():
    method = after_base("nc_fscil")
    before = {key: value.clone() for key, value in method.tensors().items()}
    shots = toy_stream().sessions[1].train
    g, target = method.embed(shots.pictures)["g"][:, 0], method.vertices[torch.from_numpy(shots.labels)]
    with torch.no_grad():
        far = dot_regression(method.projector(g), target).mean()
        method.learn(shots)
        near = dot_regression(method.projector(g), target).mean()
    assert near < far / 4
    changed = [key for key, value in before.items() if not torch.equal(value, method.tensors()[key])]
    assert changed
    assert all(key.startswith("embedder.sr.") or key in ("prototypes", "counts") for key in changed)
    assert torch.equal(method.prototypes[:6], before["prototypes"])


def test_more_classes_than_it_was_told_are_refused():
    with pytest.raises(BadSetting, match=r"method\.width: 9 was given"):
        toy_method("nc_fscil", width=9)
    method = after_base("nc_fscil")
    for session in toy_stream().sessions[1:]:
        method.learn(session.train)
    shots = toy_stream().sessions[1].train
    further = type(shots)(shots.pictures, shots.labels + 4)
    with pytest.raises(BadSetting, match="total_classes: 10 was given; there are 12 classes"):
        method.learn(further)
    assert method.seen_classes == 10
