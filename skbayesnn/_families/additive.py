"""Additive Gaussian noise [Gal16 3.2.2]: W_ij = m_ij + N(0, alpha v).

alpha = (1 - p) / p, p = keep, and v is the variance that the layer's weights start
with, so that a rate means about the same in wide and in narrow layers.
"""

from dataclasses import dataclass

import torch

from skbayesnn._families.base import Family, per_member
from skbayesnn._families.local_reparameterization import sample, sample_vjp


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
