"""Point mass: W = M (MAP; maximum likelihood where the prior is flat)."""

from dataclasses import dataclass

import torch

from skbayesnn.families.base import Family, affine


@dataclass(frozen=True)
class Point(Family):
    """No randomness at all."""

    stochastic = False
    quadratic_kl = True

    def init(self, mean, scale, bias, keep):
        """The weights and biases as they are wanted."""
        return {"mean": mean, "bias": bias}

    def linear(self, params, keep, x, noise):
        """x W + b."""
        return affine(x, params["mean"], params["bias"])

    def linear_vjp(self, params, keep, x, noise):
        """``linear`` and its pullback."""
        mean = params["mean"]
        x = x.expand(len(mean), -1, -1)

        def pullback(gradient, needs_input):
            of_x = torch.bmm(gradient, mean.mT) if needs_input else None
            return {"mean": torch.bmm(x.mT, gradient), "bias": gradient.sum(1)}, of_x

        return affine(x, mean, params["bias"]), pullback

    def draw(self, params, keep, noise):
        """One draw, whatever is asked for: (1, members, inputs, outputs)."""
        return params["mean"].unsqueeze(0), params["bias"]

    def kl(self, params, keep, prior, noise):
        """(l^2 / 2) (||M||^2 + ||b||^2), (members,), nats."""
        return prior.weight.energy(params["mean"]) + prior.bias.energy(params["bias"])
