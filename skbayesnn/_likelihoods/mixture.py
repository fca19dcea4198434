"""Mixture density network: multimodal or skewed noise [Bishop 1994].

Per target the network has 3 K outputs, logits a, locations f and s of K Gaussians:

    p(y | x) = sum_k softmax(a(x))_k N(y; f_k(x) + centre_k, sigma_k^2(x))
    log sigma_k^2(x) = -log tau + bounded(s_k(x))

with tau the overall level of the precision, given or learned. The centres are constants
spread over the range of y. Without them the Gaussians would start equal and separate
slowly.

Overfitted Gaussians are too narrow for some rows. Predictions therefore add a variance
to every Gaussian, which maximises the density of held-out rows. A factor instead would
widen the wide Gaussians as well.
"""

import math
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
import torch
from scipy.special import logsumexp

from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._distributions.map_factor import map_estimate
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._likelihoods.base import MIN_NOISE, Precision, check_same_shape
from skbayesnn._likelihoods.gaussian import MAX_LOG_PRECISION, bounded


@dataclass(frozen=True)
class Mixture(Precision):
    """A Gaussian mixture per row and target (see the module docstring).

    n_components : K, at least 2
    """

    name = "mixture"
    row_noise = True
    components_class = GaussianMixtures

    n_components: int = 3

    def __post_init__(self):
        n = self.n_components
        if isinstance(n, bool) or not isinstance(n, Integral):
            raise TypeError(f"`n_components` must be an integer; got {n!r}.")
        if n < 2:
            raise ValueError(
                f"`n_components` must be >= 2; got {n}. For one Gaussian, use "
                "likelihood='heteroscedastic'."
            )
        # A plain int for ``describe``; parameter grids may contain NumPy types.
        object.__setattr__(self, "n_components", int(n))

    @property
    def n_outputs(self):
        """Outputs of the network: all logits, then all locations, then all s."""
        return 3 * self.n_targets * self.n_components

    def init(self, tau, statistics=None):
        """Initial parameters; the centres, (members, K), are normal quantiles."""
        levels = (torch.arange(self.n_components).to(tau) + 0.5) / self.n_components
        centres = torch.special.ndtri(levels).repeat(len(tau), 1)
        return super().init(tau) | {"centres": centres}

    def split(self, params, outputs):
        """Log weights, locations and log precisions, (..., members, rows, targets, K).

        outputs : (..., members, rows, 3 targets K)
        """
        shape = 3, self.n_targets, self.n_components
        parts = outputs.unflatten(-1, shape)
        logits, location, s = (parts[..., i, :, :] for i in range(3))
        log_tau = self.log_tau(params).unsqueeze(-1) - bounded(s)
        return (
            logits.log_softmax(-1),
            location + params["centres"][:, None, None],
            log_tau.clamp(max=MAX_LOG_PRECISION),
        )

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        log_weight, location, log_tau = self.split(params, outputs)
        check_same_shape(location[..., 0], y)
        squares = log_tau.exp() * (y.unsqueeze(-1) - location).square()
        density = log_weight + 0.5 * (log_tau - squares) - HALF_LOG_2PI
        return -density.logsumexp(-1).sum(-1)

    @property
    def predictive_params(self):
        """The log of the variance added to every Gaussian, if tau is learned."""
        return ("log_added",) if self.learned else ()

    def predictive_log_tau(self, params):
        """Log precision of predictions, including the added variance."""
        log_tau = self.log_tau(params)
        if "log_added" not in params:
            return log_tau
        return -torch.logaddexp(-log_tau, params["log_added"].unsqueeze(1))

    def components(self, params, outputs):
        """Weights, locations and scales, (draws, members, rows, targets, K) each."""
        log_weight, location, log_tau = self.split(params, outputs)
        log_variance = -log_tau
        if "log_added" in params:
            log_added = params["log_added"][:, None, :, None]
            log_variance = torch.logaddexp(log_variance, log_added)
        return log_weight.exp(), location, (0.5 * log_variance).exp()

    def held_out_draws(self, params, outputs, y):
        """Weights, residuals and scales of the Gaussians of every draw.

        returns : (members, rows, 3, draws, K, targets)
        """
        weight, location, scale = self.components(params, outputs)
        fields = torch.stack([weight, y.unsqueeze(-1) - location, scale])
        return fields.permute(2, 3, 0, 1, 5, 4)

    def fit_predictive_params(self, draws, weights):
        """Estimate the added variance on held-out rows.

        draws : results of ``held_out_draws``, (rows, 3, draws, K, targets)
        """
        densities, log_added = [], []
        for target_draws in draws.transpose(4, 1, 2, 3, 0):
            density = partial(_log_density_widened, target_draws)
            of_target, estimate = _fit_log_added(density, target_draws, weights)
            densities.append(of_target)
            log_added.append(estimate)
        return np.stack(densities, axis=1), {"log_added": np.array(log_added)}


def _fit_log_added(
    density, draws: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """Log of the added variance that maximises the density of the rows.

    It is at most the mean square of the residuals.

    returns : as ``map_estimate``
    """
    weight, residual, _ = draws
    mean_residual = (weight * residual).sum(1).mean(0)
    min_variance = MIN_NOISE**2
    max_variance = max(
        np.average(np.square(mean_residual), weights=weights), min_variance
    )
    low, high = math.log(min_variance), math.log(max_variance)
    return map_estimate(
        density, weights, low, high, log_prior=lambda log_added: 0.0, start=low
    )


def _log_density_widened(draws: np.ndarray, log_added: float) -> np.ndarray:
    """Log density of every row, with a variance added to every Gaussian.

    draws : (3, draws, K, rows)
    """
    weight, residual, scale = draws
    variance = np.square(scale) + np.exp(log_added)
    density = -0.5 * (np.square(residual) / variance + np.log(variance)) - HALF_LOG_2PI
    return logsumexp(density, axis=(0, 1), b=weight / len(weight))
