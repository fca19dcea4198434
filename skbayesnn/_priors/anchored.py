"""N(0, 1 / l^2) seen from a draw of it: what randomised MAP sampling asks for [PLB20].

A member is pulled to a draw of its own, its anchor, as hard as the prior pulls to zero.
In a linear model the members are then draws of the posterior.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from skbayesnn._priors.posterior import Normal


@dataclass(frozen=True)
class AnchoredPrior:
    """N(a, 1 / l^2) on every weight and bias, the anchor a drawn from N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l of the weights, > 0.
    bias_length_scale : tensor of shape (members,)
        That of the biases, > 0.
    numbers : tensor of shape (members, inputs, outputs)
        Standard normal; anchors of the weights, times l.
    bias_numbers : tensor of shape (members, outputs)
        Likewise, of the biases.
    """

    length_scale: torch.Tensor
    bias_length_scale: torch.Tensor
    numbers: torch.Tensor
    bias_numbers: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return _about(self.numbers, self.length_scale)

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return _about(self.bias_numbers, self.bias_length_scale)


def _about(numbers: torch.Tensor, length_scale: torch.Tensor) -> Normal:
    length_scale = length_scale.view(-1, *(1,) * (numbers.ndim - 1))
    return Normal(numbers / length_scale, length_scale.square())
