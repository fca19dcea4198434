"""Gaussian noise whose level in predictions is not that of the training.

Held-out rows estimate the level: the variance, or what it varies about where it depends
on the row. The estimate maximises the density that the predictive distribution gives
these rows, the exact mixture of T posterior draws:

      sum_n w_n max(log mean_t N(y_n; f_tn, s^2 v_tn), c) + log N(log s; 0, 0.5^2)

f_tn and v_tn are mean and noise variance of draw t at row n, s is a factor on the
standard deviation, and c is 30 nats below most rows. A normal approximation to the
draws would not do: under dropout a few draws lie far out, their variance covers the
residuals by itself, and the noise then comes out too small.

Networks that are fitted to other rows have learned other levels: v_tn is in units of
each network's level, times the mean level of all. The parameters hold a factor on
1 / tau, within the limits of tau.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._distributions.likeliest import (
    log_mean_exp,
    map_factor,
    without_outliers,
)
from skbayesnn._likelihoods.base import (
    LARGEST_LOG_TAU,
    SMALLEST_LOG_TAU,
    Params,
    Precision,
)

# The range of factors on the standard deviation, and by how many nats a row is an
# outlier: more than for a mixture of networks, which has tails (benchmarks/STUDY.md).
FACTORS, OUTLIER = (1e-4, 1e4), 30.0


@dataclass(frozen=True)
class ScaledPrecision(Precision):
    """See the module."""

    @property
    def noise_of_predictions(self):
        """The factor, where the noise is learned."""
        return ("log_factor",) if self.learned else ()

    def with_noise(self, params, noise):
        """noise : log of a factor on the variance, or of the variance itself

        "log_factor" or "log_variance", (members, targets).
        """
        log_tau = self.log_tau(params)[:, 0]
        log_factor = noise.get("log_factor")
        if log_factor is None:
            log_factor = noise["log_variance"] + log_tau
        limits = log_tau - LARGEST_LOG_TAU, log_tau - SMALLEST_LOG_TAU
        return params | {"log_factor": log_factor.clamp(*limits)}

    def with_noise_of(self, params, others):
        """By another factor, since tau is another."""
        if "log_factor" not in others:
            return params
        log_factor = self.log_tau(params) - self.predictive_log_tau(others)
        return self.with_noise(params, {"log_factor": log_factor[:, 0]})

    def log_noise_factor(self, params: Params) -> torch.Tensor | float:
        """Log of what ``with_noise`` says, (members, 1, targets), or 0."""
        return params["log_factor"].unsqueeze(1) if "log_factor" in params else 0.0

    def predictive_log_tau(self, params):
        """With the factor."""
        return self.log_tau(params) - self.log_noise_factor(params)

    def held_out_draws(self, params, outputs, y):
        """Residuals, noise variances and noise levels, 1 / tau.

        returns : (members, rows, 3, draws, targets)
        """
        mean, variance = self.components(params, outputs)
        level = self.predictive_log_tau(params).neg().exp().expand_as(variance)
        fields = torch.stack([y - mean, variance, level])
        return fields.permute(2, 3, 0, 1, 4)

    def likeliest_noise(self, draws, weights):
        """draws : residuals, noise variances and levels, (rows, 3, draws, targets)"""
        densities, log_variance = [], []
        for residual, variance, level in draws.transpose(3, 1, 2, 0):
            log_level = np.average(np.log(level[0]), weights=weights)
            at_level = variance / level * np.exp(log_level)
            density = partial(
                _log_density_scaled,
                np.square(residual) / at_level,
                0.5 * np.log(at_level) + HALF_LOG_2PI,
            )
            factor = map_factor(density, weights, *FACTORS, OUTLIER)
            estimated = density(np.log(factor))
            densities.append(without_outliers(estimated, weights, OUTLIER))
            log_variance.append(log_level + 2 * np.log(factor))
        noise = {"log_variance": np.array(log_variance)}
        return np.stack(densities, axis=1), noise


def _log_density_scaled(
    squares: np.ndarray, constants: np.ndarray, log_factor: float
) -> np.ndarray:
    """Log density of every row, (rows,), with the std of the noise times a factor.

    squares : (draws, rows), squared residuals in units of the noise's variance
    constants : (draws, rows), logarithms of the normalising constants
    """
    density = squares * (-0.5 * np.exp(-2 * log_factor)) - constants
    return log_mean_exp(density) - log_factor
