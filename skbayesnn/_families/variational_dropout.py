"""Variational dropout [KSW15]: Gaussian dropout whose alpha is learned.

Weights are theta (1 + sqrt(alpha) e), e standard normal. alpha is learned as a
logarithm, one per layer, per input unit or per weight, within bounds. Below the lower
bound the noise is negligible; above the upper one a weight is noise alone, and single
draws of such weights can be arbitrarily large [MAV17 section 4.2].

- Type A, independent noise [KSW15 section 3.1]: W_ij = theta_ij (1 + sqrt(alpha) e_ij),
  trained by local reparameterisation. An alpha per weight is learned through the
  variance v_ij = alpha_ij theta_ij^2 (additive parametrisation [MAV17 section 4.1]): a
  weight on its way to zero keeps its noise.
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

LOWEST_LOG_ALPHA = -10.0
HIGHEST_LOG_ALPHA = {"kingma": 0.0, "molchanov": 4.0}
KL = {
    "kingma": (_priors.kingma, _priors.kingma_slope),
    "molchanov": (_priors.molchanov, _priors.molchanov_slope),
}


@dataclass(frozen=True)
class Variational(Family):
    """Multiplicative normal noise of a learned variance; biases have none.

    Parameters
    ----------
    alpha : {"layer", "unit", "weight"}
        What has an alpha of its own; a unit is an input of the layer.
    approximation : {"kingma", "molchanov"}
        Of the KL to the log-uniform prior; kingma holds for alpha <= 1 only, which is
        enforced.
    """

    alpha: str = "unit"
    approximation: str = "molchanov"

    @abstractmethod
    def log_alpha_of(self, params: Params) -> torch.Tensor:
        """log alpha of every weight, within its bounds, (members, inputs, outputs)."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest log alpha."""
        return LOWEST_LOG_ALPHA, HIGHEST_LOG_ALPHA[self.approximation]

    def bounded(self, log_alpha: torch.Tensor) -> torch.Tensor:
        """log alpha within its bounds, where it also has no gradient beyond them."""
        return log_alpha.clamp(*self.bounds)

    def start(self, mean: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """log alpha at (1 - p) / p, (members, inputs or 1, outputs or 1)."""
        shape = {
            "layer": (1, 1),
            "unit": (mean.shape[1], 1),
            "weight": tuple(mean.shape[1:]),
        }[self.alpha]
        log_alpha = self.bounded(((1 - keep) / keep).log())
        return log_alpha.view(-1, 1, 1).expand(-1, *shape).clone()


# ---- type A: independent noise

# theta^2 never counts as less, so that log alpha is finite at theta = 0.
_TINY = 1e-12


@dataclass(frozen=True)
class Independent(Variational):
    """Independent normal weights, their standard deviations tied to their means."""

    def init(self, mean, scale, bias, keep):
        """theta is divided by sqrt(1 + alpha): E ||W||^2 is that of the weights."""
        log_alpha = self.start(mean, keep)
        theta = mean / (1 + log_alpha.exp()).sqrt()
        if self.alpha == "weight":
            log_variance = log_alpha + (theta.square() + _TINY).log()
            return {"mean": theta, "bias": bias, "log_variance": log_variance}
        return {"mean": theta, "bias": bias, "log_alpha": log_alpha}

    def linear(self, params, keep, x, noise, layout=None):
        """Activations with the weights' noise, by local reparameterisation."""
        mean, bias = params["mean"], params["bias"]
        variance = self._log_alpha(params).exp() * mean.square()
        return sample(x, mean, variance, bias, torch.zeros_like(bias), noise)

    def linear_vjp(self, params, keep, x, noise, layout=None):
        mean, bias = params["mean"], params["bias"]
        unbounded = self._unbounded(params)
        alpha = self.bounded(unbounded).exp()
        outputs, back = sample_vjp(
            x, mean, alpha * mean.square(), bias, torch.zeros_like(bias), noise
        )

        def pullback(gradient, needed):
            found = back(gradient, needed)
            half = found.variance.mul_(alpha).mul_(mean)
            of_params = self._through_log_alpha(params, unbounded, half * mean)
            of_params["mean"] = of_params["mean"] + found.mean.add_(half, alpha=2)
            return of_params | {"bias": found.bias}, found.x

        return outputs, pullback

    def draw(self, params, keep, noise):
        """Independent normal weights."""
        mean = params["mean"]
        std = (0.5 * self._log_alpha(params)).exp()
        return mean * (1 + std * noise.normal(*mean.shape[1:])), params["bias"]

    def kl(self, params, keep, prior, noise):
        """The approximation per weight, or the closed form under a Gaussian prior.

        Log-uniform: see `priors.log_uniform`. Gaussian:
        1/2 sum(l^2 theta^2 (1 + alpha) - log(l^2 alpha theta^2) - 1). And the biases'.
        """
        mean, log_alpha = params["mean"], self._log_alpha(params)
        biases = prior.bias.energy(params["bias"])
        if isinstance(prior, LogUniformPrior):
            value, _ = KL[self.approximation]
            return value(log_alpha).expand_as(mean).sum((1, 2)) + biases
        variance = log_alpha.exp() * (mean.square() + _TINY)
        return prior.weight.energy(mean) + prior.weight.spread(variance) + biases

    def kl_gradient(self, params, keep, prior, noise):
        mean, unbounded = params["mean"], self._unbounded(params)
        log_alpha = self.bounded(unbounded)
        if isinstance(prior, LogUniformPrior):
            _, slope = KL[self.approximation]
            of_log_alpha = slope(log_alpha).expand_as(mean)
            found = self._through_log_alpha(params, unbounded, of_log_alpha)
        else:
            precision, squares = prior.weight.precision, mean.square() + _TINY
            of_log_alpha = 0.5 * (precision * log_alpha.exp() * squares - 1)
            found = self._through_log_alpha(params, unbounded, of_log_alpha)
            direct = precision * mean + 2 * of_log_alpha * mean / squares
            found["mean"] = found["mean"] + direct
        return found | {"bias": prior.bias.precision * params["bias"]}

    def log_alpha_of(self, params):
        """log alpha of every weight, (members, inputs, outputs)."""
        return self._log_alpha(params).expand_as(params["mean"])

    def _unbounded(self, params):
        """log alpha as the parameters say it, in the shape that is learned."""
        if self.alpha == "weight":
            squares = params["mean"].square() + _TINY
            return params["log_variance"] - squares.log()
        return params["log_alpha"]

    def _log_alpha(self, params):
        """log alpha within its bounds, in the shape that is learned."""
        return self.bounded(self._unbounded(params))

    def _through_log_alpha(self, params, unbounded, of_log_alpha):
        """Gradient of log alpha, one per weight -> gradients of the parameters.

        unbounded : log alpha as the parameters say it
        """
        inside = self.bounded(unbounded) == unbounded
        found = of_log_alpha.sum_to_size(unbounded.shape) * inside
        if self.alpha != "weight":
            return {"log_alpha": found, "mean": torch.zeros_like(params["mean"])}
        mean = params["mean"]
        of_mean = (found * mean).div_(mean.square() + _TINY).mul_(-2)
        return {"log_variance": found, "mean": of_mean}


# ---- type B: correlated noise


@dataclass(frozen=True)
class Correlated(Variational):
    """One alpha per layer or per unit; the log-uniform prior only."""

    def init(self, mean, scale, bias, keep):
        """theta is divided by sqrt(1 + alpha): E ||W||^2 is that of the weights."""
        log_alpha = self.start(mean, keep)
        return {
            "mean": mean / (1 + log_alpha.exp()).sqrt(),
            "bias": bias,
            "log_alpha": log_alpha,
        }

    def linear(self, params, keep, x, noise, layout=None):
        """Fresh factors for every row."""
        std = self._std(params)
        factors = 1 + std.mT * per_input(x, layout, noise.normal)
        return affine(x * factors, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, noise, layout=None):
        mean, std = params["mean"], self._std(params).mT
        normal = per_input(x, layout, noise.normal)
        factors = 1 + std * normal
        outputs, back = affine_vjp(x * factors, mean, params["bias"])

        def pullback(gradient, needed):
            of_mean, of_bias, of_noisy = back(gradient, Needed.ALL)
            of_std = (of_noisy * x).mul_(normal).sum(1, keepdim=True)
            found = {
                "mean": of_mean,
                "bias": of_bias,
                "log_alpha": self._to_log_alpha(params, of_std * (0.5 * std)),
            }
            return found, of_noisy.mul_(factors) if needed else None

        return outputs, pullback

    def draw(self, params, keep, noise):
        """One factor per row of theta and draw."""
        mean = params["mean"]
        factors = 1 + self._std(params) * noise.normal(mean.shape[1], 1)
        return factors * mean, params["bias"]

    def kl(self, params, keep, prior, noise):
        """One term per row, the approximation's, and the biases' own; nats."""
        value, _ = KL[self.approximation]
        terms = value(self.bounded(params["log_alpha"])).sum((1, 2))
        rows_of_each = params["mean"].shape[1] / params["log_alpha"].shape[1]
        return rows_of_each * terms + prior.bias.energy(params["bias"])

    def kl_gradient(self, params, keep, prior, noise):
        _, slope = KL[self.approximation]
        log_alpha = self.bounded(params["log_alpha"])
        inside = log_alpha == params["log_alpha"]
        rows_of_each = params["mean"].shape[1] / log_alpha.shape[1]
        return {
            "bias": prior.bias.precision * params["bias"],
            "log_alpha": slope(log_alpha).mul_(rows_of_each).mul_(inside),
        }

    def log_alpha_of(self, params):
        """log alpha of every weight, (members, inputs, outputs)."""
        return self.bounded(params["log_alpha"]).expand_as(params["mean"])

    def _std(self, params):
        """sqrt(alpha), (members, inputs or 1, 1)."""
        return (0.5 * self.bounded(params["log_alpha"])).exp()

    def _to_log_alpha(self, params, per_unit):
        """(members, 1, inputs or 1) -> gradient of log alpha, zero outside its bounds.

        Rows that share an alpha add up.
        """
        log_alpha = params["log_alpha"]
        inside = self.bounded(log_alpha) == log_alpha
        found = per_unit.mT
        if found.shape[1] != log_alpha.shape[1]:
            found = found.sum(1, keepdim=True)
        return found * inside
