"""Variational dropout with correlated noise, type B [KSW15 section 3.2].

Rows s_i theta_i with s_i ~ N(1, alpha_i): Gaussian dropout on the layer's inputs, its
rate learned. The log-uniform prior has one KL term per row: q has one random number
per row.
"""

from dataclasses import dataclass

from skbayesnn._families.affine import affine, affine_vjp
from skbayesnn._families.base import Needed, per_input
from skbayesnn._families.variational import KL, Variational


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
