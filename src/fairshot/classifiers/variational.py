"""Variational Bayes for many Gaussian mixtures with diagonal covariance at once.

The model is that of scikit-learn's `BayesianGaussianMixture(covariance_type="diag")`: a stick-breaking prior
over the weights, a normal prior over the means, a Wishart prior over the precisions; or, for any degrees of
freedom, a gamma prior over the precision of each dimension. G mixtures of M components are fitted together,
each to n samples, short ones padded with rows that a mask excludes. Coordinates are relative to the prior
mean of each mixture, which is therefore zero: this keeps the second moments accurate in float32. Parameters
are float64 whatever the samples are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

REGULARISATION = 1e-6  # added to the variances, as in scikit-learn
TINIEST_VARIANCE = 1e-12  # sums over an emptied component may end up just below zero
SAME = 1e-12  # responsibilities closer than this are not counted as changed
FEW = 4  # a quarter of the samples: when more have changed, all are summed anew


class Batch:
    """A dataclass of tensors whose first dimension counts mixtures; numbers are common to all of them."""

    def take(self, rows: Tensor | slice) -> Self:
        """Select some of the mixtures, by a mask or by a slice, which copies nothing."""
        return self._each(lambda value: value[rows])

    def put(self, rows: Tensor, others: Self) -> Self:
        """Replace some of the mixtures, by their indices, with others."""
        return self._each(lambda value, other: value.index_copy(0, rows, other), others)

    def join(self, *others: Self) -> Self:
        """Put further mixtures behind these."""
        return self._each(lambda *values: torch.cat(values), *others)

    def _each(self, change: Callable[..., Tensor], *others: Self) -> Self:
        def changed(value: Any, *beside: Any) -> Any:
            if isinstance(value, Batch):
                return value._each(change, *beside)
            return change(value, *beside) if isinstance(value, Tensor) else value

        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        parts: dict[str, Any] = {
            name: changed(*(getattr(one, name) for one in (self, *others))) for name in names
        }
        return replace(self, **parts)  # type: ignore[type-var]


@dataclass(frozen=True)
class Samples(Batch):
    """What the mixtures are fitted to: first and second powers side by side; padding may hold anything."""

    powers: Tensor  # (G, n, 2 d): x and x squared, x relative to the prior mean
    mask: Tensor  # (G, n) 1 for a sample, 0 for padding

    @classmethod
    def relative_to(
        cls, prior_mean: Tensor, values: Tensor, mask: Tensor, powers: Tensor | None = None
    ) -> Samples:
        """Shift the samples (G, n, d) so that the prior mean (G, d) is the origin.

        `powers` (G, n, 2 d) is where to put them, new memory if none is given; the values may already be its
        first half.
        """
        if powers is None:
            powers = values.new_empty(*values.shape[:-1], 2 * values.shape[-1])
        first, second = powers.chunk(2, -1)
        torch.sub(values, prior_mean[:, None].to(values), out=first)
        torch.mul(first, first, out=second)
        return cls(powers, mask.double())


@dataclass(frozen=True)
class Prior(Batch):
    """What is believed before the samples."""

    mean: Tensor  # (G, d) the origin of the coordinates while a mixture is fitted
    mean_precision: Tensor  # (G, 1) how many samples the prior mean is worth
    covariance: Tensor  # (G, d)
    concentration: float  # of the weights; 1 / M in scikit-learn
    freedom: float | None = None  # how many samples the covariance is worth; None: what scikit-learn does

    @property
    def squares(self) -> Tensor:
        """What the prior adds to the sums of squares (G, d): the covariance, as often as it counts."""
        return self.covariance if self.freedom is None else self.freedom * self.covariance

    def degrees(self, dimensions: int) -> float:
        """What the prior adds to the degrees of freedom.

        By default d, as many as a Wishart prior needs, although `squares` is that of one sample: what the
        prior expects is a d-th of the covariance.
        """
        return dimensions if self.freedom is None else self.freedom


@dataclass(frozen=True)
class Posterior(Batch):
    """The variational parameters of G mixtures of M components."""

    sticks: Tensor  # (G, M, 2) parameters of the beta distributions of the stick-breaking weights
    mean_precision: Tensor  # (G, M)
    degrees_of_freedom: Tensor  # (G, M)
    means: Tensor  # (G, M, d)
    covariances: Tensor  # (G, M, d)
    log_determinants: Tensor  # (G, M) of the covariances

    @property
    def weights(self) -> Tensor:
        """Expected weights pi (G, M), which sum to one."""
        share = self.sticks[..., 0] / self.sticks.sum(-1)
        left = (1 - share).cumprod(-1).roll(1, -1)
        left[..., 0] = 1
        weights = share * left
        return weights / weights.sum(-1, keepdim=True)

    def shifted(self, by: Tensor) -> Posterior:
        """Move the origin: add (G, d) to all means."""
        return replace(self, means=self.means + by[:, None])


@dataclass(frozen=True)
class Sums(Batch):
    """Responsibilities, and the powers of the samples summed with them: what the M step needs."""

    responsibilities: Tensor  # (G, M, n)
    powers: Tensor  # (G, M, 2 d)

    @classmethod
    def of(cls, responsibilities: Tensor, samples: Samples) -> Sums:
        """Sum over all samples."""
        share = responsibilities.to(samples.powers)
        return cls(responsibilities, torch.bmm(share, samples.powers).double())

    def updated(self, responsibilities: Tensor, samples: Samples) -> Sums:
        """Sum anew, but only over the samples whose responsibilities changed: soon they are few."""
        difference = responsibilities - self.responsibilities
        changed = difference.abs().amax(1) > SAME
        most = int(changed.sum(1).max())
        if most == 0:
            return Sums(responsibilities, self.powers)
        if FEW * most > changed.shape[1]:
            return Sums.of(responsibilities, samples)
        which = changed.byte().topk(most, dim=1).indices
        share = difference.gather(2, which[:, None].expand(-1, difference.shape[1], -1)).to(samples.powers)
        rows = which + torch.arange(len(which), device=which.device)[:, None] * changed.shape[1]
        powers = samples.powers.flatten(0, 1).index_select(0, rows.flatten())
        change = torch.bmm(share, powers.reshape(len(which), most, -1))
        return Sums(responsibilities, self.powers + change)


@dataclass(frozen=True)
class Fit(Batch):
    """Mixtures, their priors, the lower bound of their likelihood and the iterations each one took."""

    prior: Prior
    posterior: Posterior
    lower_bound: Tensor  # (G,)
    iterations: Tensor  # (G,)


@dataclass(frozen=True)
class Work(Batch):
    """The state of EM: the samples, their sums and the fit so far, relative to the prior means."""

    samples: Samples
    sums: Sums
    fit: Fit

    @classmethod
    def begin(cls, samples: Samples, sums: Sums, prior: Prior, start: Posterior | None = None) -> Work:
        """Begin from the sums of initial responsibilities, or from given mixtures."""
        start = maximisation(sums, prior) if start is None else start.shifted(-prior.mean)
        unbounded = torch.full_like(prior.mean_precision[:, 0], -math.inf)
        return cls(
            samples, sums, Fit(prior, start, unbounded, torch.zeros_like(unbounded, dtype=torch.int64))
        )

    def step(self) -> Work:
        """Take the E step and the M step once."""
        prior = self.fit.prior
        responsibilities, entropy = expectation(prior, self.fit.posterior, self.samples)
        sums = self.sums.updated(responsibilities, self.samples)
        posterior = maximisation(sums, prior)
        bound = lower_bound(prior, posterior, entropy)
        return replace(self, sums=sums, fit=Fit(prior, posterior, bound, self.fit.iterations + 1))


def expectation_maximisation(work: Work, tolerance: float, max_iterations: int) -> Fit:
    """Step until the lower bound of every mixture has settled.

    Each mixture stops by itself, as if it were fitted alone: when its bound changes by less than the
    tolerance. Those that have stopped are left out of the work once they are half of it.
    """
    fit = work.fit
    rows = torch.arange(len(fit.lower_bound), device=fit.lower_bound.device)  # the mixtures in work
    running = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(max_iterations):
        before, work = work.fit.lower_bound, work.step()
        still = running & ((work.fit.lower_bound - before).abs() >= tolerance)
        left = int(still.sum())
        if left < int(running.sum()):
            stopped = running & ~still
            fit = fit.put(rows[stopped], work.fit.take(stopped))
        running = still
        if not left:
            break
        if 2 * left <= len(running):
            chosen = _neighbours(running)
            rows, work, running = rows[chosen], work.take(chosen), running[chosen]
    fit = fit.put(rows[running], work.fit.take(running))  # what the last iteration left unsettled
    return replace(fit, posterior=fit.posterior.shifted(fit.prior.mean))


def _neighbours(chosen: Tensor) -> Tensor | slice:
    """Return a mask as a slice if it is one: what it selects then need not be copied."""
    first, *_, last = (places := chosen.nonzero()[:, 0].tolist()) * 2
    return slice(first, last + 1) if last + 1 - first == len(places) else chosen


def expectation(prior: Prior, posterior: Posterior, samples: Samples) -> tuple[Tensor, Tensor]:
    """E step: responsibilities (G, M, n) of the components, and their entropy (G,)."""
    precisions, dimensions = 1 / posterior.covariances, posterior.means.shape[-1]
    scaled = posterior.means * precisions
    weights = torch.cat([scaled, -0.5 * precisions], dim=-1)
    # only differences between components matter: measured from the last, there is one product less
    relative = torch.bmm((weights[:, :-1] - weights[:, -1:]).to(samples.powers), samples.powers.mT)
    degrees = posterior.degrees_of_freedom
    constant = (
        -0.5 * (posterior.means * scaled).sum(-1)
        - 0.5 * posterior.log_determinants
        - 0.5 * dimensions * (degrees.log() + 1 / posterior.mean_precision)
        + 0.5 * _digamma_sum(degrees, dimensions, prior)
        + _expected_log_weights(posterior)
    )
    logits = pad(relative, (0, 0, 0, 1))
    log_responsibilities = (logits + constant[..., None]).log_softmax(1)
    responsibilities = log_responsibilities.exp() * samples.mask[:, None]
    return responsibilities, -(responsibilities * log_responsibilities).sum((1, 2))


def maximisation(sums: Sums, prior: Prior) -> Posterior:
    """M step: the posterior given the responsibilities."""
    count = sums.responsibilities.sum(2) + 10 * torch.finfo(torch.float64).eps
    first, second = sums.powers.chunk(2, -1)
    mean_precision = prior.mean_precision + count
    means = first / mean_precision[..., None]
    degrees = prior.degrees(means.shape[-1]) + count
    # the variance within the component and the pull of the prior mean (the origin), multiplied out
    spread = prior.squares[:, None] + second - means * first + REGULARISATION * count[..., None]
    covariances = (spread / degrees[..., None]).clamp(min=TINIEST_VARIANCE)
    later = count.flip(-1).cumsum(-1).flip(-1) - count
    return Posterior(
        sticks=torch.stack([1 + count, prior.concentration + later], dim=-1),
        mean_precision=mean_precision,
        degrees_of_freedom=degrees,
        means=means,
        covariances=covariances,
        log_determinants=covariances.log().sum(-1),
    )


def lower_bound(prior: Prior, posterior: Posterior, entropy: Tensor) -> Tensor:
    """Evidence lower bound of each mixture (G,), without its constant terms, as scikit-learn reports it."""
    degrees, dimensions = posterior.degrees_of_freedom, posterior.means.shape[-1]
    log_determinant = -0.5 * (posterior.log_determinants + dimensions * degrees.log())
    log_norm = -(
        degrees * log_determinant
        + degrees * dimensions * 0.5 * math.log(2)
        + _log_gamma_sum(degrees, dimensions, prior)
    )
    first, second = posterior.sticks.unbind(-1)
    log_beta = torch.lgamma(first) + torch.lgamma(second) - torch.lgamma(first + second)
    return (
        entropy
        - log_norm.sum(-1)
        + log_beta.sum(-1)
        - 0.5 * dimensions * posterior.mean_precision.log().sum(-1)
    )


def _expected_log_weights(posterior: Posterior) -> Tensor:
    """Take the expectation of log pi (G, M) under the stick-breaking posterior."""
    total = torch.digamma(posterior.sticks.sum(-1))
    taken, left = (torch.digamma(posterior.sticks) - total[..., None]).unbind(-1)
    return taken + left.cumsum(-1) - left


def _digamma_sum(degrees: Tensor, dimensions: int, prior: Prior) -> Tensor:
    """Sum of digamma((degrees - i) / 2) over i = 0 .. dimensions - 1, in closed form.

    (x - 1) digamma(x) - x grows by digamma(x) from x to x + 1, so a sum in steps of one telescopes; the
    arguments are two such sums, for even and odd i. Without the i if each dimension is a gamma distribution.
    """
    if prior.freedom is not None:
        return dimensions * torch.digamma(degrees / 2)

    def stair(x: Tensor) -> Tensor:
        return (x - 1) * torch.digamma(x) - x

    even, odd = (dimensions + 1) // 2, dimensions // 2
    top, below = degrees / 2 + 1, degrees / 2 + 0.5
    return stair(top) - stair(top - even) + stair(below) - stair(below - odd)


def _log_gamma_sum(degrees: Tensor, dimensions: int, prior: Prior) -> Tensor:
    """Sum of log gamma((degrees - i) / 2) over i = 0 .. dimensions - 1, or without the i as above.

    Neighbours are joined by Legendre's duplication formula, which halves the work: log gamma(x) and
    log gamma(x + 1/2) are log gamma(2 x) + (1 - 2 x) log 2 + log(pi) / 2 together.
    """
    if prior.freedom is not None:
        return dimensions * torch.lgamma(degrees / 2)
    pairs, odd = divmod(dimensions, 2)
    twice = degrees[..., None] - 1 - 2 * torch.arange(pairs, dtype=degrees.dtype, device=degrees.device)
    joined = torch.lgamma(twice).sum(-1) + math.log(2) * (1 - twice).sum(-1) + pairs * math.log(math.pi) / 2
    return joined + torch.lgamma((degrees - dimensions + 1) / 2) if odd else joined
