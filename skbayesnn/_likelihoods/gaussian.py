"""Gaussian likelihoods N(y; f, 1 / tau), homoscedastic and heteroscedastic.

**Variance of predictions.** The noise variance that predictions use, or its level if it
depends on the row, is estimated on held-out rows. The estimate maximises the density of
these rows under the exact mixture of T posterior draws:

      sum_n w_n max(log mean_t N(y_n; f_tn, s^2 v_tn), c) + log N(log s; 0, 0.5^2)

f_tn and v_tn are mean and noise variance of draw t at row n, s is a factor on the
standard deviation, and c is 30 nats below most rows. A normal approximation of the
draws would not be enough: under dropout a few draws are far away, their variance alone
explains the residuals, and the noise would be underestimated. The estimate is stored as
a factor on 1 / tau, within the bounds of tau.

If all rows have the same noise, v_tn is the mean level of the networks, whose folds
differ, and the estimate is the variance s^2 v. If the noise depends on the row, the
estimate is the factor s^2: 1 / tau alone is not identified, since a constant in s(x)
makes up for any change of tau, and the networks of two folds differ in it.

**Heteroscedastic noise.** The network has two outputs per target: the mean and s. The
log variance is

    log sigma^2(x) = -log tau + gain * bounded(s(x))

with tau the precision of the homoscedastic model (given or learned). ``gain`` is 0 in
the first quarter of the training, rises linearly to 1 in the second, and then stays 1.
If mean and noise were learned together from the start, rows that are hard to fit would
be explained as noise, and the mean would underfit (Seitzer et al. 2022, arXiv
2203.09168). The noise std is bounded by the range of y in the training rows, or by
e^1.5 / sqrt(tau) if that is larger: far from these rows s is extrapolated, and the
variance is exponential in s.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.nn.functional import softplus

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._distributions.map_factor import density_of_noise_factor, map_estimate
from skbayesnn._likelihoods.base import (
    MAX_LOG_TAU,
    MIN_LOG_TAU,
    Params,
    Precision,
    check_same_shape,
)

# ---- a noise variance of predictions that differs from the training

# Bounds of the log factor on the standard deviation.
LOG_FACTOR_BOUNDS = math.log(1e-4), math.log(1e4)


@dataclass(frozen=True)
class GaussianPrecision(Precision):
    """Gaussian noise with a separate variance factor for predictions (see above)."""

    @property
    def predictive_params(self):
        """The log of the variance factor, if the noise is learned."""
        return ("log_factor",) if self.learned else ()

    def with_predictive_params(self, params, values):
        """Set the noise variance of predictions.

        values : "log_factor" (of 1 / tau) or "log_variance", (members, targets)
        """
        log_tau = self.log_tau(params)[:, 0]
        log_factor = values.get("log_factor")
        if log_factor is None:
            log_factor = values["log_variance"] + log_tau
        limits = log_tau - MAX_LOG_TAU, log_tau - MIN_LOG_TAU
        return params | {"log_factor": log_factor.clamp(*limits)}

    def copy_predictive_params(self, params, source):
        """Copy the noise variance of predictions; the factor differs if tau does."""
        if "log_factor" not in source:
            return params
        log_factor = self.log_tau(params) - self.predictive_log_tau(source)
        return self.with_predictive_params(params, {"log_factor": log_factor[:, 0]})

    def log_noise_factor(self, params: Params) -> torch.Tensor | float:
        """Log of the variance factor, (members, 1, targets), or 0 without a factor."""
        return params["log_factor"].unsqueeze(1) if "log_factor" in params else 0.0

    def predictive_log_tau(self, params):
        """Log precision of predictions, (members, 1, targets)."""
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
        """Estimate the noise variance on held-out rows.

        draws : residuals, noise variances and levels, (rows, 3, draws, targets)
        """
        residual, _, level = draws.swapaxes(0, 1)
        log_level = np.average(np.log(level[:, 0]), axis=0, weights=weights)
        variance = np.broadcast_to(np.exp(log_level), residual.shape)
        densities = map(density_of_noise_factor, residual.T, variance.T)
        density, log_factor = fit_factor(densities, weights)
        return density, {"log_variance": log_level + log_factor}


def fit_factor(
    densities: Iterable[Callable[[float], np.ndarray]], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the factor on the noise variance of every target.

    densities : of each target, a function of the log factor of the noise std that
        returns the log density of every row
    returns : log densities (rows, targets), nats, clipped for outliers; and the logs of
        the factors, (targets,)
    """
    bounds = LOG_FACTOR_BOUNDS
    fits = [map_estimate(density, weights, *bounds) for density in densities]
    of_rows, log_stds = zip(*fits, strict=True)
    return np.stack(of_rows, axis=1), 2 * np.array(log_stds)


# ---- homoscedastic noise


@dataclass(frozen=True)
class Gaussian(GaussianPrecision):
    """Gaussian noise with the same variance for all rows."""

    name = "gaussian"
    equal_noise = True
    components_class = Gaussians

    @property
    def n_outputs(self):
        """Outputs of the network: one mean per target."""
        return self.n_targets

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        return gaussian_nll(outputs, self.log_tau(params), y)

    def nll_vjp(self, params, outputs, y):
        """``nll`` and its pullback without autograd, which is faster."""
        log_tau = self.log_tau(params)
        tau = log_tau.exp()
        residual = outputs - y
        scaled = tau * residual
        squares = scaled * residual
        twice_nll = _sum_targets(squares) - _sum_targets(log_tau)
        constant = _scalar(self.n_targets * HALF_LOG_2PI, twice_nll)
        nll = torch.add(constant, twice_nll, alpha=0.5)

        def pullback(gradient):
            gradient = gradient.unsqueeze(-1)
            grad_outputs = scaled * gradient
            if not self.learned:
                return grad_outputs, {}
            is_within_bounds = params["log_tau"] == log_tau.squeeze(1)
            grad_log_tau = (squares - _scalar(1.0, squares)).mul_(gradient).sum(1)
            grad_log_tau.mul_(is_within_bounds).mul_(_scalar(0.5, squares))
            return grad_outputs, {"log_tau": grad_log_tau}

        return nll, pullback

    @property
    def gaussian_targets(self):
        return self.n_targets

    def perturbation_slope(self, params, outputs, perturbation):
        """Gradient of -tau f (perturbation / sqrt(tau)) in f."""
        return -(0.5 * self.log_tau(params)).exp() * perturbation

    def components(self, params, outputs):
        """Mean and noise variance of every draw, (draws, members, rows, targets)."""
        variance = self.predictive_log_tau(params).neg().exp()
        return outputs, variance.expand_as(outputs)


def _scalar(value: float, like: torch.Tensor) -> torch.Tensor:
    """A scalar as a tensor, which halves the cost of a small product."""
    return _cached_scalar(value, like.dtype, like.device)


@lru_cache(maxsize=64)
def _cached_scalar(value, dtype, device):
    return torch.tensor(value, dtype=dtype, device=device)


def _sum_targets(values: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis; for one target, a view."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.sum(-1)


def gaussian_nll(
    mean: torch.Tensor, log_tau: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """-log N(y; mean, 1 / tau), summed over the last axis (targets).

    mean : (..., rows, targets); log_tau, y : shapes that broadcast with it
    """
    check_same_shape(mean, y)
    squares = (0.5 * log_tau.exp() * (y - mean).square()).sum(-1)
    return squares + (HALF_LOG_2PI - 0.5 * log_tau).sum(-1)


# ---- heteroscedastic noise

WARM_UP = 0.25  # share of the training that is homoscedastic; the ramp is as long

# Bound of |log sigma^2(x) + log tau|: the noise std is e^-4 to e^4 times the
# homoscedastic one.
LOG_VARIANCE_RANGE = 8.0
# Bound of the log precision of a row, whether tau is learned or given.
MAX_LOG_PRECISION = MAX_LOG_TAU + math.log(10.0)
# Value of the bound of a log variance that means unbounded.
UNBOUNDED = 60.0
# The bound of a log variance is at least this far above -log tau, so that it does not
# change -log tau.
MIN_LOG_VARIANCE_RANGE = 3.0
# Sharpness of the smooth maximum of the log precision and its lowest value. It equals
# the maximum where sharpness times difference is above the second, as in torch.
SHARPNESS, SOFTPLUS_LINEAR_FROM = 8.0, 20.0


def bounded(s: torch.Tensor) -> torch.Tensor:
    """Bound s smoothly to +-``LOG_VARIANCE_RANGE``; the identity near 0."""
    return LOG_VARIANCE_RANGE * torch.tanh(s / LOG_VARIANCE_RANGE)


def smooth_max(values: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """Smooth maximum of the two; equal to ``values`` if 3 or more above ``lowest``."""
    return lowest + softplus(
        values - lowest, beta=SHARPNESS, threshold=SOFTPLUS_LINEAR_FROM
    )


@dataclass(frozen=True)
class Heteroscedastic(GaussianPrecision):
    """Gaussian noise whose variance depends on the row (see the module docstring)."""

    name = "heteroscedastic"
    row_noise = True
    components_class = Gaussians

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: all means, then s of each target."""
        return 2 * self.n_targets

    def statistics(self, y, weights):
        """Range of y, (targets,)."""
        return np.ptp(y, axis=0)

    def init(self, tau, statistics=None):
        """Initial parameters, with tau (members, targets) given or learned.

        statistics : range of y, (members, targets); None: the variance is unbounded
        """
        largest_log_variance = torch.full_like(tau, UNBOUNDED)
        if statistics is not None and statistics.numel():
            # A given tau is respected, however small it is.
            largest_log_variance = torch.maximum(
                2 * statistics.log(), MIN_LOG_VARIANCE_RANGE - tau.log()
            )
        return {
            "log_tau": tau.log(),
            "gain": torch.zeros_like(tau[:, :1]),
            "largest_log_variance": largest_log_variance,
        }

    def schedule(self, params, progress):
        """Set the gain; progress is the share of the training done, in [0, 1]."""
        params["gain"].fill_(float(self.gain_at(progress)))

    @staticmethod
    def gain_at(progress):
        """The gain after shares of the training, in [0, 1]; a number or an array."""
        return np.clip(progress / WARM_UP - 1.0, 0.0, 1.0)

    def split(self, params, outputs):
        """Mean and log tau(x) from outputs (..., members, rows, 2 targets)."""
        mean, s = outputs[..., : self.n_targets], outputs[..., self.n_targets :]
        log_tau = self.log_tau(params) - params["gain"].unsqueeze(1) * bounded(s)
        log_tau = log_tau.clamp(max=MAX_LOG_PRECISION)
        return mean, smooth_max(log_tau, -params["largest_log_variance"].unsqueeze(1))

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        mean, log_tau = self.split(params, outputs)
        return gaussian_nll(mean, log_tau, y)

    @property
    def gaussian_targets(self):
        return self.n_targets

    def perturbation_slope(self, params, outputs, perturbation):
        """Gradient in the means; the gradient in s is zero."""
        _, log_tau = self.split(params, outputs)
        grad_mean = -(0.5 * log_tau).exp() * perturbation
        return torch.cat([grad_mean, torch.zeros_like(grad_mean)], dim=-1)

    def fit_predictive_params(self, draws, weights):
        """Estimate the factor on the noise variance on held-out rows.

        draws : residuals, noise variances and levels, (rows, 3, draws, targets)
        """
        residual, variance, _ = draws.swapaxes(0, 1)
        densities = map(density_of_noise_factor, residual.T, variance.T)
        density, log_factor = fit_factor(densities, weights)
        return density, {"log_factor": log_factor}

    def components(self, params, outputs):
        """Mean and noise variance of every draw, (draws, members, rows, targets)."""
        mean, log_tau = self.split(params, outputs)
        return mean, (self.log_noise_factor(params) - log_tau).exp()
