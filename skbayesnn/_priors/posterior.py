"""Independent normal priors: the Gaussian one, and a posterior that became a prior."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True)
class Normal:
    """N(centre, 1 / precision) on every element of an array, members first.

    Parameters
    ----------
    centre, precision : tensor
        (members, ...), of the array's shape or with axes of length 1. Precision 0
        is the flat (improper) density; its infinite normaliser is left out.
    """

    centre: torch.Tensor
    precision: torch.Tensor

    def energy(
        self, mean: torch.Tensor, variance: torch.Tensor | None = None
    ) -> torch.Tensor:
        """E_q[-log p] up to the normaliser: precision / 2 E (w - centre)^2, summed.

        mean, variance : (members, ...), E_q w and Var_q w, whatever q is; no
            variance is a point
        returns : (members,), nats
        """
        squares = (mean - self.centre).square()
        if variance is not None:
            squares = squares + variance
        return _sum(0.5 * self.precision * squares)

    def spread(self, variance: torch.Tensor) -> torch.Tensor:
        """KL(N(centre, variance) || p): 1/2 sum(r - log r - 1), r = variance precision.

        With ``energy`` of its mean it is a normal distribution's whole KL.

        returns : (members,), nats
        """
        ratio = variance * self.precision
        return _sum(0.5 * (ratio - variance.log() - _log(self.precision) - 1))

    def log_scale(self, like: torch.Tensor) -> torch.Tensor:
        """1/2 sum(log precision) over an array like this one, (members,)."""
        return _sum(0.5 * _log(self.precision).expand_as(like))

    def score(self, values: torch.Tensor) -> torch.Tensor:
        """d log p / d values, of their shape."""
        return self.precision * (self.centre - values)

    def log_density(self, values: torch.Tensor) -> torch.Tensor:
        """log p(values), (..., members, *array) -> (..., members), nats."""
        squares = self.precision * (values - self.centre).square()
        terms = 0.5 * (_log(self.precision) - math.log(2 * math.pi) - squares)
        return terms.flatten(1 - self.centre.ndim).sum(-1)


@dataclass(frozen=True)
class GaussianPrior:
    """Independent N(0, 1 / l^2) on every weight and bias, l the prior length scale.

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l, in the units of the standardised inputs; 0 is the flat (improper) prior.
    """

    length_scale: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return _isotropic(self.length_scale, 2)

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return _isotropic(self.length_scale, 1)


@dataclass(frozen=True)
class PosteriorPrior:
    """A mean-field posterior as the prior of what comes next.

    Parameters
    ----------
    mean, std : tensor of shape (members, inputs, outputs)
    bias_mean, bias_std : tensor of shape (members, outputs)
    """

    mean: torch.Tensor
    std: torch.Tensor
    bias_mean: torch.Tensor
    bias_std: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return Normal(self.mean, self.std.square().reciprocal())

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return Normal(self.bias_mean, self.bias_std.square().reciprocal())


def _isotropic(length_scale: torch.Tensor, n_axes: int) -> Normal:
    precision = length_scale.square().view(-1, *(1,) * n_axes)
    return Normal(torch.zeros_like(precision), precision)


def _sum(terms: torch.Tensor) -> torch.Tensor:
    """Over all axes but the members'."""
    return terms.flatten(1).sum(1)


def _log(precision: torch.Tensor) -> torch.Tensor:
    """log precision, and 0 where there is none."""
    return torch.where(precision > 0, precision, torch.ones_like(precision)).log()
