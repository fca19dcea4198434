"""Point mass: W = M (MAP; maximum likelihood where the prior is flat)."""

from dataclasses import dataclass

from skbayesnn._families.affine import affine, affine_vjp
from skbayesnn._families.base import Family


@dataclass(frozen=True)
class Point(Family):
    """No randomness at all."""

    stochastic = False
    quadratic_kl = True

    def init(self, mean, scale, bias, keep):
        """The weights and biases as they are wanted."""
        return {"mean": mean, "bias": bias}

    def linear(self, params, keep, x, noise, layout=None):
        """x W + b."""
        return affine(x, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, noise, layout=None):
        outputs, back = affine_vjp(x, params["mean"], params["bias"])

        def pullback(gradient, needed):
            of_mean, of_bias, of_x = back(gradient, needed)
            return {"mean": of_mean, "bias": of_bias}, of_x

        return outputs, pullback

    def draw(self, params, keep, noise):
        """One draw, whatever is asked for: (1, members, inputs, outputs)."""
        return params["mean"].unsqueeze(0), params["bias"]

    def training_draw(self, params, keep, noise, n_rows):
        """Weights and biases."""
        return params["mean"], params["bias"]

    def kl(self, params, keep, prior, noise):
        """(l^2 / 2) (||M||^2 + ||b||^2), (members,), nats."""
        return prior.weight.energy(params["mean"]) + prior.bias.energy(params["bias"])

    def kl_constant(self, params, keep, prior):
        """The prior's normaliser."""
        of_biases = super().kl_constant(params, keep, prior)
        return of_biases - prior.weight.log_scale(params["mean"])
