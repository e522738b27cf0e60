"""Variational Bayes for many Gaussian mixtures with diagonal covariance at once.

The model is that of scikit-learn's `BayesianGaussianMixture(covariance_type="diag")`: a stick-breaking prior
over the weights, a normal prior over the means, a Wishart prior over the precisions. G mixtures of M
components are fitted together, each to n samples, short ones padded with rows that a mask excludes.
Coordinates are relative to the prior mean of each mixture, which is therefore zero: this keeps the second
moments accurate in float32. Parameters are float64 whatever the samples are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch

REGULARISATION = 1e-6  # added to the variances, as in scikit-learn
TINIEST_VARIANCE = 1e-12  # sums over an emptied component may end up just below zero
SAME = 1e-12  # responsibilities closer than this are not counted as changed


@dataclass(frozen=True)
class Samples:
    """What the mixtures are fitted to: first and second powers side by side; padding may hold anything."""

    powers: torch.Tensor  # (G, n, 2 d): x and x squared, x relative to the prior mean
    mask: torch.Tensor  # (G, n) 1 for a sample, 0 for padding

    @classmethod
    def relative_to(cls, prior_mean: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> Samples:
        """Shift the samples (G, n, d) so that the prior mean (G, d) is the origin."""
        first, second = (powers := values.new_empty(*values.shape[:-1], 2 * values.shape[-1])).chunk(2, -1)
        torch.sub(values, prior_mean[:, None].to(values), out=first)
        torch.mul(first, first, out=second)
        return cls(powers, mask.double())

    def take(self, rows: torch.Tensor) -> Samples:
        """Select some of the mixtures."""
        return Samples(self.powers[rows], self.mask[rows])


@dataclass(frozen=True)
class Prior:
    """What is believed before the samples. The prior mean is the origin."""

    mean_precision: torch.Tensor  # (G, 1) how many samples the prior mean is worth
    covariance: torch.Tensor  # (G, d)
    concentration: float  # of the weights; 1 / M in scikit-learn

    def take(self, rows: torch.Tensor) -> Prior:
        """Select some of the mixtures."""
        return Prior(self.mean_precision[rows], self.covariance[rows], self.concentration)


@dataclass(frozen=True)
class Posterior:
    """The variational parameters of G mixtures of M components."""

    sticks: torch.Tensor  # (G, M, 2) parameters of the beta distributions of the stick-breaking weights
    mean_precision: torch.Tensor  # (G, M)
    degrees_of_freedom: torch.Tensor  # (G, M)
    means: torch.Tensor  # (G, M, d)
    covariances: torch.Tensor  # (G, M, d)
    log_determinants: torch.Tensor  # (G, M) of the covariances

    @property
    def weights(self) -> torch.Tensor:
        """Expected weights pi (G, M), which sum to one."""
        taken = self.sticks[..., 0] / self.sticks.sum(-1)
        left = (1 - taken).cumprod(-1).roll(1, -1)
        left[..., 0] = 1
        weights = taken * left
        return weights / weights.sum(-1, keepdim=True)

    def take(self, rows: torch.Tensor) -> Posterior:
        """Select some of the mixtures."""
        return Posterior(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def put(self, rows: torch.Tensor, others: Posterior) -> Posterior:
        """Replace some of the mixtures, by their indices, with others."""
        return Posterior(
            **{
                field.name: getattr(self, field.name).index_copy(0, rows, getattr(others, field.name))
                for field in fields(self)
            }
        )

    def shifted(self, by: torch.Tensor) -> Posterior:
        """Move the origin: add (G, d) to all means."""
        return replace(self, means=self.means + by[:, None])


@dataclass(frozen=True)
class Sums:
    """Responsibilities, and the powers of the samples summed with them: what the M step needs."""

    responsibilities: torch.Tensor  # (G, M, n)
    powers: torch.Tensor  # (G, M, 2 d)

    @classmethod
    def of(cls, responsibilities: torch.Tensor, samples: Samples) -> Sums:
        """Sum over all samples."""
        share = responsibilities.to(samples.powers)
        return cls(responsibilities, torch.bmm(share, samples.powers).double())

    def updated(self, responsibilities: torch.Tensor, samples: Samples) -> Sums:
        """Sum anew, but only over the samples whose responsibilities changed: soon they are few."""
        difference = responsibilities - self.responsibilities
        changed = difference.abs().amax(1) > SAME
        most = int(changed.sum(1).max())
        if 2 * most > changed.shape[1]:
            return Sums.of(responsibilities, samples)
        which = changed.byte().argsort(dim=1, descending=True)[:, :most]
        group = torch.arange(len(which), device=which.device)[:, None]
        share = difference.gather(2, which[:, None].expand(-1, difference.shape[1], -1)).to(samples.powers)
        change = torch.bmm(share, samples.powers[group, which])
        return Sums(responsibilities, self.powers + change)

    def take(self, rows: torch.Tensor) -> Sums:
        """Select some of the mixtures."""
        return Sums(self.responsibilities[rows], self.powers[rows])


@dataclass(frozen=True)
class Fit:
    """Fitted mixtures, with the lower bound of the likelihood and the iterations each one took."""

    posterior: Posterior
    lower_bound: torch.Tensor  # (G,)
    iterations: torch.Tensor  # (G,)


def expectation_maximisation(
    start: Posterior, samples: Samples, prior: Prior, tolerance: float, max_iterations: int
) -> Fit:
    """Alternate the two steps until the lower bound of every mixture has settled.

    Each mixture stops by itself, as if it were fitted alone: when its bound changes by less than the
    tolerance. Those that have stopped are left out of the work once they are the greater part.
    """
    rows = torch.arange(len(start.means), device=start.means.device)  # the mixtures still worked on
    finished, posterior, running = start, start, torch.ones_like(rows, dtype=torch.bool)
    bound = torch.full(rows.shape, -math.inf, dtype=torch.float64, device=rows.device)
    iterations, sums = torch.zeros_like(rows), None
    for _ in range(max_iterations):
        responsibilities, entropy = expectation(posterior, samples)
        sums = sums.updated(responsibilities, samples) if sums else Sums.of(responsibilities, samples)
        posterior = maximisation(sums, prior)
        fresh_bound = lower_bound(posterior, entropy)
        settled = (fresh_bound - bound[rows]).abs() < tolerance
        now = rows[running]
        bound[now] = fresh_bound[running]
        iterations[now] += 1
        finished = finished.put(now, posterior.take(running))
        running = running & ~settled
        if not running.any():
            break
        if 2 * running.sum() <= len(running):
            rows, posterior, sums = rows[running], posterior.take(running), sums.take(running)
            samples, prior, running = samples.take(running), prior.take(running), running[running]
    return Fit(finished, bound, iterations)


def expectation(posterior: Posterior, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    """E step: responsibilities (G, M, n) of the components, and their entropy (G,)."""
    precisions, dimensions = 1 / posterior.covariances, posterior.means.shape[-1]
    scaled = posterior.means * precisions
    weights = torch.cat([scaled, -0.5 * precisions], dim=-1).to(samples.powers)
    degrees = posterior.degrees_of_freedom
    constant = (
        -0.5 * (posterior.means * scaled).sum(-1)
        - 0.5 * posterior.log_determinants
        - 0.5 * dimensions * (degrees.log() + 1 / posterior.mean_precision)
        + 0.5 * _digamma_sum(degrees, dimensions)
        + _expected_log_weights(posterior)
    )
    logits = torch.bmm(weights, samples.powers.mT) + constant[..., None]
    log_responsibilities = logits.log_softmax(1)
    responsibilities = log_responsibilities.exp() * samples.mask[:, None]
    return responsibilities, -(responsibilities * log_responsibilities).sum((1, 2))


def maximisation(sums: Sums, prior: Prior) -> Posterior:
    """M step: the posterior given the responsibilities."""
    count = sums.responsibilities.sum(2) + 10 * torch.finfo(torch.float64).eps
    first, second = sums.powers.chunk(2, -1)
    mean_precision = prior.mean_precision + count
    means = first / mean_precision[..., None]
    degrees = means.shape[-1] + count
    # the variance within the component and the pull of the prior mean (the origin), multiplied out
    spread = prior.covariance[:, None] + second - means * first + REGULARISATION * count[..., None]
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


def lower_bound(posterior: Posterior, entropy: torch.Tensor) -> torch.Tensor:
    """Evidence lower bound of each mixture (G,), without its constant terms, as scikit-learn reports it."""
    degrees, dimensions = posterior.degrees_of_freedom, posterior.means.shape[-1]
    log_determinant = -0.5 * (posterior.log_determinants + dimensions * degrees.log())
    log_wishart = -(
        degrees * log_determinant
        + degrees * dimensions * 0.5 * math.log(2)
        + _log_gamma_sum(degrees, dimensions)
    )
    first, second = posterior.sticks.unbind(-1)
    log_beta = torch.lgamma(first) + torch.lgamma(second) - torch.lgamma(first + second)
    return (
        entropy
        - log_wishart.sum(-1)
        + log_beta.sum(-1)
        - 0.5 * dimensions * posterior.mean_precision.log().sum(-1)
    )


def _expected_log_weights(posterior: Posterior) -> torch.Tensor:
    """Take the expectation of log pi (G, M) under the stick-breaking posterior."""
    total = torch.digamma(posterior.sticks.sum(-1))
    taken, left = (torch.digamma(posterior.sticks) - total[..., None]).unbind(-1)
    return taken + left.cumsum(-1) - left


def _digamma_sum(degrees: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Sum of digamma((degrees - i) / 2) over i = 0 .. dimensions - 1, in closed form.

    (x - 1) digamma(x) - x grows by digamma(x) from x to x + 1, so a sum in steps of one telescopes; the
    arguments are two such sums, for even and odd i.
    """

    def stair(x: torch.Tensor) -> torch.Tensor:
        return (x - 1) * torch.digamma(x) - x

    even, odd = (dimensions + 1) // 2, dimensions // 2
    top, below = degrees / 2 + 1, degrees / 2 + 0.5
    return stair(top) - stair(top - even) + stair(below) - stair(below - odd)


def _log_gamma_sum(degrees: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Sum of log gamma((degrees - i) / 2) over i = 0 .. dimensions - 1."""
    steps = torch.arange(dimensions, dtype=degrees.dtype, device=degrees.device)
    return torch.lgamma((degrees[..., None] - steps) / 2).sum(-1)
