"""The classifiers h and h~ made of prototypes: base classes, and novel ones as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from fairshot.classifiers.calibration import calibrate_labelled, moved
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, no_delta, resist


@dataclass(frozen=True, eq=False)
class Prototypes:
    """h: one prototype per class and view."""

    means: Tensor  # (C, V, d)

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, base_classes: int, weights: Tensor | None = None) -> Self:
        """Average the features (N, V, d) of each base class (eq. 2), with the weights (N,) of the images."""
        return cls.of_base(prototypes(features, labels, range(base_classes), weights))

    @classmethod
    def of_base(cls, means: Tensor) -> Self:
        """Begin with the prototypes of the base classes (B, V, d)."""
        return cls(means)

    def extended(
        self, features: Tensor, labels: Tensor, counts: Tensor, new: range, weights: Tensor | None = None
    ) -> Self:
        """Add new classes, the next in line; labelled samples of known classes refine their mean (eq. 9).

        `counts` (C,) says how many samples each known class was made from.
        """
        known = labels < len(self.means)
        of_known = None if weights is None else weights[known]
        means, _ = calibrate_labelled(self.means, counts, features[known], labels[known], of_known)
        fresh = prototypes(features, labels, new, weights)
        return replace(self._accumulated(fresh), means=torch.cat([means, fresh]))

    def _accumulated(self, novel: Tensor) -> Self:
        """Add novel classes (K, V, d) to what base classes resist; h has no Resistance."""
        del novel
        return self

    def calibrated(self, features: Tensor, absorbed_by: Tensor, alpha: Tensor) -> Self:
        """Calibration, eq. 9: move towards the unlabelled samples each class absorbed, by alpha (C,)."""
        return replace(self, means=moved(self.means, features, absorbed_by, alpha))

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return what `tensors` was taken from."""
        return cls(**tensors)


@dataclass(frozen=True, eq=False)
class ResistingPrototypes(Prototypes):
    """h~: prototypes of which the base ones move away from novel classes that resemble them."""

    trained: Tensor  # (B, V, d) base prototypes as training left them: what delta is measured by
    delta: Tensor  # (B, V, d) directions of the novel classes met so far (eq. 8), see `resistance`

    @classmethod
    def of_base(cls, means: Tensor) -> Self:
        """Begin with the prototypes of the base classes (B, V, d), delta zero."""
        return cls(means, means.clone(), no_delta(means))

    def _accumulated(self, novel: Tensor) -> Self:
        """Add novel classes (K, V, d) to delta (eq. 8)."""
        return replace(self, delta=accumulate(self.delta, self.trained, novel))

    def resisting(self, gamma: float) -> Tensor:
        """Resistance, eq. 7: prototypes (C, V, d) with the base ones moved; what is stored stays."""
        base = len(self.delta)
        return torch.cat([resist(self.means[:base], self.delta, gamma), self.means[base:]])
