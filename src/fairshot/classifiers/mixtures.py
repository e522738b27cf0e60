"""BGMM classifiers (appendix C): a Bayesian Gaussian mixture for each class and view, not a prototype.

Where the paper writes a covariance times a mean (eq. 20, 22 and 23) it can only mean the weight of the
component: weights sum to one, and the result has to be a mean. That is what is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch.nn.functional import normalize, one_hot

from fairshot.classifiers.variational import (
    Fit,
    Posterior,
    Prior,
    Samples,
    Sums,
    expectation_maximisation,
    maximisation,
)

TOLERANCE = 1e-3  # of the lower bound, as in scikit-learn
MAX_ITERATIONS = 100
# Samples fitted together: on a CPU as many classes as the caches hold, elsewhere as the memory allows.
BLOCK_BYTES = {"cpu": 2**23}
LARGE_BLOCK = 2**31
SKETCH = 64  # samples of a class that the direction of its spread is taken from
FAINTEST = 1e-6  # the least that one novel class leaves of a weight


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of C classes in V views with M components each, and what they were fitted with."""

    posterior: Posterior  # of G = C * V mixtures
    prior_mean: torch.Tensor  # (G, d) mean of the training samples: never changes
    prior_covariance: torch.Tensor  # (G, d) their variance
    lower_bound: torch.Tensor  # (G,)
    iterations: torch.Tensor  # (G,)
    views: int

    @property
    def weights(self) -> torch.Tensor:
        """Pi of eq. 19, (C, V, M)."""
        return self._by_class(self.posterior.weights)

    @property
    def means(self) -> torch.Tensor:
        """Mu of eq. 19, (C, V, M, d)."""
        return self._by_class(self.posterior.means)

    @property
    def covariances(self) -> torch.Tensor:
        """Sigma of eq. 19, its diagonal, (C, V, M, d)."""
        return self._by_class(self.posterior.covariances)

    def joined(self, other: Mixtures) -> Mixtures:
        """Append the classes of another set with as many components."""
        return Mixtures(
            _concatenated(self.posterior, other.posterior),
            torch.cat([self.prior_mean, other.prior_mean]),
            torch.cat([self.prior_covariance, other.prior_covariance]),
            torch.cat([self.lower_bound, other.lower_bound]),
            torch.cat([self.iterations, other.iterations]),
            self.views,
        )

    def _by_class(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(-1, self.views, *values.shape[1:])


def fit_mixtures(
    features: torch.Tensor,
    labels: torch.Tensor,
    classes: Sequence[int],
    components: int,
    responsibilities: torch.Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> Mixtures:
    """Eq. 19: fit a mixture to the features (N, V, d) of each class and view, all at once.

    Without initial responsibilities (N, V, M) the samples of a class are split into equal parts along the
    direction in which they spread most. The priors are those of scikit-learn.
    """
    index, mask = _by_class(labels, classes)
    empty = [c for c, any_sample in zip(classes, mask.any(1).tolist(), strict=True) if not any_sample]
    if empty:
        raise ValueError(f"no features for the classes {empty}; a mixture needs at least one")
    views = features.shape[1]
    bytes_a_class = features[0].nbytes * index.shape[1]
    block = max(1, BLOCK_BYTES.get(features.device.type, LARGE_BLOCK) // bytes_a_class)
    parts = [
        _fit_block(
            _gather(features, rows),
            chosen.repeat_interleave(views, 0),
            components,
            None if responsibilities is None else _gather(responsibilities.double(), rows).mT,
            tolerance,
            max_iterations,
        )
        for rows, chosen in ((index[i : i + block], mask[i : i + block]) for i in range(0, len(mask), block))
    ]
    fits, means, covariances = zip(*parts, strict=True)
    return Mixtures(
        _concatenated(*(fit.posterior for fit in fits)),
        torch.cat(means),
        torch.cat(covariances),
        torch.cat([fit.lower_bound for fit in fits]),
        torch.cat([fit.iterations for fit in fits]),
        views,
    )


def overall_mean(means: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Eq. 20: the mean of each mixture, (C, V, M, d) weighted by (C, V, M), which replaces the prototype."""
    return torch.einsum("cvm,cvmd->cvd", weights, means)


def decay(weights: torch.Tensor, means: torch.Tensor, novel: torch.Tensor, gamma: float) -> torch.Tensor:
    """Resistance, eq. 22 and 23: each novel class weakens the component of a base class most similar to it.

    `weights` (B, V, M) and `means` (B, V, M, d) are of the base classes, `novel` (K, V, d) are the overall
    means of a session's novel classes. Weights are left summing to one. A weight never grows by this, nor
    does it vanish: a mixture whose every component resembles novel classes still has a mean.
    """
    cosine = torch.einsum("bvmd,kvd->bvmk", normalize(means, dim=-1), normalize(novel, dim=-1))
    nearest = one_hot(cosine.argmax(2), means.shape[2]).mT.bool()
    factor = torch.where(nearest, (gamma * (1 - cosine)).clamp(FAINTEST, 1), 1.0)
    # logarithms: a product over many novel classes would underflow
    return (weights.log() + factor.log().sum(-1)).softmax(-1)


def calibrate_mixtures(
    mixtures: Mixtures,
    features: torch.Tensor,
    absorbed_by: torch.Tensor,
    strength: torch.Tensor,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> Mixtures:
    """Calibration, eq. 24: EM from the present mixtures on the unlabelled samples each class absorbed.

    `absorbed_by` (N,) names a row of the mixtures for each of the features (N, V, d), or is negative;
    `strength` (C,) is alpha', the number of samples that the prior mean is worth: the larger, the less a
    class moves. The prior mean stays that of the training samples, so repetition cannot drift; so does the
    prior covariance, because a few samples have hardly any. A class that absorbs nothing stays as it is.
    """
    index, mask = _by_class(absorbed_by, range(len(mixtures.prior_mean) // mixtures.views))
    mask = mask.repeat_interleave(mixtures.views, 0)
    moved = mask.any(1).nonzero()[:, 0]
    origin = mixtures.prior_mean[moved]
    samples = Samples.relative_to(origin, _gather(features, index)[moved], mask[moved])
    precision = strength.to(origin).repeat_interleave(mixtures.views)[moved, None]
    prior = Prior(precision, mixtures.prior_covariance[moved], 1 / mixtures.means.shape[2])
    start = mixtures.posterior.take(moved).shifted(-origin)
    fit = expectation_maximisation(start, samples, prior, tolerance, max_iterations)
    return replace(
        mixtures,
        posterior=mixtures.posterior.put(moved, fit.posterior.shifted(origin)),
        lower_bound=mixtures.lower_bound.index_copy(0, moved, fit.lower_bound),
        iterations=mixtures.iterations.index_copy(0, moved, fit.iterations),
    )


def _fit_block(
    values: torch.Tensor,
    mask: torch.Tensor,
    components: int,
    responsibilities: torch.Tensor | None,
    tolerance: float,
    max_iterations: int,
) -> tuple[Fit, torch.Tensor, torch.Tensor]:
    """Fit mixtures to (G, n, d); return them with the mean and the variance of their samples."""
    count = mask.sum(1, dtype=torch.float64)[:, None]
    mean = torch.bmm(mask[:, None].to(values), values)[:, 0].double() / count
    samples = Samples.relative_to(mean, values, mask)
    if responsibilities is None:
        responsibilities = split(samples, components)
    sums = Sums.of(responsibilities * samples.mask[:, None], samples)
    covariance = sums.powers.sum(1).chunk(2, -1)[1] / (count - 1).clamp(min=1)
    prior = Prior(torch.ones_like(count), covariance, 1 / components)
    fit = expectation_maximisation(maximisation(sums, prior), samples, prior, tolerance, max_iterations)
    shifted = Fit(fit.posterior.shifted(mean), fit.lower_bound, fit.iterations)
    return shifted, mean, covariance


def split(samples: Samples, components: int) -> torch.Tensor:
    """Divide the samples into equal parts along the direction of largest spread: (G, M, n), zeros and ones.

    The direction comes from some of the samples, the farthest of them and a few power iterations: the same
    for the same samples, whatever machine or seed.
    """
    values = samples.powers.chunk(2, -1)[0]
    step = max(1, values.shape[1] // SKETCH)
    some = values[:, ::step] * samples.mask[:, ::step, None].to(values)
    farthest = some.square().sum(-1).argmax(1)
    direction = some[torch.arange(len(farthest), device=farthest.device), farthest][:, None]
    for _ in range(4):
        direction = normalize(torch.bmm(torch.bmm(direction, some.mT), some), dim=-1)
    position = torch.bmm(direction, values.mT)[:, 0].masked_fill(samples.mask == 0, torch.inf)
    rank = position.argsort(dim=1, stable=True).argsort(dim=1)
    count = samples.mask.sum(1, keepdim=True).long()
    part = (rank * components // count.clamp(min=1)).clamp(max=components - 1)
    return (part[:, None] == torch.arange(components, device=part.device)[:, None]).double()


def _by_class(labels: torch.Tensor, classes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which samples each class has, padded to the largest class: indices (C, n), and a mask (C, n)."""
    wanted = torch.as_tensor(list(classes), device=labels.device, dtype=labels.dtype)
    ordered, order = labels.sort(stable=True)
    first = torch.searchsorted(ordered, wanted)
    count = torch.searchsorted(ordered, wanted, right=True) - first
    step = torch.arange(int(count.max()), device=labels.device)
    mask = step < count[:, None]
    return order[(first[:, None] + step).clamp(max=len(order) - 1)], mask


def _gather(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Take the samples of some classes (C, n) out of (N, V, d): (C * V, n, d)."""
    views = values.shape[1]
    rows = index[:, None] * views + torch.arange(views, device=index.device)[:, None]
    return values.flatten(0, 1).index_select(0, rows.flatten()).reshape(-1, index.shape[1], values.shape[2])


def _concatenated(*parts: Posterior) -> Posterior:
    return Posterior(
        **{
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(Posterior)
        }
    )
