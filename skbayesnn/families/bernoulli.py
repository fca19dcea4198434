"""Bernoulli dropout [GG16]: rows z_i m_i with z_i ~ Bernoulli(p), p = keep.

The masks are *not* rescaled: E W = p M, and eq. 4's factor p stands as it is.
(torch's own dropout rescales by 1 / p, which turns it into 1 / p.)
"""

import torch

stochastic = True
quadratic_kl = True


def init(mean, keep):
    """mean : (members, inputs, outputs), the wanted mean of W under keep = 1.

    M is scaled by 1 / sqrt(p), so that E ||W||^2 is that of the undropped network.
    """
    return {"mean": mean / keep.sqrt().view(-1, 1, 1)}


def linear(params, keep, x, bias, noise):
    """A fresh mask per row; x : (members or 1, rows, inputs)."""
    mean = params["mean"]
    masked = x * noise.bernoulli(keep, *x.shape[1:])
    return torch.baddbmm(bias.unsqueeze(1), masked.expand(len(mean), -1, -1), mean)


def linear_vjp(params, keep, x, bias, noise):
    """``linear`` and its pullback; x is overwritten where the masks fit into it.

    Masked activations serve the pullback as well as the activations themselves: at
    dropped units the gradient is zero.
    """
    mean = params["mean"]
    mask = noise.bernoulli(keep, *x.shape[1:])
    masked = x.mul_(mask) if len(x) >= len(mask) else x * mask
    masked = masked.expand(len(mean), -1, -1)

    def pullback(gradient, needs_input):
        of_x = torch.bmm(gradient, mean.mT).mul_(mask) if needs_input else None
        return {"mean": torch.bmm(masked.mT, gradient), "bias": gradient.sum(1)}, of_x

    return torch.baddbmm(bias.unsqueeze(1), masked, mean), pullback


def draw(params, keep, noise):
    """One mask per draw, on the rows of M: (draws, members, inputs, outputs)."""
    mean = params["mean"]
    return noise.bernoulli(keep, mean.shape[1]).unsqueeze(-1) * mean


def kl(params, keep, prior):
    """(p l^2 / 2) ||M||^2, (members,), nats: eq. 4; H(p) is constant in M [Gal16]."""
    return prior.cross_entropy(keep * params["mean"].square().sum((1, 2)))
