"""The log-uniform prior p(log |w|) = const [KSW15], under N(theta, alpha theta^2).

The KL depends on alpha alone, and has no closed form:

    KL(alpha) = -1/2 log alpha + E log |1 + sqrt(alpha) e| + C,  e standard normal,

where C is such that it goes to 0 as alpha goes to infinity: C = (log 2 + gamma) / 2,
gamma Euler's constant. Two approximations are in use.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from skbayesnn._priors.posterior import GaussianPrior, Normal

# C: E log |e| = -(log 2 + gamma) / 2 for a standard normal e.
EULER_GAMMA = 0.5772156649015329
CONSTANT = 0.5 * (math.log(2) + EULER_GAMMA)


@dataclass(frozen=True)
class LogUniformPrior:
    """Scale-free on weights; biases have the Gaussian prior N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l of the biases.
    """

    length_scale: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """For weights without noise, which see a flat prior (members, inputs, outputs).

        Under noise the KL is one of the functions below.
        """
        return GaussianPrior(torch.zeros_like(self.length_scale)).weight

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return GaussianPrior(self.length_scale).bias


def kingma(log_alpha: torch.Tensor) -> torch.Tensor:
    """KL for alpha <= 1, element by element [KSW15 eq. 14]; nats."""
    alpha = log_alpha.exp()
    polynomial = alpha * (1.16145124 + alpha * (-1.50204118 + alpha * 0.58629921))
    return CONSTANT - 0.5 * log_alpha - polynomial


def kingma_slope(log_alpha: torch.Tensor) -> torch.Tensor:
    """d kingma / d log alpha."""
    alpha = log_alpha.exp()
    slope = 1.16145124 + alpha * (-2 * 1.50204118 + alpha * 3 * 0.58629921)
    return -0.5 - alpha * slope


def molchanov(log_alpha: torch.Tensor) -> torch.Tensor:
    """KL for all alpha, element by element [MAV17 eq. 14]; nats."""
    rise = 0.63576 * torch.sigmoid(-(1.87320 + 1.48695 * log_alpha))
    return rise + 0.5 * torch.nn.functional.softplus(-log_alpha)


def molchanov_slope(log_alpha: torch.Tensor) -> torch.Tensor:
    """d molchanov / d log alpha."""
    share = torch.sigmoid(1.87320 + 1.48695 * log_alpha)
    rise = -0.63576 * 1.48695 * share * (1 - share)
    return rise - 0.5 * torch.sigmoid(-log_alpha)
