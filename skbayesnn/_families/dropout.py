"""Dropout of a layer's inputs, W = diag(z) M: Bernoulli, Gaussian and concrete.

- Bernoulli dropout [GG16]: rows z_i m_i with z_i ~ Bernoulli(p), p = keep.
- Gaussian dropout: z_i ~ N(p, p (1 - p)), with the two moments of Bernoulli dropout.
  This is N(1, alpha) on rows of mean p M with alpha = (1 - p) / p [Srivastava et al.
  2014 section 10; KSW15 section 3].
- Concrete dropout [GHK17]: Bernoulli dropout with one learned rate per layer. In
  training z is relaxed to (0, 1),

      z = sigmoid((logit p + logit u) / t),  u uniform,  t = 0.1  [GHK17 eq. 5],

  so that p has gradients; draws use binary masks. The entropy of q depends on p and is
  part of the KL: K H(p) for K rows [GHK17 eq. 3 and 4]. As for every family, N, l and
  tau weigh the KL against the data; there is no other parameter.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from skbayesnn._families.affine import affine, affine_vjp, expand_members
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
    """W = diag(z) M with masks z, E z = p = keep.

    Parameters
    ----------
    units : tuple of int, or None
        Shape of the masks, if a network uses M several times and masks its units (for
        example the channels of an image). The masks are then not part of the weights.
        None: one mask per input of the map.
    """

    units: tuple[int, ...] | None = None

    def with_mask_shape(self, units):
        """The family with masks on units of this shape."""
        return replace(self, units=units)

    def mask_shape(self, params: Params) -> tuple[int, ...]:
        """Shape of one z."""
        return self.units or (params["mean"].shape[1],)

    def n_masks(self, params: Params) -> int:
        """Number of independent masks in one draw."""
        return math.prod(self.mask_shape(params))

    def n_effective(self, params: Params) -> torch.Tensor:
        """Number of masks whose value matters, (members,): rows of zeros need none."""
        if self.units is not None:
            return params["bias"].new_full((len(params["bias"]),), self.n_masks(params))
        return params["mean"].any(-1).sum(1)

    def masked(self, mask: torch.Tensor, params: Params) -> Draw:
        """A draw with masks (draws, members, \\*mask shape)."""
        mean, bias = params["mean"], params["bias"]
        if self.units is None:
            return mask.unsqueeze(-1) * mean, bias
        return mean.unsqueeze(0), bias, mask


@dataclass(frozen=True)
class InputMask(Masked):
    """W = diag(z) M with E z = p and Var z = p (1 - p), p = keep.

    The masks are *not* rescaled: E W = p M, so eq. 4 has the factor p. (torch's dropout
    rescales by 1 / p; the factor would be 1 / p.)
    """

    quadratic_kl = True

    @abstractmethod
    def mask(
        self, keep: torch.Tensor, random: RandomSource, *shape: int
    ) -> torch.Tensor:
        """Sample z, (lead, *shape), with the lead axes of the random source."""

    def mask_of(self, x, layout, keep, random):
        """Sample z for every input, (lead, rows, inputs), shared by the layout."""
        if layout is None:
            return self.mask(keep, random, *x.shape[1:])
        return per_input(x, layout, self.mask, keep, random)

    def init(self, mean, scale, bias, keep):
        """M is divided by sqrt(p), so E ||W||^2 equals ||W||^2 without dropout."""
        return {"mean": mean / keep.sqrt().view(-1, 1, 1), "bias": bias}

    def linear(self, params, keep, x, random, layout=None):
        """The affine map with a new mask per row."""
        mask = self.mask_of(x, layout, keep, random)
        return affine(x * mask, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, random, layout=None):
        mask = self.mask_of(x, layout, keep, random)
        return masked_vjp(params, x * mask, mask)

    def draw(self, params, keep, random):
        """Sample one mask per draw, on the rows of M."""
        return self.masked(self.mask(keep, random, *self.mask_shape(params)), params)

    def training_draw(self, params, keep, random, n_rows):
        """Sample a mask per row."""
        mask = self.mask(keep, random, n_rows, *self.mask_shape(params))
        return params["mean"], params["bias"], mask

    def kl(self, params, keep, prior, random):
        """(p l^2 / 2) ||M||^2 + (l^2 / 2) ||b||^2, (members,), nats: eq. 4."""
        p = keep.view(-1, 1, 1)
        mean = params["mean"]
        weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        return weights + prior.bias.energy(params["bias"])

    @abstractmethod
    def entropy(self, keep: torch.Tensor) -> torch.Tensor:
        """Entropy of one z, (members,), nats."""

    def kl_constant(self, params, keep, prior):
        """The entropy of the masks, and the prior's normalising constant."""
        mean = params["mean"]
        bias_constant = super().kl_constant(params, keep, prior)
        mask_entropy = self.n_effective(params) * self.entropy(keep)
        return bias_constant - prior.weight.log_scale(mean) - mask_entropy


def masked_vjp(params, masked, mask, in_place=False):
    """The affine map of masked inputs, and its pullback to M, b and the inputs.

    masked : inputs times mask, (members or 1, rows, inputs)
    mask : the mask
    in_place : bool, whether the inputs were overwritten; the mask must then be binary
    """
    outputs, back = affine_vjp(masked, params["mean"], params["bias"])

    def pullback(gradient, needed):
        grad_mean, grad_bias, grad_x = back(gradient, needed)
        # Overwritten inputs are zero where the mask is: WHERE_NONZERO needs no mask.
        if needed is Needed.ALL or (needed and not in_place):
            grad_x.mul_(mask)
        return {"mean": grad_mean, "bias": grad_bias}, grad_x

    return outputs, pullback


# ---- Bernoulli dropout


@dataclass(frozen=True)
class Bernoulli(InputMask):
    """Drop rows of W; H(p) is constant in M and omitted from the KL [Gal16]."""

    drops = True

    def mask(self, keep, random, *shape):
        return random.bernoulli(keep, *shape)

    def entropy(self, keep):
        return binary_entropy(keep)

    def linear_vjp(self, params, keep, x, random, layout=None):
        """As in the base class, with x overwritten if its shape permits.

        The activation's pullback can use the masked activations, since the gradient at
        dropped units is zero.
        """
        mask = self.mask_of(x, layout, keep, random)
        if x.shape[0] < mask.shape[0]:
            return masked_vjp(params, x * mask, mask)
        return masked_vjp(params, x.mul_(mask), mask, in_place=True)


# ---- Gaussian dropout


@dataclass(frozen=True)
class Gaussian(InputMask):
    """Multiply rows of W by normal factors; the KL omits the entropy of q in M.

    NOTE[DIFF]: the entropy of a row is the entropy of z plus log ||m_i||, and the KL
    omits the second term. With it the objective would be q's free energy, and unneeded
    rows would be kept away from zero, where -log ||m_i|| is unbounded [Hron et al.
    2018]. Without it, this is the regulariser of [Srivastava et al. 2014]. Up to
    constants, -log(l ||m_i||) per row is omitted: 3.0, 1.6, 0.7 and 0 nats at
    l ||m_i|| = 0.05, 0.2, 0.5 and 1. ``Independent`` includes it.
    """

    def mask(self, keep, random, *shape):
        """Sample normal factors with the two moments of Bernoulli(p)."""
        p = per_member(keep, len(shape))
        return torch.addcmul(p, (p * (1 - p)).sqrt(), random.normal(*shape))

    def entropy(self, keep):
        return 0.5 * (2 * math.pi * math.e * keep * (1 - keep)).log()


# ---- concrete dropout

TEMPERATURE = 0.1


@dataclass(frozen=True)
class Concrete(Masked):
    """Bernoulli masks with a learned rate; ``keep`` is the initial value."""

    learns_keep = True
    drops = True

    def init(self, mean, scale, bias, keep):
        """As for a given rate, with "logit" (members,), log(p / (1 - p))."""
        return {
            "mean": mean / keep.sqrt().view(-1, 1, 1),
            "bias": bias,
            "logit": keep.logit(),
        }

    def keep_of(self, params, keep):
        return params["logit"].sigmoid()

    def linear(self, params, keep, x, random, layout=None):
        """The affine map with a new relaxed mask per row."""
        mask = _relaxed(params["logit"], per_input(x, layout, random.uniform))
        return affine(x * mask, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, random, layout=None):
        mean = params["mean"]
        mask = _relaxed(params["logit"], per_input(x, layout, random.uniform))
        masked = expand_members(x * mask, len(mean))
        outputs, back = affine_vjp(masked, mean, params["bias"])

        def pullback(gradient, needed):
            grad_mean, grad_bias, grad_masked = back(gradient, Needed.ALL)
            grad_logit = (grad_masked * masked).mul_(1 - mask).sum((1, 2)) / TEMPERATURE
            grads = {"mean": grad_mean, "bias": grad_bias, "logit": grad_logit}
            return grads, grad_masked.mul_(mask) if needed else None

        return outputs, pullback

    def draw(self, params, keep, random):
        """Sample one binary mask per draw, on the rows of M."""
        p = params["logit"].sigmoid()
        return self.masked(random.bernoulli(p, *self.mask_shape(params)), params)

    def training_draw(self, params, keep, random, n_rows):
        """Sample a relaxed mask per row."""
        uniform = random.uniform(n_rows, *self.mask_shape(params))
        return params["mean"], params["bias"], _relaxed(params["logit"], uniform)

    def kl(self, params, keep, prior, random):
        """(p l^2 / 2) ||M||^2 - K H(p) + (l^2 / 2) ||b||^2, (members,), nats."""
        logit, mean = params["logit"], params["mean"]
        p = logit.sigmoid().view(-1, 1, 1)
        weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        entropy = functional.softplus(logit) - logit * logit.sigmoid()
        biases = prior.bias.energy(params["bias"])
        return weights - self.n_masks(params) * entropy + biases

    def kl_constant(self, params, keep, prior):
        """The prior's normalising constant, and the entropy of masks without effect."""
        bias_constant = super().kl_constant(params, keep, prior)
        n_idle = self.n_masks(params) - self.n_effective(params)
        idle_entropy = n_idle * binary_entropy(self.keep_of(params, keep))
        return bias_constant - prior.weight.log_scale(params["mean"]) + idle_entropy

    def kl_gradient(self, params, keep, prior, random):
        """Gradients, with H'(p) = -logit p."""
        logit, mean = params["logit"], params["mean"]
        p = logit.sigmoid()
        grad_mean = prior.weight.precision * p.view(-1, 1, 1) * mean
        grad_p = 0.5 * (prior.weight.precision * mean.square()).sum((1, 2))
        return {
            "mean": grad_mean,
            "bias": prior.bias.precision * params["bias"],
            "logit": p * (1 - p) * (grad_p + self.n_masks(params) * logit),
        }


def _relaxed(logit, uniform):
    """Masks in (0, 1) from uniform numbers (members, rows, ...); logit (members,)."""
    smallest = torch.finfo(uniform.dtype).eps
    return (
        uniform.clamp_(smallest, 1 - smallest)
        .logit_()
        .add(per_member(logit, uniform.ndim - 1))
        .div(TEMPERATURE)
        .sigmoid()
    )
