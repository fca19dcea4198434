"""Variational dropout [KSW15]: Gaussian dropout with a learned alpha.

Weights are theta (1 + sqrt(alpha) e), e standard normal. log alpha is learned, one per
layer, per input unit or per weight, within bounds. Below the lower bound the noise is
negligible. Above the upper bound a weight is pure noise, and single draws of such
weights can be arbitrarily large [MAV17 section 4.2].

- Type A, independent noise [KSW15 section 3.1]: W_ij = theta_ij (1 + sqrt(alpha) e_ij),
  trained by local reparameterisation. An alpha per weight is learned through the
  variance v_ij = alpha_ij theta_ij^2 (additive parametrisation [MAV17 section 4.1]), so
  that a weight that shrinks to zero keeps its noise.
- Type B, correlated noise [KSW15 section 3.2]: rows s_i theta_i with s_i ~ N(1,
  alpha_i), as Gaussian dropout on the layer's inputs. The log-uniform prior has one KL
  term per row, since q has one random number per row.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch

from skbayesnn import _priors
from skbayesnn._families.affine import affine, affine_vjp
from skbayesnn._families.base import Family, Needed, Params, per_input
from skbayesnn._families.weight_noise import sample, sample_vjp
from skbayesnn._priors import LogUniformPrior

# ---- the learned alpha

MIN_LOG_ALPHA = -10.0
MAX_LOG_ALPHA = {"kingma": 0.0, "molchanov": 4.0}
KL = {
    "kingma": (_priors.kingma, _priors.kingma_slope),
    "molchanov": (_priors.molchanov, _priors.molchanov_slope),
}


@dataclass(frozen=True)
class Variational(Family):
    """Weights with multiplicative normal noise of a learned variance; biases have none.

    Parameters
    ----------
    alpha : {"layer", "unit", "weight"}
        Granularity of alpha; a unit is an input of the layer.
    approximation : {"kingma", "molchanov"}
        Approximation of the KL to the log-uniform prior. "kingma" is valid for
        alpha <= 1 only, which is enforced.
    """

    alpha: str = "unit"
    approximation: str = "molchanov"

    @abstractmethod
    def log_alpha_of(self, params: Params) -> torch.Tensor:
        """log alpha of every weight, within its bounds, (members, inputs, outputs)."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest log alpha."""
        return MIN_LOG_ALPHA, MAX_LOG_ALPHA[self.approximation]

    def bounded(self, log_alpha: torch.Tensor) -> torch.Tensor:
        """Clip log alpha to its bounds; outside, its gradient is zero."""
        return log_alpha.clamp(*self.bounds)

    def start(self, mean: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Initial log alpha, log((1 - p) / p), (members, inputs or 1, outputs or 1)."""
        shape = {
            "layer": (1, 1),
            "unit": (mean.shape[1], 1),
            "weight": tuple(mean.shape[1:]),
        }[self.alpha]
        log_alpha = self.bounded(((1 - keep) / keep).log())
        return log_alpha.view(-1, 1, 1).expand(-1, *shape).clone()


# ---- type A: independent noise

# Added to theta^2, so that log alpha is finite at theta = 0.
MIN_SQUARE = 1e-12


@dataclass(frozen=True)
class Independent(Variational):
    """Independent normal weights; the standard deviations are tied to the means."""

    def init(self, mean, scale, bias, keep):
        """theta is ``mean`` / sqrt(1 + alpha), so E ||W||^2 equals ||mean||^2."""
        log_alpha = self.start(mean, keep)
        theta = mean / (1 + log_alpha.exp()).sqrt()
        if self.alpha == "weight":
            log_variance = log_alpha + (theta.square() + MIN_SQUARE).log()
            return {"mean": theta, "bias": bias, "log_variance": log_variance}
        return {"mean": theta, "bias": bias, "log_alpha": log_alpha}

    def linear(self, params, keep, x, random, layout=None):
        """The affine map, by local reparameterisation."""
        mean, bias = params["mean"], params["bias"]
        variance = self._log_alpha(params).exp() * mean.square()
        return sample(x, mean, variance, bias, torch.zeros_like(bias), random)

    def linear_vjp(self, params, keep, x, random, layout=None):
        mean, bias = params["mean"], params["bias"]
        unbounded = self._unbounded(params)
        alpha = self.bounded(unbounded).exp()
        outputs, back = sample_vjp(
            x, mean, alpha * mean.square(), bias, torch.zeros_like(bias), random
        )

        def pullback(gradient, needed):
            back_grads = back(gradient, needed)
            half = back_grads.variance.mul_(alpha).mul_(mean)
            grads = self._grads_through_log_alpha(params, unbounded, half * mean)
            grads["mean"] = grads["mean"] + back_grads.mean.add_(half, alpha=2)
            return grads | {"bias": back_grads.bias}, back_grads.x

        return outputs, pullback

    def draw(self, params, keep, random):
        mean = params["mean"]
        std = (0.5 * self._log_alpha(params)).exp()
        return mean * (1 + std * random.normal(*mean.shape[1:])), params["bias"]

    def kl(self, params, keep, prior, random):
        """KL of the weights and biases, (members,), nats.

        Under a log-uniform prior, an approximation per weight (see `_priors`). Under a
        Gaussian prior, 1/2 sum(l^2 theta^2 (1 + alpha) - log(l^2 alpha theta^2) - 1).
        """
        mean, log_alpha = params["mean"], self._log_alpha(params)
        biases = prior.bias.energy(params["bias"])
        if isinstance(prior, LogUniformPrior):
            value, _ = KL[self.approximation]
            return value(log_alpha).expand_as(mean).sum((1, 2)) + biases
        variance = log_alpha.exp() * (mean.square() + MIN_SQUARE)
        return prior.weight.energy(mean) + prior.weight.kl_of_width(variance) + biases

    def kl_gradient(self, params, keep, prior, random):
        mean, unbounded = params["mean"], self._unbounded(params)
        log_alpha = self.bounded(unbounded)
        if isinstance(prior, LogUniformPrior):
            _, slope = KL[self.approximation]
            grad_log_alpha = slope(log_alpha).expand_as(mean)
            grads = self._grads_through_log_alpha(params, unbounded, grad_log_alpha)
        else:
            precision, squares = prior.weight.precision, mean.square() + MIN_SQUARE
            grad_log_alpha = 0.5 * (precision * log_alpha.exp() * squares - 1)
            grads = self._grads_through_log_alpha(params, unbounded, grad_log_alpha)
            direct = precision * mean + 2 * grad_log_alpha * mean / squares
            grads["mean"] = grads["mean"] + direct
        return grads | {"bias": prior.bias.precision * params["bias"]}

    def log_alpha_of(self, params):
        """log alpha of every weight, (members, inputs, outputs)."""
        return self._log_alpha(params).expand_as(params["mean"])

    def _unbounded(self, params):
        """log alpha before clipping, in the shape that is learned."""
        if self.alpha == "weight":
            squares = params["mean"].square() + MIN_SQUARE
            return params["log_variance"] - squares.log()
        return params["log_alpha"]

    def _log_alpha(self, params):
        """Clipped log alpha, in the shape that is learned."""
        return self.bounded(self._unbounded(params))

    def _grads_through_log_alpha(self, params, unbounded, grad_log_alpha):
        """Gradients of the parameters, from the gradient of log alpha of every weight.

        unbounded : log alpha before clipping
        """
        is_within_bounds = self.bounded(unbounded) == unbounded
        grad_bounded = grad_log_alpha.sum_to_size(unbounded.shape) * is_within_bounds
        if self.alpha != "weight":
            return {"log_alpha": grad_bounded, "mean": torch.zeros_like(params["mean"])}
        mean = params["mean"]
        grad_mean = (grad_bounded * mean).div_(mean.square() + MIN_SQUARE).mul_(-2)
        return {"log_variance": grad_bounded, "mean": grad_mean}


# ---- type B: correlated noise


@dataclass(frozen=True)
class Correlated(Variational):
    """One alpha per layer or per unit; for the log-uniform prior only."""

    def init(self, mean, scale, bias, keep):
        """theta is ``mean`` / sqrt(1 + alpha), so E ||W||^2 equals ||mean||^2."""
        log_alpha = self.start(mean, keep)
        return {
            "mean": mean / (1 + log_alpha.exp()).sqrt(),
            "bias": bias,
            "log_alpha": log_alpha,
        }

    def linear(self, params, keep, x, random, layout=None):
        """The affine map with new factors for every row."""
        std = self._std(params)
        factors = 1 + std.mT * per_input(x, layout, random.normal)
        return affine(x * factors, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, random, layout=None):
        mean, std = params["mean"], self._std(params).mT
        normal = per_input(x, layout, random.normal)
        factors = 1 + std * normal
        outputs, back = affine_vjp(x * factors, mean, params["bias"])

        def pullback(gradient, needed):
            grad_mean, grad_bias, grad_noisy = back(gradient, Needed.ALL)
            grad_std = (grad_noisy * x).mul_(normal).sum(1, keepdim=True)
            grads = {
                "mean": grad_mean,
                "bias": grad_bias,
                "log_alpha": self._grad_log_alpha(params, grad_std * (0.5 * std)),
            }
            return grads, grad_noisy.mul_(factors) if needed else None

        return outputs, pullback

    def draw(self, params, keep, random):
        """Sample one factor per row of theta and draw."""
        mean = params["mean"]
        factors = 1 + self._std(params) * random.normal(mean.shape[1], 1)
        return factors * mean, params["bias"]

    def kl(self, params, keep, prior, random):
        """One term per row of theta, and the KL of the biases, (members,), nats."""
        value, _ = KL[self.approximation]
        terms = value(self.bounded(params["log_alpha"])).sum((1, 2))
        rows_per_alpha = params["mean"].shape[1] / params["log_alpha"].shape[1]
        return rows_per_alpha * terms + prior.bias.energy(params["bias"])

    def kl_gradient(self, params, keep, prior, random):
        _, slope = KL[self.approximation]
        log_alpha = self.bounded(params["log_alpha"])
        is_within_bounds = log_alpha == params["log_alpha"]
        rows_per_alpha = params["mean"].shape[1] / log_alpha.shape[1]
        return {
            "bias": prior.bias.precision * params["bias"],
            "log_alpha": slope(log_alpha).mul_(rows_per_alpha).mul_(is_within_bounds),
        }

    def log_alpha_of(self, params):
        """log alpha of every weight, (members, inputs, outputs)."""
        return self.bounded(params["log_alpha"]).expand_as(params["mean"])

    def _std(self, params):
        """sqrt(alpha), (members, inputs or 1, 1)."""
        return (0.5 * self.bounded(params["log_alpha"])).exp()

    def _grad_log_alpha(self, params, per_unit):
        """Gradient of log alpha, zero outside its bounds; summed over a shared alpha.

        per_unit : gradient per input, (members, 1, inputs or 1)
        """
        log_alpha = params["log_alpha"]
        is_within_bounds = self.bounded(log_alpha) == log_alpha
        grad = per_unit.mT
        if grad.shape[1] != log_alpha.shape[1]:
            grad = grad.sum(1, keepdim=True)
        return grad * is_within_bounds
