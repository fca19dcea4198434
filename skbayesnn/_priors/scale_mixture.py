"""The scale mixture prior of [BBB15 eq. 7]: a spike and a slab, both normal."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from skbayesnn._priors.posterior import GaussianPrior, Normal


@dataclass(frozen=True)
class ScaleMixture:
    """pi N(0, s1^2 / l^2) + (1 - pi) N(0, s2^2 / l^2) on every element of an array.

    All parameters are (members, 1, ...), of as many axes as the array. It has no
    closed form against a normal posterior.
    """

    pi: torch.Tensor
    std_1: torch.Tensor
    std_2: torch.Tensor

    def score(self, values: torch.Tensor) -> torch.Tensor:
        """d log p / d values, of their shape."""
        precision_1, precision_2 = self.std_1**-2, self.std_2**-2
        odds = (self.pi * self.std_2).log() - ((1 - self.pi) * self.std_1).log()
        squares = values.square()
        odds = torch.addcmul(odds, squares, 0.5 * (precision_2 - precision_1))
        # Both shares on their own: 1 - share would lose digits, times (s1 / s2)^2.
        precision = precision_2 * odds.neg().sigmoid_()
        precision.addcmul_(precision_1, odds.sigmoid_())
        return precision.mul_(values).neg_()

    def log_density(self, values: torch.Tensor) -> torch.Tensor:
        """log p(values), (..., members, *array) -> (..., members), nats."""
        terms = torch.logaddexp(
            self.pi.log() + _log_normal(values, self.std_1),
            (-self.pi).log1p() + _log_normal(values, self.std_2),
        )
        return terms.flatten(1 - self.pi.ndim).sum(-1)


@dataclass(frozen=True)
class ScaleMixturePrior:
    """The mixture on weights; biases have the Gaussian prior N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l scales the whole prior; [BBB15] has l = 1.
    pi : tensor of shape (members,)
        Weight of the first component, in (0, 1).
    s1, s2 : tensor of shape (members,)
        Standard deviations of the components under l = 1.
    """

    length_scale: torch.Tensor
    pi: torch.Tensor
    s1: torch.Tensor
    s2: torch.Tensor

    @cached_property
    def weight(self) -> ScaleMixture:
        """The prior of weights (members, inputs, outputs)."""
        return ScaleMixture(
            *(
                value.view(-1, 1, 1)
                for value in (
                    self.pi,
                    self.s1 / self.length_scale,
                    self.s2 / self.length_scale,
                )
            )
        )

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return GaussianPrior(self.length_scale).bias


def _log_normal(values: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """log N(values; 0, std^2), element by element."""
    squares = (values / std).square()
    return -0.5 * (squares + math.log(2 * math.pi)) - std.log()
