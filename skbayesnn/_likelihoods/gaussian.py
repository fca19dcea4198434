"""Gaussian likelihoods N(y; f, 1 / tau), homoscedastic and heteroscedastic.

**Variance of predictions.** Held-out rows estimate the variance that predictions use,
or its level where it depends on the row. The estimate maximises the density of these
rows under the exact mixture of T posterior draws:

      sum_n w_n max(log mean_t N(y_n; f_tn, s^2 v_tn), c) + log N(log s; 0, 0.5^2)

f_tn and v_tn are mean and noise variance of draw t at row n, s is a factor on the
standard deviation, and c is 30 nats below most rows. A normal approximation to the
draws is not enough: under dropout a few draws are far out, their variance covers the
residuals by itself, and the noise is underestimated. Networks that are fitted to
different folds have learned different levels: v_tn is in units of each network's level,
times the mean level of all. The parameters hold a factor on 1 / tau, within the bounds
of tau.

**Heteroscedastic noise.** The network has two outputs per target: the mean and s. The
log variance is

    log sigma^2(x) = -log tau + gain * bounded(s(x))

with tau the precision of the homoscedastic model (given or learned). ``gain`` is 0 in
the first quarter of the training, rises linearly to 1 in the second and stays there: if
mean and noise are learned together from the start, rows that are hard to fit are
explained as noise, and the mean underfits (Seitzer et al. 2022, arXiv 2203.09168). The
standard deviation of the noise is bounded by the range of y in the training rows (or
e^1.5 times that of tau, if larger): far from these rows s is extrapolated, and the
variance is its exponential.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from torch.nn.functional import softplus

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._distributions.map_factor import (
    log_mean_exp,
    map_factor,
    without_outliers,
)
from skbayesnn._likelihoods.base import (
    LARGEST_LOG_TAU,
    SMALLEST_LOG_TAU,
    Params,
    Precision,
    check_same_shape,
)

# ---- a variance of predictions that differs from that of the training

# The range of factors on the standard deviation, and by how many nats a row is an
# outlier: more than for a mixture of networks, which has tails (docs/defaults.md,
# "Observation noise").
FACTORS, OUTLIER = (1e-4, 1e4), 30.0


@dataclass(frozen=True)
class ScaledPrecision(Precision):
    """See the module."""

    @property
    def predictive_params(self):
        """The factor, where the noise is learned."""
        return ("log_factor",) if self.learned else ()

    def with_predictive_params(self, params, noise):
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
        return self.with_predictive_params(params, {"log_factor": log_factor[:, 0]})

    def log_noise_factor(self, params: Params) -> torch.Tensor | float:
        """Log of what ``with_predictive_params`` says, (members, 1, targets), or 0."""
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

    def fit_predictive_params(self, draws, weights):
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


# ---- homoscedastic noise


@dataclass(frozen=True)
class Gaussian(ScaledPrecision):
    """Noise that is the same for all rows."""

    name = "gaussian"
    components_class = Gaussians

    @property
    def n_outputs(self):
        """Outputs of the network: one mean per target."""
        return self.n_targets

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        return gaussian_nll(outputs, self.log_tau(params), y)

    def nll_vjp(self, params, outputs, y):
        """By hand: it is most of a small network's step."""
        log_tau = self.log_tau(params)
        tau = log_tau.exp()
        residual = outputs - y
        scaled = tau * residual
        squares = scaled * residual
        twice = _over_targets(squares) - _over_targets(log_tau)
        constant = _number(self.n_targets * HALF_LOG_2PI, twice)
        nll = torch.add(constant, twice, alpha=0.5)

        def pullback(gradient):
            gradient = gradient.unsqueeze(-1)
            of_outputs = scaled * gradient
            if not self.learned:
                return of_outputs, {}
            inside = params["log_tau"] == log_tau.squeeze(1)
            of_log_tau = (squares - _number(1.0, squares)).mul_(gradient).sum(1)
            of_log_tau.mul_(inside).mul_(_number(0.5, squares))
            return of_outputs, {"log_tau": of_log_tau}

        return nll, pullback

    @property
    def gaussian_targets(self):
        """All of them."""
        return self.n_targets

    def noise_slope(self, params, outputs, noise):
        """That of -tau f (noise / sqrt(tau))."""
        return -(0.5 * self.log_tau(params)).exp() * noise

    def components(self, params, outputs):
        """Mean and noise variance of every draw, (draws, members, rows, targets)."""
        variance = self.predictive_log_tau(params).neg().exp()
        return outputs, variance.expand_as(outputs)


def _number(value: float, like: torch.Tensor) -> torch.Tensor:
    """A number as a tensor, which costs a small product half as much."""
    return _cached_number(value, like.dtype, like.device)


@lru_cache(maxsize=64)
def _cached_number(value, dtype, device):
    return torch.tensor(value, dtype=dtype, device=device)


def _over_targets(values: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis; for one target a view of it."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.sum(-1)


def gaussian_nll(
    mean: torch.Tensor, log_tau: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """-log N(y; mean, 1 / tau), summed over the last axis (targets).

    mean : (..., rows, targets); log_tau, y : of shapes that broadcast against it
    """
    check_same_shape(mean, y)
    squares = (0.5 * log_tau.exp() * (y - mean).square()).sum(-1)
    return squares + (HALF_LOG_2PI - 0.5 * log_tau).sum(-1)


# ---- heteroscedastic noise

WARM_UP = 0.25  # share of the training that is homoscedastic; the ramp is as long

# |log sigma^2(x) + log tau| stays below this: a noise std of e^-4 to e^4 times the
# homoscedastic one, four decades in variance on either side.
LOG_VARIANCE_RANGE = 8.0
# Of a noise that depends on the input, where tau is learned or given.
LARGEST_LOG_PRECISION = LARGEST_LOG_TAU + math.log(10.0)
# Stands for no bound on a log variance.
UNBOUNDED = 60.0
# The bound on a log variance is at least so far above -log tau, which it does not move.
ABOVE_TAU = 3.0


def bounded(s: torch.Tensor) -> torch.Tensor:
    """An output as what it adds to a log variance, near 0 as it is."""
    return LOG_VARIANCE_RANGE * torch.tanh(s / LOG_VARIANCE_RANGE)


def not_below(values: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """The larger one, smoothly: equal to ``values`` from 3 above ``lowest`` on."""
    return lowest + softplus(values - lowest, beta=8.0)


@dataclass(frozen=True)
class Heteroscedastic(ScaledPrecision):
    """See the module."""

    name = "heteroscedastic"
    row_noise = True
    components_class = Gaussians

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: mean and s per target, the means first."""
        return 2 * self.n_targets

    def statistics(self, y, weights):
        """The range of y, (targets,)."""
        return np.ptp(y, axis=0)

    def init(self, tau, statistics=None):
        """tau : (members, targets), the given precision, or where learning starts;
        statistics : (members, targets), the range of y; None: without bounds
        """
        largest = torch.full_like(tau, UNBOUNDED)
        if statistics is not None and statistics.numel():
            # A tau that is given holds, however wide.
            largest = torch.maximum(2 * statistics.log(), ABOVE_TAU - tau.log())
        return {
            "log_tau": tau.log(),
            "gain": torch.zeros_like(tau[:, :1]),
            "largest_log_variance": largest,
        }

    def schedule(self, params, progress):
        """Set the gain; progress is the share of the training done, in [0, 1]."""
        gain = min(max(progress / WARM_UP - 1.0, 0.0), 1.0)
        params["gain"].fill_(gain)

    def split(self, params, outputs):
        """outputs (..., members, rows, 2 targets) -> mean and log tau(x)."""
        mean, s = outputs.split(self.n_targets, dim=-1)
        log_tau = self.log_tau(params) - params["gain"].unsqueeze(1) * bounded(s)
        log_tau = log_tau.clamp(max=LARGEST_LOG_PRECISION)
        return mean, not_below(log_tau, -params["largest_log_variance"].unsqueeze(1))

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        mean, log_tau = self.split(params, outputs)
        return gaussian_nll(mean, log_tau, y)

    @property
    def gaussian_targets(self):
        """All of them."""
        return self.n_targets

    def noise_slope(self, params, outputs, noise):
        """That of the means; s is not told of it."""
        _, log_tau = self.split(params, outputs)
        of_mean = -(0.5 * log_tau).exp() * noise
        return torch.cat([of_mean, torch.zeros_like(of_mean)], dim=-1)

    def components(self, params, outputs):
        """Mean and noise variance of every draw, (draws, members, rows, targets)."""
        mean, log_tau = self.split(params, outputs)
        return mean, (self.log_noise_factor(params) - log_tau).exp()
