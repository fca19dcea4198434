"""Noise that is, in predictions, the one of the training but for a factor.

The factor is on the variance, and is kept beside tau, within the same limits. Rows that
are held out tell it: draws and noise are taken for normal, v is the variance of the
noise as it was trained, and

      sum_n w_n max(log N(y_n; E f_n, var f_n + s^2 v_n), c) + log N(log s; 0, 0.5^2)

is maximised in the factor s on the std of the noise; c is 30 nats below most rows. The
noise is not made sharper than a kernel on the draws would be.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from skbayesnn._distributions.likeliest import (
    map_factor,
    median,
    without_outliers,
)
from skbayesnn._likelihoods.base import (
    LARGEST_LOG_TAU,
    SMALLEST_LOG_TAU,
    Params,
    Precision,
)

# Of the noise's std, that are looked at, and by how many nats a row is an outlier: more
# than of a mixture of networks, which has tails (benchmarks/STUDY.md).
FACTORS, OUTLIER = (1e-4, 1e4), 30.0
# The noise's std in units of the draws' at least, as of a kernel on 200 normal draws
# [Silverman 1986, eq. 3.28]: sharper ones leave gaps between draws.
BANDWIDTH = 1.06 * 200**-0.2


@dataclass(frozen=True)
class ScaledPrecision(Precision):
    """See the module."""

    @property
    def noise_of_predictions(self):
        """The factor, where the noise is learned."""
        return ("log_factor",) if self.learned else ()

    def with_noise(self, params, noise):
        """noise : log of the factor on the variance, (members, targets)"""
        log_tau = self.log_tau(params)[:, 0]
        limits = log_tau - LARGEST_LOG_TAU, log_tau - SMALLEST_LOG_TAU
        return params | {"log_factor": noise["log_factor"].clamp(*limits)}

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

    def likeliest_noise(self, moments, weights):
        """moments : residuals, and the variance of the draws and of the noise"""
        densities, factors = [], []
        for of_target in np.moveaxis(moments, 2, 0):
            density = partial(_log_density_scaled, of_target)
            least, most = FACTORS
            least = np.clip(_smooth_factor(of_target, weights), least, most)
            factor = map_factor(density, weights, least, most, OUTLIER)
            found = density(np.log(factor))
            densities.append(without_outliers(found, weights, OUTLIER))
            factors.append(factor)
        return np.stack(densities, axis=1), {"log_factor": 2 * np.log(factors)}


def _smooth_factor(moments: np.ndarray, weights: np.ndarray) -> float:
    """Of the noise under which the density of most rows' draws is smooth."""
    _, of_draws, of_noise = moments
    return BANDWIDTH * np.sqrt(median(of_draws / of_noise, weights))


def _log_density_scaled(moments: np.ndarray, log_factor: float) -> np.ndarray:
    """Of every row (3, rows), with the std of the noise times a factor."""
    residual, of_draws, of_noise = moments
    variance = of_draws + of_noise * np.exp(2 * log_factor)
    return -0.5 * (np.square(residual) / variance + np.log(2 * np.pi * variance))
