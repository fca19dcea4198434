"""Noise on single weights: DropConnect and additive Gaussian noise.

Both are trained by local reparameterisation [KSW15 section 2.3]. If the weights of a
layer are independent and normal, so are each row's activations: b ~ N(a M + c, a^2 V +
v). Sampling b, one number per activation instead of one per weight, gives every row its
own noise.

- DropConnect [Wan et al. 2013; Gal16 3.2.2]: W_ij = z_ij m_ij, z_ij ~ Bernoulli(p), p =
  keep. A draw has true masks. In training each row has activations with the moments of
  such masks [Wan et al. 2013 section 3.2]. One true mask per step, the same for all
  rows, costs half as much, but gave held-out rows of two UCI sets a lower density.
- Additive noise [Gal16 3.2.2]: W_ij = m_ij + N(0, alpha v), alpha = (1 - p) / p, with v
  the variance of the layer's initial weights, so that a rate has about the same effect
  in wide and in narrow layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from skbayesnn._families.affine import (
    affine,
    affine_vjp,
    product_back,
    product_of_rows,
    spread,
)
from skbayesnn._families.base import (
    Family,
    Needed,
    RandomSource,
    binary_entropy,
    per_member,
)

# ---- local reparameterisation

# A variance, standardised units: keeps the gradient of the root finite where an
# activation has none.
_TINY = 1e-30


def sample(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    bias: torch.Tensor,
    bias_variance: torch.Tensor,
    noise: RandomSource,
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
    noise: RandomSource,
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


# ---- DropConnect


@dataclass(frozen=True)
class DropConnect(Family):
    """Independent masks on weights; H(p) is constant in M and left out."""

    quadratic_kl = True

    def init(self, mean, scale, bias, keep):
        """M is divided by sqrt(p): E ||W||^2 is that of the undropped network."""
        return {"mean": mean / keep.sqrt().view(-1, 1, 1), "bias": bias}

    def linear(self, params, keep, x, noise, layout=None):
        """Activations with the two moments of the masks', noise per row."""
        p, mean, bias = keep.view(-1, 1, 1), params["mean"], params["bias"]
        return sample(
            x,
            p * mean,
            p * (1 - p) * mean.square(),
            bias,
            torch.zeros_like(bias),
            noise,
        )

    def linear_vjp(self, params, keep, x, noise, layout=None):
        p, mean, bias = keep.view(-1, 1, 1), params["mean"], params["bias"]
        slope = p * (1 - p) * mean
        outputs, back = sample_vjp(
            x, p * mean, slope * mean, bias, torch.zeros_like(bias), noise
        )

        def pullback(gradient, needed):
            found = back(gradient, needed)
            of_mean = (p * found.mean).addcmul_(slope, found.variance, value=2)
            return {"mean": of_mean, "bias": found.bias}, found.x

        return outputs, pullback

    def draw(self, params, keep, noise):
        """One mask per draw, on every weight."""
        mean = params["mean"]
        return noise.bernoulli(keep, *mean.shape[1:]) * mean, params["bias"]

    def kl(self, params, keep, prior, noise):
        """(p l^2 / 2) ||M||^2 + (l^2 / 2) ||b||^2, (members,), nats: eq. 4."""
        p, mean = keep.view(-1, 1, 1), params["mean"]
        weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        return weights + prior.bias.energy(params["bias"])

    def kl_constant(self, params, keep, prior):
        """The masks' entropy, and the prior's normaliser."""
        mean = params["mean"]
        of_biases = super().kl_constant(params, keep, prior)
        of_masks = mean[0].numel() * binary_entropy(keep)
        return of_biases - prior.weight.log_scale(mean) - of_masks


# ---- additive Gaussian noise


@dataclass(frozen=True)
class Additive(Family):
    """Normal weights of a fixed variance, alpha v."""

    quadratic_kl = True
    constants = ("variance",)

    def init(self, mean, scale, bias, keep):
        """v = p scale^2, so that with alpha v = (1 - p) scale^2 it makes scale^2."""
        return {
            "mean": mean * keep.sqrt().view(-1, 1, 1),
            "bias": bias,
            "variance": (1 - keep) * scale**2,
        }

    def linear(self, params, keep, x, noise, layout=None):
        """Activations with the weights' noise, of its own for every row."""
        mean, bias = params["mean"], params["bias"]
        variance = per_member(params["variance"].detach(), 2).expand_as(mean)
        return sample(x, mean, variance, bias, torch.zeros_like(bias), noise)

    def linear_vjp(self, params, keep, x, noise, layout=None):
        mean, bias = params["mean"], params["bias"]
        variance = per_member(params["variance"], 2).expand_as(mean)
        outputs, back = sample_vjp(
            x, mean, variance, bias, torch.zeros_like(bias), noise
        )

        def pullback(gradient, needed):
            found = back(gradient, needed)
            return {"mean": found.mean, "bias": found.bias}, found.x

        return outputs, pullback

    def draw(self, params, keep, noise):
        """Normal weights."""
        mean, std = params["mean"], per_member(params["variance"].sqrt(), 2)
        return mean + std * noise.normal(*mean.shape[1:]), params["bias"]

    def kl(self, params, keep, prior, noise):
        """(l^2 / 2) ||M||^2 + 1/2 sum(l^2 alpha v - log(l^2 alpha v) - 1), biases."""
        mean = params["mean"]
        variance = per_member(params["variance"].detach(), 2).expand_as(mean)
        weights = prior.weight.energy(mean) + prior.weight.spread(variance)
        return weights + prior.bias.energy(params["bias"])
