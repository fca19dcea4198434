"""Bernoulli dropout [GG16]: rows z_i m_i with z_i ~ Bernoulli(p), p = keep."""

from dataclasses import dataclass

from skbayesnn._families.base import binary_entropy
from skbayesnn._families.input_noise import InputNoise, masked_vjp


@dataclass(frozen=True)
class Bernoulli(InputNoise):
    """Whole rows of W are dropped; H(p) is constant in M and left out [Gal16]."""

    drops = True

    def mask(self, keep, noise, *shape):
        """Zeros and ones."""
        return noise.bernoulli(keep, *shape)

    def entropy(self, keep):
        """H(p)."""
        return binary_entropy(keep)

    def linear_vjp(self, params, keep, x, noise, layout=None):
        """With x overwritten where the masks fit into it.

        Masked activations serve the activation's pullback as well as the activations
        themselves: at dropped units the gradient is zero.
        """
        mask = self.mask_of(x, layout, keep, noise)
        if x.shape[0] < mask.shape[0]:
            return masked_vjp(params, x * mask, mask)
        return masked_vjp(params, x.mul_(mask), mask, in_place=True)
