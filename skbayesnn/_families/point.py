"""Point mass W = M: maximum a posteriori, or maximum likelihood for a flat prior."""

from dataclasses import dataclass

from skbayesnn._families.affine import affine, affine_vjp
from skbayesnn._families.base import Family


@dataclass(frozen=True)
class Point(Family):
    """Deterministic weights W = M."""

    stochastic = False
    quadratic_kl = True

    def init(self, mean, scale, bias, keep):
        return {"mean": mean, "bias": bias}

    def linear(self, params, keep, x, random, layout=None):
        """x W + b."""
        return affine(x, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, random, layout=None):
        outputs, back = affine_vjp(x, params["mean"], params["bias"])

        def pullback(gradient, needed):
            grad_mean, grad_bias, grad_x = back(gradient, needed)
            return {"mean": grad_mean, "bias": grad_bias}, grad_x

        return outputs, pullback

    def draw(self, params, keep, random):
        """A single draw, (1, members, inputs, outputs), for any number of draws."""
        return params["mean"].unsqueeze(0), params["bias"]

    def training_draw(self, params, keep, random, n_rows):
        return params["mean"], params["bias"]

    def kl(self, params, keep, prior, random):
        """(l^2 / 2) (||M||^2 + ||b||^2), (members,), nats."""
        return prior.weight.energy(params["mean"]) + prior.bias.energy(params["bias"])

    def kl_constant(self, params, keep, prior):
        """The prior's normalising constant."""
        bias_constant = super().kl_constant(params, keep, prior)
        return bias_constant - prior.weight.log_scale(params["mean"])
