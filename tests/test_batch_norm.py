"""Batch norm by sums against torch's own, in float64."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairshot.training.batch_norm import by_sums, recentre


def twin_by_sums(norm: nn.Module) -> nn.Module:
    return by_sums(copy.deepcopy(norm))


def same(ours: torch.Tensor | None, theirs: torch.Tensor | None, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@given(seed=st.integers(0, 2**16), shift=st.floats(-20, 20), steps=st.integers(1, 3), flat=st.booleans())
def test_equals_torch_forward_backward_and_running(seed, shift, steps, flat):
    torch.manual_seed(seed)
    theirs = (nn.BatchNorm1d(3) if flat else nn.BatchNorm2d(3)).double()
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    ours = twin_by_sums(theirs)
    for _ in range(steps):
        images = torch.randn(*((6, 3) if flat else (4, 3, 2, 5)), dtype=torch.float64) * 3 + shift
        a, b = images.clone().requires_grad_(), images.clone().requires_grad_()
        out, expected = ours(a), theirs(b)
        same(out, expected)
        slope = torch.randn_like(out)
        out.backward(slope)
        expected.backward(slope)
        same(a.grad, b.grad, 1e-8)
        recentre([ours])
    same(ours.weight.grad, theirs.weight.grad, 1e-8)
    same(ours.bias.grad, theirs.bias.grad)
    same(ours.running_mean, theirs.running_mean)
    same(ours.running_var, theirs.running_var)
    assert ours.num_batches_tracked == theirs.num_batches_tracked == steps
    same(ours.eval()(images), theirs.eval()(images))


def test_compiles_as_one_graph():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).double()
    network = copy.deepcopy(plain)
    by_sums(network[1])
    step = torch.compile(network, backend="aot_eager", fullgraph=True)
    for _ in range(2):  # the backward pass must not see what the forward pass moved
        images = torch.randn(4, 3, 5, 5, dtype=torch.float64) + 2
        for each in (plain, step):
            each(images).square().sum().backward()
        recentre([network[1]])
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        same(ours.grad, theirs.grad, 1e-8)
    same(network[1].running_mean, plain[1].running_mean)


def test_a_channel_that_never_changes_stays_finite():
    norm = twin_by_sums(nn.BatchNorm2d(1))
    images = torch.full((4, 1, 3, 3), 1e4, requires_grad=True)
    out = norm(images)
    out.sum().backward()
    assert out.isfinite().all()
    assert images.grad is not None
    assert images.grad.isfinite().all()


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_float32_keeps_its_digits_around_the_running_mean(shift):
    """Far from zero a plain difference of squares would lose them all."""
    torch.manual_seed(0)
    images = torch.randn(64, 4, 8, 8) * 0.01 + shift
    exact = nn.BatchNorm2d(4).double()(images.double())
    norm = twin_by_sums(nn.BatchNorm2d(4))
    norm.running_mean.fill_(shift)
    recentre([norm])
    same(norm(images).double(), exact, 1e-3)
