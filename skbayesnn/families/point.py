"""Point mass: W = M (MAP; maximum likelihood where the prior is flat)."""

import torch

stochastic = False
quadratic_kl = True


def init(mean, keep):
    """mean : (members, inputs, outputs)."""
    return {"mean": mean}


def linear(params, keep, x, bias, noise):
    """x : (members or 1, rows, inputs) -> (members, rows, outputs)."""
    mean = params["mean"]
    return torch.baddbmm(bias.unsqueeze(1), x.expand(len(mean), -1, -1), mean)


def linear_vjp(params, keep, x, bias, noise):
    """``linear`` and its pullback."""
    mean = params["mean"]
    x = x.expand(len(mean), -1, -1)

    def pullback(gradient, needs_input):
        of_x = torch.bmm(gradient, mean.mT) if needs_input else None
        return {"mean": torch.bmm(x.mT, gradient), "bias": gradient.sum(1)}, of_x

    return torch.baddbmm(bias.unsqueeze(1), x, mean), pullback


def draw(params, keep, noise):
    """One draw, whatever is asked for: (1, members, inputs, outputs)."""
    return params["mean"].unsqueeze(0)


def kl(params, keep, prior):
    """(l^2 / 2) ||M||^2, (members,), nats."""
    return prior.cross_entropy(params["mean"].square().sum((1, 2)))
