"""A little gradient descent in a session, on all samples at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

Group = tuple[Iterable[nn.Parameter], float]  # what is trained, and its learning rate
MOMENTUM = 0.9


def descend(
    groups: Sequence[Group], loss: Callable[[], Tensor], steps: int, most_norm: float | None = None
) -> None:
    """Take steps down a loss over all samples; the learning rates fall along half a cosine.

    A gradient longer than `most_norm` is shortened to it.
    """
    optimiser = torch.optim.SGD(
        [{"params": list(weights), "lr": rate} for weights, rate in groups], momentum=MOMENTUM
    )
    trained = [weight for group in optimiser.param_groups for weight in group["params"]]
    with torch.inference_mode(False), torch.enable_grad():
        for step in range(steps):
            for group, (_, rate) in zip(optimiser.param_groups, groups, strict=True):
                group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            optimiser.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            if most_norm is not None:
                nn.utils.clip_grad_norm_(trained, most_norm)
            optimiser.step()
