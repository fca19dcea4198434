"""Mean-field normal weights: Bayes by Backprop [BBB15].

W_ij ~ N(m_ij, sigma_ij^2) with sigma = softplus(rho), biases likewise. With
dropout > 0, the spike and slab of [GG16]: W_ij = z_i m_ij + sigma_ij e_ij with
z_i ~ Bernoulli(p) per row, p = keep, and e_ij standard normal.

``FixedWidth`` has a single sigma for all weights and biases, which is given as in
appendix 3 of [GG16], not learned.
"""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from skbayesnn._families.base import Family, Params, binary_entropy, per_input
from skbayesnn._families.weight_noise import sample, sample_vjp

# ---- Mean-field normal weights: Bayes by Backprop [BBB15]

# Share of the variance of the initial weights that is uncertainty: small enough that
# the noise does not hide the data, large enough that q is not a point mass.
START_SHARE = 0.01


def signal_to_noise(params: Params) -> torch.Tensor:
    """|m| / sigma of every weight, (members, inputs, outputs) [BBB15 section 5.1].

    It is 0 where m = sigma = 0.
    """
    return (params["mean"].abs() / functional.softplus(params["rho"])).nan_to_num(0.0)


@dataclass(frozen=True)
class MeanField(Family):
    """Independent normal weights and biases.

    Parameters
    ----------
    spike : bool
        Whether rows are dropped. If False, ``keep`` is ignored.
    shared_draw : bool
        Whether all rows of a step share a draw of the weights (path-wise, [BBB15]). If
        False, use local reparameterisation.
    sampled_kl : bool
        Whether to estimate the KL by log q(W) - log p(W) at one draw. Use this for
        priors without a closed form, and for the exact density of the spike and slab.
    """

    spike: bool = False
    shared_draw: bool = False
    sampled_kl: bool = False

    def init(self, mean, scale, bias, keep):
        """sigma^2 is ``START_SHARE`` scale^2; the means have the remaining variance."""
        keep = keep.view(-1, 1, 1) if self.spike else 1.0
        rho = inverse_softplus(math.sqrt(START_SHARE) * scale)
        return {
            "mean": mean * math.sqrt(1 - START_SHARE) / keep**0.5,
            "rho": torch.full_like(mean, rho),
            "bias": bias,
            "bias_rho": torch.full_like(bias, rho),
        }

    def linear(self, params, keep, x, random, layout=None):
        """The affine map, with shared weights or by local reparameterisation."""
        if self.shared_draw:
            weight, bias = self.draw(params, keep, random.shared_by_rows)
            return torch.matmul(x, weight) + bias.unsqueeze(1)
        return sample(
            x,
            params["mean"],
            functional.softplus(params["rho"]).square(),
            params["bias"],
            functional.softplus(params["bias_rho"]).square(),
            random,
            self._spikes(keep, x, random, layout),
        )

    def linear_vjp(self, params, keep, x, random, layout=None):
        if self.shared_draw:
            return super().linear_vjp(params, keep, x, random, layout)
        sigma, bias_sigma = _sigmas(params)
        outputs, back = sample_vjp(
            x,
            params["mean"],
            sigma.square(),
            params["bias"],
            bias_sigma.square(),
            random,
            self._spikes(keep, x, random, layout),
        )

        def pullback(gradient, needed):
            moment_grads = back(gradient, needed)
            grad_sigma, grad_bias_sigma = 2 * sigma, 2 * bias_sigma
            grad_sigma.mul_(moment_grads.variance)
            grad_bias_sigma.mul_(moment_grads.bias_variance)
            grads = {
                "mean": moment_grads.mean,
                "rho": grad_sigma.mul_(params["rho"].sigmoid()),
                "bias": moment_grads.bias,
                "bias_rho": grad_bias_sigma.mul_(params["bias_rho"].sigmoid()),
            }
            return grads, moment_grads.x

        return outputs, pullback

    def _spikes(self, keep, x, random, layout):
        """Mask of the inputs that are kept, (lead, rows, inputs), or None for all."""
        if not self.spike:
            return None
        return per_input(x, layout, random.bernoulli, keep)

    def draw(self, params, keep, random):
        """Sample normal weights and biases, after the masks of the spikes."""
        mean, bias = params["mean"], params["bias"]
        if self.spike:
            mean = random.bernoulli(keep, mean.shape[1]).unsqueeze(-1) * mean
        sigma, bias_sigma = _sigmas(params)
        weight = mean + sigma * random.normal(*mean.shape[-2:])
        return weight, bias + bias_sigma * random.normal(bias.shape[-1])

    def without(self, params, used):
        """Set unused weights to zero, with sigma = 0."""
        rho = params["rho"].masked_fill(~used, -torch.inf)
        return super().without(params, used) | {"rho": rho}

    def log_density(self, params, keep, weight, bias):
        """log q(W, b), (..., members), nats.

        weight : (..., members, inputs, outputs); bias : (..., members, outputs)
        """
        sigma, bias_sigma = _sigmas(params)
        row_log_density = _normal_log_density(weight - params["mean"], sigma)
        if self.spike:
            p = keep.view(-1, 1)
            row_log_density = torch.logaddexp(
                p.log() + row_log_density,
                (1 - p).log() + _normal_log_density(weight, sigma),
            )
        bias_log_density = _normal_log_density(bias - params["bias"], bias_sigma)
        return row_log_density.sum(-1) + bias_log_density

    def as_prior(self, params):
        """Fields of a `PosteriorPrior` equal to q(W, b)."""
        sigma, bias_sigma = _sigmas(params)
        return {
            "mean": params["mean"],
            "std": sigma,
            "bias_mean": params["bias"],
            "bias_std": bias_sigma,
        }

    def kl(self, params, keep, prior, random):
        """Closed form [GG16 appendix; BBB15], or log q - log p at one draw; nats.

        The closed form is (p l^2 / 2) ||M||^2 + 1/2 sum(l^2 sigma^2
        - log(l^2 sigma^2) - 1), plus the same for the biases with p = 1. It is exact
        for p = 1.
        """
        if self.sampled_kl:
            weight, bias = self.draw(params, keep, random)
            log_prior = prior.weight.log_density(weight) + prior.bias.log_density(bias)
            return self.log_density(params, keep, weight, bias) - log_prior
        mean = params["mean"]
        sigma, bias_sigma = _sigmas(params)
        if self.spike:
            p = keep.view(-1, 1, 1)
            weights = prior.weight.energy(p * mean, p * (1 - p) * mean.square())
        else:
            weights = prior.weight.energy(mean)
        biases = prior.bias.energy(params["bias"])
        spread = prior.weight.kl_of_width(sigma.square())
        return weights + spread + biases + prior.bias.kl_of_width(bias_sigma.square())

    def kl_constant(self, params, keep, prior):
        """The entropy of the masks; the KL of normal weights is complete."""
        zero = torch.zeros_like(keep)
        if not self.spike or self.sampled_kl:
            return zero
        return zero - params["mean"].shape[1] * binary_entropy(keep)

    def kl_gradient(self, params, keep, prior, random):
        """Gradients without autograd, except for the exact spike and slab density."""
        if self.sampled_kl and self.spike:
            return super().kl_gradient(params, keep, prior, random)
        gradient = _sampled_gradient if self.sampled_kl else _closed_gradient
        sigma, bias_sigma = _sigmas(params)
        grad_mean, grad_sigma = gradient(prior.weight, params["mean"], sigma, random)
        grad_bias, grad_bias_sigma = gradient(
            prior.bias, params["bias"], bias_sigma, random
        )
        if self.spike:
            grad_mean.mul_(keep.view(-1, 1, 1))
        return {
            "mean": grad_mean,
            "rho": grad_sigma.mul_(params["rho"].sigmoid()),
            "bias": grad_bias,
            "bias_rho": grad_bias_sigma.mul_(params["bias_rho"].sigmoid()),
        }


def _sigmas(params):
    """Standard deviations of the weights and of the biases."""
    return functional.softplus(params["rho"]), functional.softplus(params["bias_rho"])


def _closed_gradient(prior, mean, sigma, random):
    """Gradient of KL(N(mean, sigma^2) || prior) in mean and sigma."""
    return -prior.score(mean), prior.precision * sigma - sigma.reciprocal()


def _sampled_gradient(prior, mean, sigma, random):
    """Gradient of log q - log p at mean + sigma e, in mean and sigma.

    There log q is -log sigma - e^2 / 2, which depends on sigma only.
    """
    normal = random.normal(*mean.shape[1:])
    grad_mean = -prior.score(torch.addcmul(mean, sigma, normal))
    return grad_mean, grad_mean * normal - sigma.reciprocal()


def _normal_log_density(deviation, sigma):
    """log N(deviation; 0, sigma^2), summed over the last axis."""
    squares = (deviation / sigma).square()
    return -(0.5 * squares + sigma.log() + 0.5 * math.log(2 * math.pi)).sum(-1)


def inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))


# ---- normal weights with a given width, and the spike and slab of [GG16]


@dataclass(frozen=True)
class FixedWidth(MeanField):
    """Mean-field weights with one given standard deviation.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of weights and biases.
    """

    quadratic_kl = True
    constants = ("rho", "bias_rho")

    sigma: float = field(default=0.1, kw_only=True)

    def init(self, mean, scale, bias, keep):
        """The means have the variance scale^2 - sigma^2, at least half of scale^2."""
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

    def linear(self, params, keep, x, random, layout=None):
        """As mean field, without gradients of the width."""
        return super().linear(self._detached(params), keep, x, random, layout)

    def linear_vjp(self, params, keep, x, random, layout=None):
        outputs, back = super().linear_vjp(params, keep, x, random, layout)

        def pullback(gradient, needed):
            grads, grad_x = back(gradient, needed)
            return self._without_constants(grads), grad_x

        return outputs, pullback

    def kl(self, params, keep, prior, random):
        """As mean field, without gradients of the width."""
        return super().kl(self._detached(params), keep, prior, random)

    def kl_gradient(self, params, keep, prior, random):
        return self._without_constants(super().kl_gradient(params, keep, prior, random))

    def _detached(self, params):
        return params | {name: params[name].detach() for name in self.constants}

    def _without_constants(self, grads):
        return {n: value for n, value in grads.items() if n not in self.constants}
