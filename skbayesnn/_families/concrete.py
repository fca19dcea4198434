"""Bernoulli dropout whose rate is learned, one per layer: concrete dropout [GHK17].

Rows z_i m_i with z_i ~ Bernoulli(p). In training z is relaxed to (0, 1),

    z = sigmoid((logit p + logit u) / t),  u uniform,  t = 0.1  [GHK17 eq. 5],

so that gradients reach p; a draw has true masks. q's entropy depends on p here and is
in the KL: K H(p) for K rows [GHK17 eq. 3 and 4]. What weighs it against the data are N,
l and tau, as for every family: nothing is left to be set.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from skbayesnn._families.affine import affine, affine_vjp, spread
from skbayesnn._families.base import Needed, per_input, per_member
from skbayesnn._families.input_noise import Masked

TEMPERATURE = 0.1


@dataclass(frozen=True)
class Concrete(Masked):
    """Bernoulli masks of a learned rate; ``keep`` is where learning starts."""

    learns_keep = True
    drops = True

    def init(self, mean, scale, bias, keep):
        """As for a fixed rate; "logit" (members,) is log(p / (1 - p))."""
        return {
            "mean": mean / keep.sqrt().view(-1, 1, 1),
            "bias": bias,
            "logit": keep.logit(),
        }

    def keep_of(self, params, keep):
        """The learned p."""
        return params["logit"].sigmoid()

    def linear(self, params, keep, x, noise, layout=None):
        """A fresh relaxed mask per row."""
        mask = _relaxed(params["logit"], per_input(x, layout, noise.uniform))
        return affine(x * mask, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, noise, layout=None):
        mean = params["mean"]
        mask = _relaxed(params["logit"], per_input(x, layout, noise.uniform))
        masked = spread(x * mask, len(mean))
        outputs, back = affine_vjp(masked, mean, params["bias"])

        def pullback(gradient, needed):
            of_mean, of_bias, of_masked = back(gradient, Needed.ALL)
            of_logit = (of_masked * masked).mul_(1 - mask).sum((1, 2)) / TEMPERATURE
            found = {"mean": of_mean, "bias": of_bias, "logit": of_logit}
            return found, of_masked.mul_(mask) if needed else None

        return outputs, pullback

    def draw(self, params, keep, noise):
        """One true mask per draw, on the rows of M."""
        p = params["logit"].sigmoid()
        return self.masked(noise.bernoulli(p, *self.mask_shape(params)), params)

    def held(self, params, keep, noise, n_rows):
        """Relaxed masks of every row."""
        uniform = noise.uniform(n_rows, *self.mask_shape(params))
        return params["mean"], params["bias"], _relaxed(params["logit"], uniform)

    def kl(self, params, keep, prior, noise):
        """(p l^2 / 2) ||M||^2 - K H(p), and of the biases, (members,), nats."""
        logit, mean = params["logit"], params["mean"]
        p = logit.sigmoid().view(-1, 1, 1)
        weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        entropy = functional.softplus(logit) - logit * logit.sigmoid()
        biases = prior.bias.energy(params["bias"])
        return weights - self.n_masks(params) * entropy + biases

    def kl_constant(self, params, keep, prior):
        """The prior's normaliser."""
        of_biases = super().kl_constant(params, keep, prior)
        return of_biases - prior.weight.log_scale(params["mean"])

    def kl_gradient(self, params, keep, prior, noise):
        """H'(p) = -logit p."""
        logit, mean = params["logit"], params["mean"]
        p = logit.sigmoid()
        of_mean = prior.weight.precision * p.view(-1, 1, 1) * mean
        of_p = 0.5 * (prior.weight.precision * mean.square()).sum((1, 2))
        return {
            "mean": of_mean,
            "bias": prior.bias.precision * params["bias"],
            "logit": p * (1 - p) * (of_p + self.n_masks(params) * logit),
        }


def _relaxed(logit, uniform):
    """Masks (members, rows, ...) in (0, 1), of uniform numbers; logit (members,)."""
    smallest = torch.finfo(uniform.dtype).eps
    return (
        uniform.clamp_(smallest, 1 - smallest)
        .logit_()
        .add(per_member(logit, uniform.ndim - 1))
        .div(TEMPERATURE)
        .sigmoid()
    )
