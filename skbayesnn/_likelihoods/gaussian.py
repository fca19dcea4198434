"""Homoscedastic Gaussian likelihood N(y; f, 1 / tau), one precision per target."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from skbayesnn._distributions.gaussian import Gaussians
from skbayesnn._likelihoods.base import check_same_shape
from skbayesnn._likelihoods.scaled import ScaledPrecision

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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
