"""Variational dropout with independent noise, type A [KSW15 section 3.1].

W_ij = theta_ij (1 + sqrt(alpha) e_ij), trained by local reparameterisation. An alpha
per weight is learned through the variance v_ij = alpha_ij theta_ij^2 (additive
parametrisation [MAV17 section 4.1]): a weight on its way to zero keeps its noise.
"""

from dataclasses import dataclass

import torch

from skbayesnn._families.local_reparameterization import sample, sample_vjp
from skbayesnn._families.variational import KL, Variational
from skbayesnn._priors import LogUniformPrior

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
