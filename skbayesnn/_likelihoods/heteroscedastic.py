"""Gaussian likelihood whose noise depends on the input.

The network has two outputs per target: the mean and s, and the log variance is

    log sigma^2(x) = -log tau + gain * bounded(s(x))

with tau the precision of the homoscedastic model (given or learned). ``gain`` is 0
in the first quarter of the training, rises linearly to 1 in the second and stays
there: learning mean and noise together from the start lets rows that are hard to fit
be explained as noise, and the mean underfits (Seitzer et al. 2022, arXiv 2203.09168).

The noise's std is never beyond the range of the training rows' y (or e^1.5 times what
tau says, where that is more): far from them s is extrapolated, and what it says is then
an exponential of a guess.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from skbayesnn._distributions.gaussian import Gaussians
from skbayesnn._likelihoods.base import LARGEST_LOG_TAU
from skbayesnn._likelihoods.gaussian import gaussian_nll
from skbayesnn._likelihoods.scaled import ScaledPrecision

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
