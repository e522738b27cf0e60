"""Gradient descent on the few samples of a session, all of them in every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR


def minimise(
    loss: Callable[[], Tensor], groups: list[dict[str, Any]], steps: int, max_norm: float | None = None
) -> None:
    """Minimise a loss over parameter groups by SGD with momentum; the learning rates fall along a cosine.

    Gradients longer than `max_norm` are clipped to it.
    """
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    schedule = LambdaLR(optimiser, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(steps):
            optimiser.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            if max_norm is not None:
                nn.utils.clip_grad_norm_(weights, max_norm)
            optimiser.step()
            schedule.step()
