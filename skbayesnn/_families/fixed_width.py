"""Normal weights of a given width, or mixtures of two: the spike and slab of [GG16].

W_ij = z_i m_ij + sigma e_ij, z_i ~ Bernoulli(p) per row, p = keep, and e_ij standard
normal; biases are N(b, sigma^2). sigma is given, as in appendix 3 there, not learned.
"""

import math
from dataclasses import dataclass, field

import torch

from skbayesnn._families.mean_field import MeanField, inverse_softplus


@dataclass(frozen=True)
class FixedWidth(MeanField):
    """Mean-field weights of one standard deviation, which stays as it is.

    Parameters
    ----------
    sigma : float > 0
        Of weights and biases.
    """

    quadratic_kl = True
    constants = ("rho", "bias_rho")

    sigma: float = field(default=0.1, kw_only=True)

    def init(self, mean, scale, bias, keep):
        """sigma^2 is a part of the variance, half of it at most."""
        mean = mean * math.sqrt(max(1 - (self.sigma / scale) ** 2, 0.5))
        if self.spike:
            mean = mean / keep.sqrt().view(-1, 1, 1)
        rho = inverse_softplus(self.sigma)
        return {
            "mean": mean,
            "rho": torch.full_like(mean, rho),
            "bias": bias,
            "bias_rho": torch.full_like(bias, rho),
        }

    def linear(self, params, keep, x, noise, layout=None):
        """As mean field, without gradients of the width."""
        return super().linear(self._detached(params), keep, x, noise, layout)

    def linear_vjp(self, params, keep, x, noise, layout=None):
        outputs, back = super().linear_vjp(params, keep, x, noise, layout)

        def pullback(gradient, needed):
            of_params, of_x = back(gradient, needed)
            return self._of_learned(of_params), of_x

        return outputs, pullback

    def kl(self, params, keep, prior, noise):
        """As mean field, without gradients of the width."""
        return super().kl(self._detached(params), keep, prior, noise)

    def kl_gradient(self, params, keep, prior, noise):
        return self._of_learned(super().kl_gradient(params, keep, prior, noise))

    def _detached(self, params):
        return params | {name: params[name].detach() for name in self.constants}

    def _of_learned(self, of_params):
        return {n: value for n, value in of_params.items() if n not in self.constants}
