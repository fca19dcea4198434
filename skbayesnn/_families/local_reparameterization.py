"""Local reparameterisation [KSW15 section 2.3]: noise on activations, not on weights.

If the weights of a layer are independent and normal, each row's activations are too:
b ~ N(a M + c, a^2 V + v). Sampling b itself, one number per activation instead of one
per weight, gives every row noise of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from skbayesnn._families.affine import (
    affine,
    affine_vjp,
    product_back,
    product_of_rows,
    spread,
)
from skbayesnn._families.base import Needed, Noise

# A variance, standardised units: keeps the gradient of the root finite where an
# activation has none.
_TINY = 1e-30


def sample(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    bias: torch.Tensor,
    bias_variance: torch.Tensor,
    noise: Noise,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Activations of one layer, (members, rows, outputs).

    x : (members or 1, rows, inputs); mask multiplies it, in the mean alone
    mean, variance : (members, inputs, outputs), of the weights
    bias, bias_variance : (members, outputs)
    """
    centre = affine(x if mask is None else x * mask, mean, bias)
    std = affine(x.square(), variance, bias_variance + _TINY).sqrt()
    return centre + std * noise.normal(*centre.shape[1:])


class Gradients(NamedTuple):
    """What comes back through ``sample``, in the shapes of its arguments."""

    mean: torch.Tensor
    variance: torch.Tensor
    bias: torch.Tensor
    bias_variance: torch.Tensor
    x: torch.Tensor | None


def sample_vjp(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    bias: torch.Tensor,
    bias_variance: torch.Tensor,
    noise: Noise,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Callable[[torch.Tensor, Needed], Gradients]]:
    """``sample`` and its pullback, by hand: (gradient, needed) -> Gradients."""
    squares = spread(x.square(), len(mean))
    outputs, back = affine_vjp(x if mask is None else x * mask, mean, bias)
    std = affine(squares, variance, bias_variance + _TINY).sqrt_()
    normal = noise.normal(*outputs.shape[1:])
    outputs.addcmul_(std, normal)

    def pullback(gradient, needed):
        of_mean, of_bias, of_x = back(gradient, needed)
        twice = (gradient * normal).div_(std)  # 2 x the gradient of the variance
        if needed:
            if mask is not None:
                of_x.mul_(mask)
            of_x.addcmul_(product_back(twice, variance), x)
        return Gradients(
            mean=of_mean,
            variance=product_of_rows(squares, twice).mul_(0.5),
            bias=of_bias,
            bias_variance=twice.sum(1).mul_(0.5),
            x=of_x,
        )

    return outputs, pullback
