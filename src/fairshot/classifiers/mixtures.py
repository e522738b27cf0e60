"""BGMM classifiers (appendix C): a Bayesian Gaussian mixture for each class and view, not a prototype.

Where the paper writes a covariance times a mean (eq. 20, 22 and 23) it can only mean the weight of the
component: weights sum to one, and the result has to be a mean. That is what is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fairshot.classifiers.variational import Batch, Fit, Prior, Samples, Sums, Work, expectation_maximisation

TOLERANCE = 1e-3  # of the lower bound, as in scikit-learn
MAX_ITERATIONS = 100
# Samples fitted together: on a CPU as many classes as the caches hold, elsewhere as the memory allows.
BLOCK_BYTES = {"cpu": 2**23}
LARGE_BLOCK = 2**31
START_FEATURES = 512  # of each sample, which k-means at the start compares
KMEANS_ROUNDS = 20  # at most
FAINTEST = 1e-6  # the least that one novel class leaves of a weight


@dataclass(frozen=True, eq=False)
class Mixtures(Batch):
    """Mixtures of C classes in V views with M components each."""

    fit: Fit  # of G = C * V mixtures; its prior is of the training samples and never changes
    views: int

    @property
    def weights(self) -> Tensor:
        """Pi of eq. 19, (C, V, M)."""
        return self._by_class(self.fit.posterior.weights)

    @property
    def means(self) -> Tensor:
        """Mu of eq. 19, (C, V, M, d)."""
        return self._by_class(self.fit.posterior.means)

    @property
    def covariances(self) -> Tensor:
        """Sigma of eq. 19, its diagonal, (C, V, M, d)."""
        return self._by_class(self.fit.posterior.covariances)

    @property
    def lower_bound(self) -> Tensor:
        """Lower bound of the likelihood of each mixture, (C, V)."""
        return self._by_class(self.fit.lower_bound)

    @property
    def iterations(self) -> Tensor:
        """Iterations that each mixture took, (C, V)."""
        return self._by_class(self.fit.iterations)

    @property
    def prior_means(self) -> Tensor:
        """Mean of the training samples, (C, V, d)."""
        return self._by_class(self.fit.prior.mean)

    def shifted(self, by: Tensor) -> Mixtures:
        """Move each class as a whole by (C, V, d), its prior mean too."""
        by = by.to(self.fit.prior.mean).flatten(0, 1)
        prior = replace(self.fit.prior, mean=self.fit.prior.mean + by)
        return replace(self, fit=replace(self.fit, prior=prior, posterior=self.fit.posterior.shifted(by)))

    def _by_class(self, values: Tensor) -> Tensor:
        return values.reshape(-1, self.views, *values.shape[1:])


def fit_mixtures(
    features: Tensor,
    labels: Tensor,
    classes: Sequence[int],
    components: int,
    responsibilities: Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    freedom: float | None = None,
) -> Mixtures:
    """Eq. 19: fit a mixture to the features (N, V, d) of each class and view, all at once.

    Without initial responsibilities (N, V, M) the samples of a class are first divided by k-means. The
    priors are those of scikit-learn. They take the covariance of the class once but d degrees of freedom:
    the smaller a component, the more its variance is underestimated, and with hundreds of features all
    samples join the largest one unless components lie far apart. With a `freedom` the covariance of the class
    is worth so many samples, in each dimension by itself, and components of any size have the right scale.
    """
    index, mask = _by_class(labels, classes)
    empty = [c for c, any_sample in zip(classes, mask.any(1).tolist(), strict=True) if not any_sample]
    if empty:
        raise ValueError(f"no features for the classes {empty}; a mixture needs at least one")
    views = features.shape[1]
    block = BLOCK_BYTES.get(features.device.type, LARGE_BLOCK) // (features[0].nbytes * index.shape[1])
    rows = torch.arange(len(index), device=index.device).chunk(-(-len(index) // max(1, block)))
    # one memory for the samples of all blocks: used again and again it is faster than new
    powers = features.new_empty(len(rows[0]) * views, index.shape[1], 2 * features.shape[2])
    fits = [
        expectation_maximisation(
            _begin(features, index[some], mask[some], components, responsibilities, freedom, powers),
            tolerance,
            max_iterations,
        )
        for some in rows
    ]
    return Mixtures(fits[0].join(*fits[1:]), views)


def overall_mean(means: Tensor, weights: Tensor) -> Tensor:
    """Eq. 20: the mean of each mixture, (C, V, M, d) weighted by (C, V, M), which replaces the prototype."""
    return torch.einsum("cvm,cvmd->cvd", weights, means)


def decay(weights: Tensor, means: Tensor, novel: Tensor, gamma: float) -> Tensor:
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
    mixtures: Mixtures, features: Tensor, absorbed_by: Tensor, strength: Tensor
) -> Mixtures:
    """Calibration, eq. 24: EM from the present mixtures on the unlabelled samples each class absorbed.

    `absorbed_by` (N,) names a row of the mixtures for each of the features (N, V, d), or is negative;
    `strength` (C,) is alpha', the number of samples that the prior mean is worth: the larger, the less a
    class moves. The prior mean stays that of the training samples, so repetition cannot drift; so does the
    prior covariance, because a few samples have hardly any. A class that absorbs nothing stays as it is.
    """
    index, mask = _by_class(absorbed_by, range(len(mixtures.means)))
    mask = mask.repeat_interleave(mixtures.views, 0)
    moved = mask.any(1).nonzero()[:, 0]
    if not len(moved):
        return mixtures
    present = mixtures.fit.take(moved)
    precision = strength.to(present.prior.mean).repeat_interleave(mixtures.views)[moved, None]
    prior = replace(present.prior, mean_precision=precision)
    samples = Samples.relative_to(prior.mean, _gather(features, index)[moved], mask[moved])
    nobody = Sums.of(
        mask[moved, None].double() * torch.zeros_like(present.posterior.mean_precision)[..., None], samples
    )
    work = Work.begin(samples, nobody, prior, present.posterior)
    fit = expectation_maximisation(work, TOLERANCE, MAX_ITERATIONS)
    return replace(mixtures, fit=mixtures.fit.put(moved, fit))


def _begin(
    features: Tensor,
    index: Tensor,
    mask: Tensor,
    components: int,
    responsibilities: Tensor | None,
    freedom: float | None,
    powers: Tensor,
) -> Work:
    """Make the work of some classes, whose samples are given by their indices (C, n), in the memory given."""
    mask = mask.repeat_interleave(features.shape[1], 0)
    powers = powers[: len(mask)]
    values = _gather(features, index, powers.chunk(2, -1)[0])
    count = mask.sum(1, dtype=torch.float64)[:, None]
    mean = torch.bmm(mask[:, None].to(values), values)[:, 0].double() / count
    samples = Samples.relative_to(mean, values, mask, powers)
    if responsibilities is None:
        start = partition(samples, components)
    else:
        start = _gather(responsibilities.double(), index).mT
    sums = Sums.of(start * samples.mask[:, None], samples)
    covariance = sums.powers.sum(1).chunk(2, -1)[1] / (count - 1).clamp(min=1)
    prior = Prior(mean, torch.ones_like(count), covariance, 1 / components, freedom)
    return Work.begin(samples, sums, prior)


def partition(samples: Samples, components: int) -> Tensor:
    """Divide the samples of each mixture into clusters, to start from: (G, M, n), zeros and ones.

    Equal parts along the direction of largest spread, then k-means; by some of the features only, which is
    enough to start. The same for the same samples, whatever machine or seed.
    """
    values, squares = (part[..., :START_FEATURES] for part in samples.powers.chunk(2, -1))
    mask = samples.mask[:, None].to(values)
    farthest = (squares.sum(-1) * mask[:, 0]).argmax(1)
    direction = values.gather(1, farthest[:, None, None].expand_as(values[:, :1]))
    for _ in range(3):
        direction = normalize(torch.bmm(torch.bmm(direction, values.mT) * mask, values), dim=-1)
    position = torch.bmm(direction, values.mT)[:, 0].masked_fill(samples.mask == 0, torch.inf)
    rank = position.argsort(dim=1, stable=True).argsort(dim=1)
    count = samples.mask.sum(1, keepdim=True).long()
    cluster = (rank * components // count.clamp(min=1)).clamp(max=components - 1)
    names = torch.arange(components, device=cluster.device)[:, None]
    for _ in range(KMEANS_ROUNDS):
        member = (cluster[:, None] == names) * mask
        centres = torch.bmm(member, values) / member.sum(2, keepdim=True).clamp(min=1)
        distance = centres.square().sum(-1, keepdim=True) - 2 * torch.bmm(centres, values.mT)
        before, cluster = cluster, distance.min(1).indices  # far faster than argmin
        if torch.equal(cluster, before):
            break
    return (cluster[:, None] == names).double()


def _by_class(labels: Tensor, classes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Which samples each class has, padded to the largest class: indices (C, n), and a mask (C, n)."""
    wanted = torch.as_tensor(list(classes), device=labels.device, dtype=labels.dtype)
    ordered, order = labels.sort(stable=True)
    first = torch.searchsorted(ordered, wanted)
    count = torch.searchsorted(ordered, wanted, right=True) - first
    step = torch.arange(int(count.max()), device=labels.device)
    mask = step < count[:, None]
    return order[(first[:, None] + step).clamp(max=len(order) - 1)], mask


def _gather(values: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Take the samples of some classes (C, n) out of (N, V, d): (C * V, n, d)."""
    views = values.shape[1]
    rows = (index[:, None] * views + torch.arange(views, device=index.device)[:, None]).flatten()
    if out is not None:
        torch.index_select(values.flatten(0, 1), 0, rows, out=out.view(-1, values.shape[2]))
        return out
    return values.flatten(0, 1).index_select(0, rows).reshape(-1, index.shape[1], values.shape[2])
