"""Likelihoods of counts with a log link: their mean is exp(f + offset).

The offset is the log of the mean count of the training rows. So f starts at the mean
and is shrunk towards it, as for a standardised target. The likelihood is tempered by
tau; predictions do not use tau. [McCullagh & Nelder 1989, "Generalized linear models",
ch. 6; for the negative binomial distribution, Cameron & Trivedi 1998, "Regression
analysis of count data", ch. 3]
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.special import betainc, betaln, gammaln, pdtr, xlogy
from torch.nn.functional import softplus

from skbayesnn._distributions.components import NO_OTHER_UNITS, Components
from skbayesnn._distributions.map_factor import log_mean_exp, map_estimate
from skbayesnn._distributions.quantiles import integer_quantile
from skbayesnn._likelihoods.base import Tempered, check_same_shape

# f + offset is clipped to these bounds, rates of 1e-13 to 1e13. Their squares, which
# Adam computes, do not overflow in float32.
LOG_RATE_BOUNDS = (-30.0, 30.0)
# Largest count in y, so that the mean is within these bounds.
MAX_COUNT = 1e12
# For a target without events, half an event of mean weight is assumed.
MIN_EVENTS = 0.5
# Bounds of the log dispersion, and its initial value.
LOG_DISPERSION_BOUNDS = (-14.0, 7.0)
START_LOG_DISPERSION = -1.0
# Bounds of the log factor by which held-out rows change it.
LOG_FACTOR_BOUNDS = (-3.0, 3.0)


@dataclass(frozen=True)
class Counts(Components):
    """Poisson distributions, rates of shape (draws, rows, targets)."""

    discrete = True

    rate: np.ndarray

    @property
    def mean(self):
        """Mean of y, the rate."""
        return self.rate

    @property
    def variance(self):
        """The rate, which is mean and variance."""
        return self.rate

    def log_density_per_target(self, y):
        """log P(Y = y), -inf if y is not a count."""
        rate, count = self.rate.astype(np.float64), _count(y)
        log_p = xlogy(count, rate) - rate - gammaln(count + 1)
        return np.where(count == y, log_p, -np.inf)

    def cdf(self, y):
        """P(Y <= y)."""
        share = pdtr(_count(y), self.rate.astype(np.float64))
        return np.where(y < 0, 0.0, share)

    def quantile(self, level):
        """Quantile of every draw, the smallest count whose cdf reaches the level."""
        return _quantile(self.cdf, level, self.mean, self.variance)

    def sample(self, random):
        """Sample counts from every draw."""
        return random.poisson(self.rate).astype(self.rate.dtype)

    def rescaled(self, shift, factor):
        """Raise an error: counts have no other units."""
        raise TypeError(NO_OTHER_UNITS)

    def mixture_quantile(self, level):
        """Quantile of the mixture."""
        mean = self.mean.mean(0, dtype=np.float64)
        variance = (self.variance + np.square(self.mean - mean)).mean(0)
        return _quantile(self.mixture_cdf, level, mean, variance)


@dataclass(frozen=True)
class OverdispersedCounts(Counts):
    """Negative binomial distributions, of the variance rate + dispersion rate^2.

    dispersion : ndarray of shape (draws, rows, targets)
    """

    dispersion: np.ndarray

    @property
    def variance(self):
        """rate + dispersion rate^2."""
        rate = self.rate.astype(np.float64)
        return rate + self.dispersion * np.square(rate)

    @property
    def _size_and_excess(self):
        """1 / dispersion, and rate times dispersion."""
        dispersion = self.dispersion.astype(np.float64)
        return 1 / dispersion, self.rate * dispersion

    def log_density_per_target(self, y):
        """log P(Y = y), -inf if y is not a count."""
        count, (size, excess) = _count(y), self._size_and_excess
        log_p = xlogy(count, excess) - (count + size) * np.log1p(excess)
        log_p = log_p - np.log(count + size) - betaln(count + 1, size)
        return np.where(count == y, log_p, -np.inf)

    def cdf(self, y):
        """P(Y <= y)."""
        size, excess = self._size_and_excess
        share = betainc(size, _count(y) + 1, 1 / (1 + excess))
        return np.where(y < 0, 0.0, share)

    def sample(self, random):
        """Sample counts from every draw."""
        rate = random.gamma(*self._size_and_excess)
        return random.poisson(rate.clip(max=1e18)).astype(self.rate.dtype)


def _quantile(cdf, level, mean, variance):
    """The smallest count with cdf >= level, in Cantelli's bounds of both tails."""
    level, mean = np.broadcast_to(level, mean.shape), mean.astype(np.float64)
    std, odds = np.sqrt(variance), level / (1 - level)
    low, high = mean - std / np.sqrt(odds), mean + std * np.sqrt(odds)
    return integer_quantile(cdf, level, np.maximum(low, 0), high)


def _count(y):
    """The largest count <= y, clipped to the range in which pdtr is accurate."""
    return np.floor(np.clip(y, 0, 1e18))


@dataclass(frozen=True)
class Poisson(Tempered):
    """Poisson distribution of counts; its variance equals its mean."""

    name = "poisson"
    standardizes_y = False
    components_class: ClassVar[type[Counts]] = Counts

    n_targets: int

    @property
    def n_outputs(self):
        """Outputs of the network: one log rate per target."""
        return self.n_targets

    @classmethod
    def check_y(cls, y):
        """Check that y contains integers from 0 to 1e12."""
        invalid = (y < 0) | (y != np.floor(y)) | (y > MAX_COUNT)
        if invalid.any():
            raise ValueError(
                "`y` must contain integers from 0 to 1e12 for likelihood="
                f"{cls.name!r}; got {y[invalid][0]:g} in row "
                f"{np.flatnonzero(invalid.any(1))[0]}. "
                "Use 'gaussian' or 'student_t' if y does not contain counts."
            )

    def statistics(self, y, weights):
        """Log of the weighted mean of y, (targets,)."""
        events = np.maximum(weights @ y, MIN_EVENTS * weights.mean())
        return np.log(events / weights.sum())

    def init(self, tau, statistics=None):
        """Initial parameters; tau is the inverse temperature, (members, 1 or targets).

        statistics : results of ``statistics``, (members, targets)
        """
        assert statistics is not None, "the offset is the log of the mean of y"
        return super().init(tau) | {"offset": statistics}

    def log_rate(self, params, outputs):
        """f + offset, clipped to the bounds, (..., members, rows, targets)."""
        return (outputs + params["offset"].unsqueeze(1)).clamp(*LOG_RATE_BOUNDS)

    def log_density(self, params, outputs, y):
        """log P(y | f), (..., members, rows).

        outputs : (..., members, rows, targets); y : (members or 1, rows, targets)
        """
        check_same_shape(outputs, y)
        log_rate = self.log_rate(params, outputs)
        return (y * log_rate - log_rate.exp() - torch.lgamma(y + 1)).sum(-1)

    def components(self, params, outputs):
        """Rates of every draw, (draws, members, rows, targets)."""
        return (self.log_rate(params, outputs).exp(),)


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """Negative binomial distribution of counts, whose variance exceeds their mean.

    The variance is m + d m^2 of the mean m. The dispersion d of a target is the same
    for all rows, and is learned with the weights.
    """

    name = "negative_binomial"
    components_class = OverdispersedCounts

    trainable = ("log_dispersion",)
    predictive_params = ("predictive_log_dispersion",)

    def init(self, tau, statistics=None):
        """Initial parameters, with the same dispersion for all targets."""
        params = super().init(tau, statistics)
        start = torch.full_like(params["offset"], START_LOG_DISPERSION)
        return params | {"log_dispersion": start}

    def log_dispersion(self, params):
        """Log dispersion, (members, 1, targets)."""
        return params["log_dispersion"].unsqueeze(1).clamp(*LOG_DISPERSION_BOUNDS)

    def log_density(self, params, outputs, y):
        """log P(y | f), (..., members, rows), in double precision."""
        check_same_shape(outputs, y)
        log_rate, y = self.log_rate(params, outputs).double(), y.double()
        log_dispersion = self.log_dispersion(params).double()
        size, log_excess = log_dispersion.neg().exp(), log_rate + log_dispersion
        ways = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1)
        log_p = ways + y * log_excess - (y + size) * softplus(log_excess)
        return log_p.sum(-1).to(outputs.dtype)

    def components(self, params, outputs):
        """Rates of every draw, and their dispersion."""
        [rate] = super().components(params, outputs)
        estimated = params.get("predictive_log_dispersion", params["log_dispersion"])
        log_dispersion = estimated.unsqueeze(1).clamp(*LOG_DISPERSION_BOUNDS)
        return rate, log_dispersion.exp().expand_as(rate)

    def held_out_draws(self, params, outputs, y):
        """y, rates and dispersion, (members, rows, 3, draws, targets)."""
        rate, dispersion = self.components(params, outputs)
        fields = torch.stack([y.expand_as(rate), rate, dispersion])
        return fields.permute(2, 3, 0, 1, 4)

    def fit_predictive_params(self, draws, weights):
        """Estimate the dispersion on held-out rows."""
        densities, estimates = [], []
        for y, rate, dispersion in draws.transpose(3, 1, 2, 0):
            start = np.log(dispersion[0]).mean()

            def density(log_factor, y=y, rate=rate, start=start):
                dispersion = np.full_like(rate, np.exp(start + log_factor))
                counts = OverdispersedCounts(rate, dispersion)
                return log_mean_exp(counts.log_density_per_target(y))

            found, log_factor = map_estimate(density, weights, *LOG_FACTOR_BOUNDS)
            densities.append(found)
            estimates.append(start + log_factor)
        estimated = {"predictive_log_dispersion": np.array(estimates)}
        return np.stack(densities, axis=1), estimated
