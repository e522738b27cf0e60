"""The classifiers h_b and h~_b of appendix C: a Bayesian Gaussian mixture per class and view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairshot.classifiers.calibration import calibrate_labelled
from fairshot.classifiers.mixtures import Mixtures, calibrate_mixtures, decay, fit_mixtures, overall_mean
from fairshot.classifiers.variational import Fit, Posterior, Prior


@dataclass(frozen=True, eq=False)
class BGMM:
    """Mixtures of all classes seen: base classes have more components than novel ones."""

    base: Mixtures
    novel: Mixtures | None
    components_novel: int

    @property
    def means(self) -> Tensor:
        """Eq. 20: the overall mean of each class and view (C, V, d), which replaces the prototype."""
        return torch.cat([overall_mean(part.means, part.weights) for part in self._parts]).float()

    @classmethod
    def fit(
        cls,
        features: Tensor,
        labels: Tensor,
        base_classes: int,
        components: tuple[int, int],
        freedom: float | None,
    ) -> BGMM:
        """Fit mixtures to the base classes (eq. 19), of as many components as base and novel classes have."""
        base = fit_mixtures(features, labels, range(base_classes), components[0], freedom=freedom)
        return cls(base, None, components[1])

    def extended(
        self, features: Tensor, labels: Tensor, counts: Tensor, new: range, weights: Tensor | None = None
    ) -> BGMM:
        """Fit mixtures to new classes, the next in line; labelled samples of known classes move them.

        `counts` (C,) says how many samples each known class was made from. A known class moves, as a
        whole, to the mean of all its labelled samples (eq. 9); its shape stays that of the first ones.
        Mixtures weigh all samples alike.
        """
        del weights
        known = labels < len(counts)
        means = torch.cat([part.prior_means for part in self._parts])
        shift = calibrate_labelled(means, counts, features[known].to(means), labels[known])[0] - means
        base = len(self.base.means)
        novel = None if self.novel is None else self.novel.shifted(shift[base:])
        moved = replace(self, base=self.base.shifted(shift[:base]), novel=novel)
        if not new:
            return moved
        freedom = self.base.fit.prior.freedom
        fresh = fit_mixtures(features, labels, new, self.components_novel, freedom=freedom)
        return replace(moved, novel=fresh if moved.novel is None else moved.novel.join(fresh))

    def calibrated(self, features: Tensor, absorbed_by: Tensor, strength: Tensor) -> BGMM:
        """Calibration, eq. 24: EM on the unlabelled samples each class absorbed; `strength` is alpha'."""
        base = len(self.base.means)
        of_base = torch.where(absorbed_by < base, absorbed_by, -1)
        moved = replace(self, base=calibrate_mixtures(self.base, features, of_base, strength[:base]))
        if self.novel is None:
            return moved
        of_novel = (absorbed_by - base).clamp(min=-1)
        return replace(moved, novel=calibrate_mixtures(self.novel, features, of_novel, strength[base:]))

    def resisting(self, gamma: float) -> Tensor:
        """Resistance, eq. 22 and 23: the overall means (C, V, d) once base classes decayed their weights.

        The decay by one novel class does not depend on the others, so it is computed anew from all of them
        before each inference, and what is stored stays.
        """
        if self.novel is None:
            return self.means
        novel = overall_mean(self.novel.means, self.novel.weights)
        weights = decay(self.base.weights, self.base.means, novel, gamma)
        return torch.cat([overall_mean(self.base.means, weights), novel]).float()

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt."""
        found: dict[str, Tensor] = {}
        for kind, part in zip(("base", "novel"), self._parts, strict=False):
            sections = {"prior": part.fit.prior, "posterior": part.fit.posterior, "fit": part.fit}
            for name, section in sections.items():
                tensors = {k: v for k, v in vars(section).items() if isinstance(v, Tensor)}
                found |= {f"{kind}.{name}.{key}": value for key, value in tensors.items()}
        return found

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], views: int, components_novel: int, freedom: float | None
    ) -> BGMM:
        """Return what `tensors` was taken from; the rest are settings."""
        parts: dict[str, Mixtures] = {}
        for kind in ("base", "novel"):
            if own := _section(tensors, f"{kind}."):
                components = own["posterior.means"].shape[1]
                prior = Prior(**_section(own, "prior."), concentration=1 / components, freedom=freedom)
                fit = Fit(prior, Posterior(**_section(own, "posterior.")), **_section(own, "fit."))
                parts[kind] = Mixtures(fit, views)
        return cls(parts["base"], parts.get("novel"), components_novel)

    @property
    def _parts(self) -> list[Mixtures]:
        return [self.base] if self.novel is None else [self.base, self.novel]


def _section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
