"""Dropout of a layer's inputs, W = diag(z) M: Bernoulli, Gaussian and concrete.

- Bernoulli dropout [GG16]: rows z_i m_i with z_i ~ Bernoulli(p), p = keep.
- Gaussian dropout: z_i ~ N(p, p (1 - p)), the two moments of Bernoulli dropout. As
  N(1, alpha) on rows of mean p M it has alpha = (1 - p) / p [Srivastava et al. 2014
  section 10; KSW15 section 3].
- Concrete dropout [GHK17]: Bernoulli dropout whose rate is learned, one per layer. In
  training z is relaxed to (0, 1),

      z = sigmoid((logit p + logit u) / t),  u uniform,  t = 0.1  [GHK17 eq. 5],

  so that gradients reach p; a draw has true masks. The entropy of q depends on p and is
  part of the KL: K H(p) for K rows [GHK17 eq. 3 and 4]. N, l and tau weigh the KL
  against the data, as for every family: there is no further parameter.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from skbayesnn._families.affine import affine, affine_vjp, spread
from skbayesnn._families.base import (
    Draw,
    Family,
    Needed,
    Params,
    RandomSource,
    binary_entropy,
    per_input,
    per_member,
)

# ---- masks on the inputs


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
    def mask(
        self, keep: torch.Tensor, noise: RandomSource, *shape: int
    ) -> torch.Tensor:
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

    def training_draw(self, params, keep, noise, n_rows):
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


# ---- Bernoulli dropout


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


# ---- Gaussian dropout


@dataclass(frozen=True)
class Gaussian(InputNoise):
    """Rows of W are scaled; q's entropy in M is left out, as for Bernoulli.

    NOTE[DIFF]: the entropy of a row is that of z plus log ||m_i||, which is left out.
    With it the objective would be q's free energy, and a row that is not needed would
    be held off zero, where -log ||m_i|| has no bound [Hron et al. 2018]; without it
    the noise is the regulariser that [Srivastava et al. 2014] train with. What is left
    out of a row, but for constants, is -log(l ||m_i||): 3.0, 1.6, 0.7 and 0 nats at
    l ||m_i|| = 0.05, 0.2, 0.5 and 1. ``VariationalIndependent`` has it.
    """

    def mask(self, keep, noise, *shape):
        """Normal numbers with the two moments of Bernoulli(p)."""
        p = per_member(keep, len(shape))
        return torch.addcmul(p, (p * (1 - p)).sqrt(), noise.normal(*shape))

    def entropy(self, keep):
        """log sqrt(2 pi e p (1 - p))."""
        return 0.5 * (2 * math.pi * math.e * keep * (1 - keep)).log()


# ---- concrete dropout

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

    def training_draw(self, params, keep, noise, n_rows):
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
