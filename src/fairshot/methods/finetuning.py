"""A little gradient descent in a session: on all samples at once, so that nothing is drawn by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def descend(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[], Tensor],
    steps: int,
    learning_rate: float,
    momentum: float = 0.9,
) -> None:
    """Take steps down a loss over all samples; the learning rate falls along half a cosine."""
    optimiser = torch.optim.SGD(list(parameters), lr=learning_rate, momentum=momentum)
    with torch.inference_mode(False), torch.enable_grad():
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
            optimiser.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
