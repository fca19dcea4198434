"""Functions of the units between affine maps, and their gradients by hand."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from skbayesnn._families import Needed


class Activation(NamedTuple):
    """A function of the units, its gradient, and its start scale.

    ``pullback`` takes the gradient and the function's values, or its inputs where
    ``of_inputs``, since values of a function that is not monotone do not tell them; it
    works in place.
    ``needed`` says at which values it looks at the gradient, ``smooth`` whether the
    function is without kinks.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    pullback: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    gain: float  # of the variance of the weights behind it
    needed: Needed = Needed.ALL
    smooth: bool = True
    of_inputs: bool = False

    def passed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The values, and what the pullback takes; x may be overwritten."""
        if self.of_inputs:
            return self.function(x), x
        values = self.in_place(x)
        return values, values


_aten = torch.ops.aten

ACTIVATIONS = {
    "relu": Activation(
        torch.relu,
        torch.relu_,
        lambda g, h: _aten.threshold_backward.grad_input(g, h, 0, grad_input=g),
        2.0,
        Needed.WHERE_NONZERO,
        smooth=False,
    ),
    "tanh": Activation(
        torch.tanh,
        torch.tanh_,
        lambda g, h: _aten.tanh_backward.grad_input(g, h, grad_input=g),
        1.0,
    ),
    "logistic": Activation(
        torch.sigmoid,
        torch.sigmoid_,
        lambda g, h: _aten.sigmoid_backward.grad_input(g, h, grad_input=g),
        1.0,
    ),
    "erf": Activation(torch.erf, torch.erf_, lambda g, h: _erf_back(g, h), 1.0),
    # x / (1 + exp(-x)), a relu without a kink; it falls before it rises. The start
    # scale is relu's, with which it was compared.
    "silu": Activation(
        functional.silu,
        lambda x: functional.silu(x, inplace=True),
        lambda g, x: _aten.silu_backward.grad_input(g, x, grad_input=g),
        2.0,
        of_inputs=True,
    ),
    "identity": Activation(lambda x: x, lambda x: x, lambda g, h: g, 1.0),
}


def _erf_back(gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """2 / sqrt(pi) exp(-x^2), of x = erfinv(values); 0 where these are 1."""
    slope = values.erfinv().square_().neg_().exp_()
    return gradient.mul_(slope.mul_(2 / math.sqrt(math.pi)))
