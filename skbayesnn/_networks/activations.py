"""Activation functions and their gradients, written without autograd."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from skbayesnn._families import Needed


class Activation(NamedTuple):
    """An activation function, its gradient, and the scale of initial weights.

    ``pullback`` takes the gradient and the function's values; it works in place. If
    ``pullback_of_inputs``, it takes the function's inputs instead: a function that is
    not monotone cannot be inverted. ``needed`` defines at which values the pullback
    uses the gradient.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    pullback: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    gain: float  # initial variance of the next map's weights, times its inputs
    needed: Needed = Needed.ALL
    pullback_of_inputs: bool = False

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values, and the tensor for the pullback; x may be overwritten."""
        if self.pullback_of_inputs:
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
    # x / (1 + exp(-x)), a smooth relu that is not monotone. The initial scale is
    # relu's, with which it was compared.
    "silu": Activation(
        functional.silu,
        lambda x: functional.silu(x, inplace=True),
        lambda g, x: _aten.silu_backward.grad_input(g, x, grad_input=g),
        2.0,
        pullback_of_inputs=True,
    ),
    "identity": Activation(lambda x: x, lambda x: x, lambda g, h: g, 1.0),
}


def _erf_back(gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Gradient * 2 / sqrt(pi) exp(-x^2), x = erfinv(values); 0 where |values| = 1."""
    slope = values.erfinv().square_().neg_().exp_()
    return gradient.mul_(slope.mul_(2 / math.sqrt(math.pi)))
