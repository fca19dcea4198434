"""Noise on the rows of W, W = diag(z) M: the mask multiplies the layer's inputs."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch

from skbayesnn._families.affine import affine, affine_vjp
from skbayesnn._families.base import (
    Draw,
    Family,
    Needed,
    Noise,
    Params,
    per_input,
)


@dataclass(frozen=True)
class Masked(Family):
    """W = diag(z) M with masks z, of which E z = p = keep.

    Parameters
    ----------
    units : tuple of int, or None
        Shape of what is masked, where a network uses M in several places (channels, or
        units of an image): the masks are then no part of the weights. None: the
        inputs of the map, one mask for each.
    """

    units: tuple[int, ...] | None = None

    def placed(self, units):
        """The same, with masks on units of this shape."""
        return replace(self, units=units)

    def mask_shape(self, params: Params) -> tuple[int, ...]:
        """Of one z."""
        return self.units or (params["mean"].shape[1],)

    def n_masks(self, params: Params) -> int:
        """Random numbers of one draw."""
        return math.prod(self.mask_shape(params))

    def masked(self, mask: torch.Tensor, params: Params) -> Draw:
        """A draw, of masks (draws, members, \\*mask shape)."""
        mean, bias = params["mean"], params["bias"]
        if self.units is None:
            return mask.unsqueeze(-1) * mean, bias
        return mean.unsqueeze(0), bias, mask


@dataclass(frozen=True)
class InputNoise(Masked):
    """W = diag(z) M with E z = p and Var z = p (1 - p), p = keep.

    The masks are *not* rescaled: E W = p M, and eq. 4's factor p stands as it is.
    (torch's own dropout rescales by 1 / p, which turns it into 1 / p.)
    """

    quadratic_kl = True

    @abstractmethod
    def mask(self, keep: torch.Tensor, noise: Noise, *shape: int) -> torch.Tensor:
        """z, (lead, *shape); lead is that of the noise."""

    def mask_of(self, x, layout, keep, noise):
        """z of every input, (lead, rows, inputs), shared as the layout says."""
        if layout is None:
            return self.mask(keep, noise, *x.shape[1:])
        return per_input(x, layout, self.mask, keep, noise)

    def init(self, mean, scale, bias, keep):
        """M is divided by sqrt(p): E ||W||^2 is that of the undropped network."""
        return {"mean": mean / keep.sqrt().view(-1, 1, 1), "bias": bias}

    def linear(self, params, keep, x, noise, layout=None):
        """A fresh mask per row."""
        mask = self.mask_of(x, layout, keep, noise)
        return affine(x * mask, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, noise, layout=None):
        mask = self.mask_of(x, layout, keep, noise)
        return masked_vjp(params, x * mask, mask)

    def draw(self, params, keep, noise):
        """One mask per draw, on the rows of M."""
        return self.masked(self.mask(keep, noise, *self.mask_shape(params)), params)

    def held(self, params, keep, noise, n_rows):
        """Masks of every row."""
        mask = self.mask(keep, noise, n_rows, *self.mask_shape(params))
        return params["mean"], params["bias"], mask

    def kl(self, params, keep, prior, noise):
        """(p l^2 / 2) ||M||^2 + (l^2 / 2) ||b||^2, (members,), nats: eq. 4."""
        p = keep.view(-1, 1, 1)
        mean = params["mean"]
        weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        return weights + prior.bias.energy(params["bias"])

    @abstractmethod
    def entropy(self, keep: torch.Tensor) -> torch.Tensor:
        """That of one z, (members,), nats."""

    def kl_constant(self, params, keep, prior):
        """The masks' entropy, and the prior's normaliser."""
        mean = params["mean"]
        of_biases = super().kl_constant(params, keep, prior)
        of_masks = self.n_masks(params) * self.entropy(keep)
        return of_biases - prior.weight.log_scale(mean) - of_masks


def masked_vjp(params, masked, mask, in_place=False):
    """The affine map of masked inputs, and its pullback to M, b and the inputs.

    masked : (members or 1, rows, inputs)
    mask : what the inputs were multiplied by
    in_place : bool, whether the inputs themselves were; mask is 0 or 1 then
    """
    outputs, back = affine_vjp(masked, params["mean"], params["bias"])

    def pullback(gradient, needed):
        of_mean, of_bias, of_x = back(gradient, needed)
        # Where the mask is zero the inputs are, after multiplication in place.
        if needed is Needed.ALL or (needed and not in_place):
            of_x.mul_(mask)
        return {"mean": of_mean, "bias": of_bias}, of_x

    return outputs, pullback
