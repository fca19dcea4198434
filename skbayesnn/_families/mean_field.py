"""Mean-field normal weights: Bayes by Backprop [BBB15].

W_ij ~ N(m_ij, sigma_ij^2) with sigma = softplus(rho), biases likewise. With
dropout > 0, the spike and slab of [GG16]: W_ij = z_i m_ij + sigma_ij e_ij with
z_i ~ Bernoulli(p) per row and e_ij standard normal.

Normal weights of a given width, or mixtures of two: the spike and slab of [GG16].

W_ij = z_i m_ij + sigma e_ij, z_i ~ Bernoulli(p) per row, p = keep, and e_ij standard
normal; biases are N(b, sigma^2). sigma is given, as in appendix 3 there, not learned.
"""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from skbayesnn._families.base import Family, Params, binary_entropy, per_input
from skbayesnn._families.weight_noise import sample, sample_vjp

# ---- Mean-field normal weights: Bayes by Backprop [BBB15]

# Share of the variance of the start weights that is uncertainty: small enough for the
# data to be seen through the noise, large enough not to be a point mass.
START_SHARE = 0.01


def signal_to_noise(params: Params) -> torch.Tensor:
    """|m| / sigma of every weight, (members, inputs, outputs) [BBB15 section 5.1].

    Zero where there is neither.
    """
    return (params["mean"].abs() / functional.softplus(params["rho"])).nan_to_num(0.0)


@dataclass(frozen=True)
class MeanField(Family):
    """Independent normal weights and biases.

    Parameters
    ----------
    spike : bool
        Whether rows are dropped; without, ``keep`` is not looked at.
    shared_draw : bool
        One draw of the weights for all rows of a step (path-wise, [BBB15]) instead
        of local reparameterisation.
    sampled_kl : bool
        log q(W) - log p(W) at one draw of the weights instead of the closed form: for
        priors that have none, and for the exact density of the spike and slab.
    """

    spike: bool = False
    shared_draw: bool = False
    sampled_kl: bool = False

    def init(self, mean, scale, bias, keep):
        """sigma^2 starts at ``START_SHARE`` scale^2, the means at the rest of it."""
        keep = keep.view(-1, 1, 1) if self.spike else 1.0
        rho = inverse_softplus(math.sqrt(START_SHARE) * scale)
        return {
            "mean": mean * math.sqrt(1 - START_SHARE) / keep**0.5,
            "rho": torch.full_like(mean, rho),
            "bias": bias,
            "bias_rho": torch.full_like(bias, rho),
        }

    def linear(self, params, keep, x, noise, layout=None):
        """Activations with the weights' noise, by local reparameterisation or not."""
        if self.shared_draw:
            weight, bias = self.draw(params, keep, noise.of_weights)
            return torch.matmul(x, weight) + bias.unsqueeze(1)
        return sample(
            x,
            params["mean"],
            functional.softplus(params["rho"]).square(),
            params["bias"],
            functional.softplus(params["bias_rho"]).square(),
            noise,
            self._spikes(keep, x, noise, layout),
        )

    def linear_vjp(self, params, keep, x, noise, layout=None):
        if self.shared_draw:
            return super().linear_vjp(params, keep, x, noise, layout)
        sigma, bias_sigma = _sigmas(params)
        outputs, back = sample_vjp(
            x,
            params["mean"],
            sigma.square(),
            params["bias"],
            bias_sigma.square(),
            noise,
            self._spikes(keep, x, noise, layout),
        )

        def pullback(gradient, needed):
            found = back(gradient, needed)
            of_sigma, of_bias_sigma = 2 * sigma, 2 * bias_sigma
            of_sigma.mul_(found.variance)
            of_bias_sigma.mul_(found.bias_variance)
            of_params = {
                "mean": found.mean,
                "rho": of_sigma.mul_(params["rho"].sigmoid()),
                "bias": found.bias,
                "bias_rho": of_bias_sigma.mul_(params["bias_rho"].sigmoid()),
            }
            return of_params, found.x

        return outputs, pullback

    def _spikes(self, keep, x, noise, layout):
        """Which inputs are there, (lead, rows, inputs), or None for all of them."""
        if not self.spike:
            return None
        return per_input(x, layout, noise.bernoulli, keep)

    def draw(self, params, keep, noise):
        """Normal weights and biases; spikes are drawn first."""
        mean, bias = params["mean"], params["bias"]
        if self.spike:
            mean = noise.bernoulli(keep, mean.shape[1]).unsqueeze(-1) * mean
        sigma, bias_sigma = _sigmas(params)
        weight = mean + sigma * noise.normal(*mean.shape[-2:])
        return weight, bias + bias_sigma * noise.normal(bias.shape[-1])

    def without(self, params, used):
        """Their sigma is zero, too."""
        rho = params["rho"].masked_fill(~used, -torch.inf)
        return super().without(params, used) | {"rho": rho}

    def log_density(self, params, keep, weight, bias):
        """log q(W, b), the lead axes of W and b, nats.

        weight : (..., members, inputs, outputs); bias : (..., members, outputs)
        """
        sigma, bias_sigma = _sigmas(params)
        of_rows = _normal_log_density(weight - params["mean"], sigma)
        if self.spike:
            p = keep.view(-1, 1)
            of_rows = torch.logaddexp(
                p.log() + of_rows, (1 - p).log() + _normal_log_density(weight, sigma)
            )
        of_bias = _normal_log_density(bias - params["bias"], bias_sigma)
        return of_rows.sum(-1) + of_bias

    def as_prior(self, params):
        """Fields of the `PosteriorPrior` that q(W, b) is."""
        sigma, bias_sigma = _sigmas(params)
        return {
            "mean": params["mean"],
            "std": sigma,
            "bias_mean": params["bias"],
            "bias_std": bias_sigma,
        }

    def kl(self, params, keep, prior, noise):
        """Closed form [GG16 appendix; BBB15], or one draw's log q - log p; nats.

        (p l^2 / 2) ||M||^2 + 1/2 sum(l^2 sigma^2 - log(l^2 sigma^2) - 1), exact for
        p = 1, and of the biases with p = 1.
        """
        if self.sampled_kl:
            weight, bias = self.draw(params, keep, noise)
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
        spread = prior.weight.spread(sigma.square())
        return weights + spread + biases + prior.bias.spread(bias_sigma.square())

    def kl_constant(self, params, keep, prior):
        """The masks' entropy; of normal weights and biases nothing is left out."""
        nothing = torch.zeros_like(keep)
        if not self.spike or self.sampled_kl:
            return nothing
        return nothing - params["mean"].shape[1] * binary_entropy(keep)

    def kl_gradient(self, params, keep, prior, noise):
        """By hand, but for the exact density of the spike and slab."""
        if self.sampled_kl and self.spike:
            return super().kl_gradient(params, keep, prior, noise)
        gradient = _sampled_gradient if self.sampled_kl else _closed_gradient
        sigma, bias_sigma = _sigmas(params)
        of_mean, of_sigma = gradient(prior.weight, params["mean"], sigma, noise)
        of_bias, of_bias_sigma = gradient(prior.bias, params["bias"], bias_sigma, noise)
        if self.spike:
            of_mean.mul_(keep.view(-1, 1, 1))
        return {
            "mean": of_mean,
            "rho": of_sigma.mul_(params["rho"].sigmoid()),
            "bias": of_bias,
            "bias_rho": of_bias_sigma.mul_(params["bias_rho"].sigmoid()),
        }


def _sigmas(params):
    """Standard deviations of the weights and of the biases."""
    return functional.softplus(params["rho"]), functional.softplus(params["bias_rho"])


def _closed_gradient(prior, mean, sigma, noise):
    """Of KL(N(mean, sigma^2) || prior) with respect to mean and sigma."""
    return -prior.score(mean), prior.precision * sigma - sigma.reciprocal()


def _sampled_gradient(prior, mean, sigma, noise):
    """Of log q - log p at mean + sigma e, with respect to mean and sigma.

    log q depends on sigma alone there: it is -log sigma - e^2 / 2.
    """
    normal = noise.normal(*mean.shape[1:])
    of_mean = -prior.score(torch.addcmul(mean, sigma, normal))
    return of_mean, of_mean * normal - sigma.reciprocal()


def _normal_log_density(deviation, sigma):
    """log N(deviation; 0, sigma^2), summed over the last axis."""
    squares = (deviation / sigma).square()
    return -(0.5 * squares + sigma.log() + 0.5 * math.log(2 * math.pi)).sum(-1)


def inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))


# ---- normal weights of a given width, or mixtures of two: the spike and slab of [GG16]


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
