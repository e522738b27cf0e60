"""Mixing two images: random weights, and fusions of two classes as surplus classes."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from fairshot.training.loop import Objective

Distribution = Literal["uniform", "beta"]


class BetaWeights(nn.Module):
    """Turns uniform noise into Beta(shape, shape) by a table of quantiles; a compiled step cannot sample."""

    quantiles: Tensor

    def __init__(self, shape: float) -> None:
        from scipy.stats import beta  # takes a second to import, and few methods need it

        super().__init__()
        steps = (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
        quantiles = torch.from_numpy(beta.ppf(steps.numpy(), shape, shape)).float()
        self.register_buffer("quantiles", quantiles, persistent=False)

    def forward(self, noise: Tensor) -> Tensor:
        """Return a weight for each number in [0, 1)."""
        return self.quantiles[(noise * len(self.quantiles)).long()]


def surplus_labels(a: Tensor, b: Tensor, classes: int) -> Tensor:
    """Return the surplus class of each unordered pair of different base classes: C .. C + C(C-1)/2 - 1."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return classes + low * (2 * classes - low - 1) // 2 + (high - low - 1)


def mixtures(classes: int, inter: bool) -> int:
    """Return the number of mixtures of a head: the base classes and, with fusion, every pair of them."""
    return classes + (classes * (classes - 1) // 2 if inter else 0)


class FusedObjective(Objective):
    """An objective that fuses images of two classes into an image of their surplus class (eq. 5)."""

    def __init__(
        self,
        classes: int,
        fusions: int,
        lam: tuple[float, float],
        distribution: Distribution,
        fused_weight: float,
        fused_views: int | None = None,  # how many of the views are fused; None: all
    ) -> None:
        super().__init__()
        self.classes, self.lam, self.fused_weight = classes, lam, fused_weight
        self.fused_views = fused_views
        self.neighbours = self.noise = fusions
        self.beta = BetaWeights(20) if distribution == "beta" else None

    def fuse(self, views: list[Tensor], labels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fuse each image with its next neighbours of the batch; return images, mixtures, weights.

        The batch is shuffled, so a neighbour is a random partner. Pair and lambda are the same for all
        views. A neighbour of the same class makes no surplus class: the weight of that fusion is 0.
        """
        own = len(labels) - self.neighbours
        images, targets = [view[:own] for view in views], [labels[:own]] * len(views)
        weights = [torch.ones_like(labels[:own], dtype=views[0].dtype)] * len(views)
        for k in range(self.neighbours):
            partner = slice(k + 1, own + k + 1)
            lam = self.fusion_weight(noise[:own, k])[:, None, None, None]
            different = labels[:own] != labels[partner]
            fused = surplus_labels(labels[:own], labels[partner], self.classes)
            for view in views[: self.fused_views]:
                images.append(lam * view[:own] + (1 - lam) * view[partner])
                targets.append(torch.where(different, fused, 0))
                weights.append(different * self.fused_weight)
        return torch.cat(images), torch.cat(targets), torch.cat(weights)

    def fusion_weight(self, noise: Tensor) -> Tensor:
        """Turn uniform noise into lambda."""
        low, high = self.lam
        if self.beta is None:
            return low + (high - low) * noise
        return cast(Tensor, self.beta(noise)).clamp(low, high)
