"""Local reparameterisation [KSW15 section 2.3]: noise on activations, not on weights.

If the weights of a layer are independent and normal, each row's activations are too:
b ~ N(a M + c, a^2 V + v). Sampling b itself, one number per activation instead of one
per weight, gives every row noise of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from skbayesnn.families.base import Noise, affine

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
    spread = affine(x.square(), variance, bias_variance + _TINY).sqrt()
    return centre + spread * noise.normal(*centre.shape[1:])


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
) -> tuple[torch.Tensor, Callable[[torch.Tensor, bool], Gradients]]:
    """``sample`` and its pullback, by hand: (gradient, needs_input) -> Gradients."""
    n_members = len(mean)
    squares = x.square().expand(n_members, -1, -1)
    masked = (x if mask is None else x * mask).expand(n_members, -1, -1)
    outputs = torch.baddbmm(bias.unsqueeze(1), masked, mean)
    floor = bias_variance.unsqueeze(1) + _TINY
    spread = torch.baddbmm(floor, squares, variance).sqrt_()
    normal = noise.normal(*outputs.shape[1:])
    outputs.addcmul_(spread, normal)

    def pullback(gradient, needs_input):
        twice = (gradient * normal).div_(spread)  # 2 x the gradient of the variance
        of_x = None
        if needs_input:
            of_x = torch.bmm(gradient, mean.mT)
            if mask is not None:
                of_x.mul_(mask)
            of_x.addcmul_(torch.bmm(twice, variance.mT), x)
        return Gradients(
            mean=torch.bmm(masked.mT, gradient),
            variance=torch.bmm(squares.mT, twice).mul_(0.5),
            bias=gradient.sum(1),
            bias_variance=twice.sum(1).mul_(0.5),
            x=of_x,
        )

    return outputs, pullback
