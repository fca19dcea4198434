"""Poisson likelihood of counts with a log link: y ~ Poisson(exp(f + offset)).

The offset is the log of the training rows' mean count, so that f starts and is shrunk
towards the mean, as that of a standardised target. tau tempers the likelihood, as it
does for classes; predictions have no tau. [McCullagh & Nelder 1989, "Generalized linear
models", ch. 6]
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import gammaln, pdtr, xlogy

from skbayesnn._distributions.components import NO_OTHER_UNITS, Components
from skbayesnn._distributions.quantiles import integer_quantile
from skbayesnn._likelihoods.base import Tempered, check_same_shape

# f + offset counts as the nearest of these outside: rates of 1e-13 to 1e13, whose
# squares (Adam's) do not overflow in float32, however far from the data.
LOG_RATE_BOUNDS = (-30.0, 30.0)
# So that no mean lies outside of them.
LARGEST_COUNT = 1e12
# A target without any event starts at half an event in all rows, one of mean weight.
FEWEST_EVENTS = 0.5


@dataclass(frozen=True)
class Counts(Components):
    """Poisson distributions, rates of shape (draws, rows, targets)."""

    discrete = True

    rate: np.ndarray

    @property
    def mean(self):
        """The rate."""
        return self.rate

    @property
    def variance(self):
        """The rate."""
        return self.rate

    def log_density_per_target(self, y):
        """log P(Y = y), -inf where y is no count."""
        rate, count = self.rate.astype(np.float64), _count(y)
        log_p = xlogy(count, rate) - rate - gammaln(count + 1)
        return np.where(count == y, log_p, -np.inf)

    def cdf(self, y):
        """P(Y <= y)."""
        share = pdtr(_count(y), self.rate.astype(np.float64))
        return np.where(y < 0, 0.0, share)

    def quantile(self, level):
        """The smallest count that reaches the level, of every draw by itself."""
        rate = self.rate.astype(np.float64)
        # Bernstein's bounds of the two tails, equal to the level or to what is left.
        below, above = -np.log(level), -np.log1p(-level)
        low = rate - np.sqrt(2 * below * rate)
        high = rate + above / 3 + np.sqrt(np.square(above / 3) + 2 * above * rate)
        return integer_quantile(self.cdf, level, np.maximum(low, 0), high)

    def sample(self, random):
        """Counts."""
        return random.poisson(self.rate).astype(self.rate.dtype)

    def rescaled(self, shift, factor):
        """Refused."""
        raise TypeError(NO_OTHER_UNITS)

    def mixture_quantile(self, level):
        """Between those of the lowest and of the highest rate."""
        level = np.broadcast_to(level, self.rate.shape[1:])
        ends = Counts(np.stack([self.rate.min(0), self.rate.max(0)]))
        return integer_quantile(self.mixture_cdf, level, *ends.quantile(level))


def _count(y):
    """The count at or below y, within those whose probability can be computed."""
    return np.floor(np.clip(y, 0, 1e18))


@dataclass(frozen=True)
class Poisson(Tempered):
    """Counts, whose variance is their mean."""

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
        """Whole numbers from 0 on."""
        wrong = (y < 0) | (y != np.floor(y)) | (y > LARGEST_COUNT)
        if wrong.any():
            raise ValueError(
                "`y` must hold whole numbers from 0 to 1e12 for likelihood='poisson'; "
                f"got {y[wrong][0]:g} in row {np.flatnonzero(wrong.any(1))[0]}. Give "
                "counts, or take 'gaussian' or 'student_t' for other numbers."
            )

    def statistics(self, y, weights):
        """Log of the weighted mean of y, (targets,)."""
        events = np.maximum(weights @ y, FEWEST_EVENTS * weights.mean())
        return np.log(events / weights.sum())

    def init(self, tau, statistics=None):
        """tau : (members, 1 or targets), the inverse temperature."""
        assert statistics is not None, "the offset is the log of the mean of y"
        return super().init(tau) | {"offset": statistics}

    def log_rate(self, params, outputs):
        """f + offset within the bounds, (..., members, rows, targets)."""
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
