"""Gaussian components, and what is faster or exact for a mixture of these."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from skbayesnn._distributions.base import Components
from skbayesnn._distributions.crps import HALF_LOG_2PI, gaussian_mixture_crps
from skbayesnn._distributions.quantiles import mixture_cdf, mixture_quantile


@dataclass(frozen=True)
class Gaussians(Components):
    """N(mean, variance), arrays of shape (draws, rows, targets)."""

    mean: np.ndarray
    variance: np.ndarray

    def log_density_per_target(self, y):
        """log N(y; mean, variance)."""
        squares = np.square(y - self.mean.astype(np.float64)) / self.variance
        return -(0.5 * (squares + np.log(self.variance)) + HALF_LOG_2PI)

    def cdf(self, y):
        """P(Y <= y)."""
        return ndtr((y - self.mean) / np.sqrt(self.variance))

    def quantile(self, level):
        """Of every draw by itself."""
        return self.mean + np.sqrt(self.variance) * ndtri(level)

    def sample(self, random):
        """Means with noise."""
        noise = random.standard_normal(self.mean.shape, dtype=self.mean.dtype)
        return self.mean + np.sqrt(self.variance) * noise

    def rescaled(self, shift, factor):
        """Of shift + factor y."""
        return Gaussians(self.mean * factor + shift, self.variance * np.square(factor))

    def spread(self, centre, factor, bound=np.inf):
        """Of centre + factor (y - centre)."""
        mean = self._spread_mean(centre, factor, bound)
        return Gaussians(mean, np.square(factor) * self.variance)

    def mixture_cdf(self, y):
        """By torch's error function, the faster one."""
        return mixture_cdf(self.mean, self.variance, y)

    def mixture_quantile(self, level):
        """By Newton's method on the probit scale, where F is nearly straight."""
        return mixture_quantile(self.mean, self.variance, level)

    def mixture_crps(self, y):
        """The closed form [Grimit et al. 2006]."""
        return gaussian_mixture_crps(y, self.mean, self.variance)

    def nodes(self, n):
        """Gauss-Hermite."""
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        spread = np.multiply.outer(points, np.sqrt(self.variance))
        return self.mean + spread, weights / weights.sum()


def gaussian_log_density(mean, variance, y):
    """log N(y; mean, variance) summed over targets: (draws, rows), nats.

    mean, variance : (draws, rows, targets); y : (rows, targets)
    """
    return Gaussians(mean, variance).log_density(y)
