"""Poisson likelihood of counts with a log link: y ~ Poisson(exp(f + offset)).

The offset is the log of the mean count of the training rows. So f starts at the mean
and is shrunk towards it, as for a standardised target. The likelihood is tempered by
tau; predictions do not use tau. [McCullagh & Nelder 1989, "Generalized linear models",
ch. 6]
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import gammaln, pdtr, xlogy

from skbayesnn._distributions.components import NO_OTHER_UNITS, Components
from skbayesnn._distributions.quantiles import integer_quantile
from skbayesnn._likelihoods.base import Tempered, check_same_shape

# f + offset is clipped to these bounds, rates of 1e-13 to 1e13. Their squares, which
# Adam computes, do not overflow in float32.
LOG_RATE_BOUNDS = (-30.0, 30.0)
# Largest count in y, so that the mean is within these bounds.
MAX_COUNT = 1e12
# For a target without events, half an event of mean weight is assumed.
MIN_EVENTS = 0.5


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
        rate = self.rate.astype(np.float64)
        # Bernstein's bounds of the two tails, at the level and at 1 - level.
        below, above = -np.log(level), -np.log1p(-level)
        low = rate - np.sqrt(2 * below * rate)
        high = rate + above / 3 + np.sqrt(np.square(above / 3) + 2 * above * rate)
        return integer_quantile(self.cdf, level, np.maximum(low, 0), high)

    def sample(self, random):
        """Sample counts from every draw."""
        return random.poisson(self.rate).astype(self.rate.dtype)

    def rescaled(self, shift, factor):
        """Raise an error: counts have no other units."""
        raise TypeError(NO_OTHER_UNITS)

    def mixture_quantile(self, level):
        """Quantile of the mixture, bracketed by the lowest and highest rates."""
        level = np.broadcast_to(level, self.rate.shape[1:])
        extremes = Counts(np.stack([self.rate.min(0), self.rate.max(0)]))
        return integer_quantile(self.mixture_cdf, level, *extremes.quantile(level))


def _count(y):
    """The largest count <= y, clipped to the range in which pdtr is accurate."""
    return np.floor(np.clip(y, 0, 1e18))


@dataclass(frozen=True)
class Poisson(Tempered):
    """Poisson distribution of counts; its variance equals its mean."""

    name = "poisson"
    standardizes_y = False
    components_class = Counts

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
                "`y` must contain integers from 0 to 1e12 for likelihood='poisson'; "
                f"got {y[invalid][0]:g} in row {np.flatnonzero(invalid.any(1))[0]}. "
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
