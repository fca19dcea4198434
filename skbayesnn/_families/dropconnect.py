"""DropConnect [Wan et al. 2013; Gal16 3.2.2]: every weight is dropped by itself.

W_ij = z_ij m_ij with z_ij ~ Bernoulli(p), p = keep. A draw has true masks. In training
each row gets activations with the moments of such masks [Wan et al. 2013 section 3.2],
by local reparameterisation. One true mask per step, the same for all rows, costs half
as much; held-out rows of yacht and energy then had a lower log density.
"""

from dataclasses import dataclass

import torch

from skbayesnn._families.base import Family, binary_entropy
from skbayesnn._families.local_reparameterization import sample, sample_vjp


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
