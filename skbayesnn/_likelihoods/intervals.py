"""Gaussian noise of a latent value that is known to be in an interval.

Every row has an interval (low, high] of the latent value z, or low = high, a point
whose density counts. With a point mass, some rows have the value of the point mass:

    p(row) = [row is at the point mass] pi(x) + (1 - pi(x)) P(low < z <= high | x)

Censored rows, rounded values, floors and caps are such intervals (Tobin 1958,
Econometrica 26; Cragg 1971, Econometrica 39). ``_distributions/recorded.py`` has the
map from z to y.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import logsigmoid
from torch.special import log_ndtr

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._distributions.map_factor import log_mean_exp
from skbayesnn._distributions.recorded import Latents
from skbayesnn._likelihoods.base import Params, check_same_shape
from skbayesnn._likelihoods.gaussian import (
    GaussianPrecision,
    Heteroscedastic,
    fit_factor,
)

# In standardised units this stands for an infinite bound: results stay finite.
FAR = 1e6


def joined_intervals(
    low: np.ndarray, high: np.ndarray, is_point: np.ndarray
) -> np.ndarray:
    """y of these likelihoods, (rows, 3 targets), in the network's scale."""
    return np.concatenate(
        [low.clip(-FAR, FAR), high.clip(-FAR, FAR), is_point.astype(float)], axis=-1
    )


@dataclass(frozen=True)
class Intervals(GaussianPrecision):
    """Gaussian noise with the same variance for all rows.

    has_point : whether y has a point mass, with a probability that depends on the row
    """

    name = "interval_gaussian"
    of_intervals = True
    components_class = Latents

    has_point: bool = False

    @property
    def gaussian_targets(self):
        """None: the noise of y is not Gaussian."""
        return 0

    @property
    def _n_latent(self) -> int:
        """Outputs for the distribution of z."""
        return self.n_targets

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: of z, then the logit of each point mass."""
        return self._n_latent + self.has_point * self.n_targets

    def _latent(self, params: Params, outputs):
        """Mean and log precision of z, (..., members, rows, targets)."""
        return outputs, self.log_tau(params)

    def _split(self, params, outputs):
        """Mean and log precision of z, and the logit of the point mass or None."""
        n = self._n_latent
        mean, log_tau = self._latent(params, outputs[..., :n])
        return mean, log_tau, outputs[..., n:] if self.has_point else None

    def nll(self, params, outputs, y):
        """-log p(row), (..., members, rows); y : (members or 1, rows, 3 targets)."""
        mean, log_tau, logit = self._split(params, outputs)
        check_same_shape(mean, y[..., 2 * self.n_targets :])
        low, high, is_point = y.split(self.n_targets, dim=-1)
        root = (0.5 * log_tau).exp()
        is_exact = (low == high) & (is_point == 0)
        below, above = (low - mean) * root, (high - mean) * root
        exact = -0.5 * below.square() - HALF_LOG_2PI + 0.5 * log_tau
        inside = _log_interval(below, above, low < high).to(exact.dtype)
        density = torch.where(is_exact, exact, inside)
        if logit is not None:
            rest = logsigmoid(-logit) + density
            density = torch.where(
                is_point > 0, torch.logaddexp(logsigmoid(logit), rest), rest
            )
        return -density.sum(-1)

    def components(self, params, outputs):
        """Mean and variance of z, and the probability of the point mass."""
        mean, log_tau, logit = self._split(params, outputs)
        variance = (self.log_noise_factor(params) - log_tau).exp().expand_as(mean)
        probability = torch.zeros_like(mean) if logit is None else logit.sigmoid()
        return mean, variance, probability

    def held_out_draws(self, params, outputs, y):
        """Fields of ``_log_density``, and noise levels, 1 / tau.

        returns : (members, rows, 6, draws, targets)
        """
        mean, variance, probability = self.components(params, outputs)
        low, high, is_point = y.split(self.n_targets, dim=-1)
        level = self.predictive_log_tau(params).neg().exp().expand_as(variance)
        fields = [low - mean, high - mean, variance, probability]
        fields += [is_point.expand_as(mean), level]
        return torch.stack(fields).permute(2, 3, 0, 1, 4)

    def fit_predictive_params(self, draws, weights):
        """Estimate the noise variance on held-out rows."""
        level = draws[:, 5]
        log_level = np.average(np.log(level[:, 0]), axis=0, weights=weights)
        draws = draws.copy()
        draws[:, 2] = np.exp(log_level)
        density, log_factor = fit_factor(_densities(draws), weights)
        return density, {"log_variance": log_level + log_factor}


@dataclass(frozen=True)
class UnequalIntervals(Intervals, Heteroscedastic):
    """Gaussian noise whose variance depends on the row."""

    name = "interval_heteroscedastic"
    row_noise = True

    @property
    def _n_latent(self):
        return 2 * self.n_targets

    def _latent(self, params, outputs):
        return self.split(params, outputs)

    def fit_predictive_params(self, draws, weights):
        """Estimate the factor on the noise variance on held-out rows."""
        density, log_factor = fit_factor(_densities(draws), weights)
        return density, {"log_factor": log_factor}


def _log_interval(below, above, is_interval) -> torch.Tensor:
    """log P(below < z <= above) of a standard normal z, in double precision.

    -FAR where ``is_interval`` is false.
    """
    below = torch.where(is_interval, below, -1.0).double()
    above = torch.where(is_interval, above, 1.0).double()
    # By symmetry the interval may be mirrored to the lower tail, which has more digits.
    mirrored = below > -above
    start = log_ndtr(torch.where(mirrored, -above, below))
    end = log_ndtr(torch.where(mirrored, -below, above))
    # A narrow interval in the far tail must not have a probability of zero.
    share = -torch.expm1((start - end).clamp(max=-1e-14))
    return torch.where(is_interval, end + share.log(), -FAR)


def _densities(draws: np.ndarray) -> list[partial]:
    """Arguments of ``fit_factor``.

    draws : results of ``held_out_draws``, (rows, 6, draws, targets)
    """
    return [partial(_log_density, fields[:5]) for fields in draws.transpose(3, 1, 2, 0)]


def _log_density(fields: np.ndarray, log_factor: float) -> np.ndarray:
    """Log density of every row, (rows,), with the noise std times a factor.

    fields : (5, draws, rows): both bounds minus the mean, variance, probability of the
        point mass, and whether the row is at the point mass
    """
    low, high, variance, probability, is_point = fields
    noise = Gaussians(np.zeros_like(low), variance * np.exp(2 * log_factor))
    width = np.where(low < high, high - low, 1.0)
    density = noise.log_density_in(low, high) + np.log(width)
    if probability.any():
        with np.errstate(divide="ignore"):
            # A point mass may have no interval of z.
            rest = np.where((low == high) & (is_point > 0), 0.0, 1 - probability)
            at_point = np.where(is_point > 0, probability, 0.0)
            density = np.logaddexp(density + np.log(rest), np.log(at_point))
    return log_mean_exp(density)
