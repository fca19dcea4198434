"""Gradients of an expectation under a normal distribution, three ways [Gal16 3.1].

For F(mu, sigma) = E f(x), x ~ N(mu, sigma^2) = mu + sigma e, each function gives
unbiased estimates of (dF/dmu, dF/dsigma), one per draw of e. None has the lowest
variance for every f [Gal16 3.1.1]: `examples/plot_gradient_variance.py`.
"""

from collections.abc import Callable

import torch

__all__ = ["characteristic_function", "leave_one_out", "pathwise", "score_function"]

_Function = Callable[[torch.Tensor], torch.Tensor]
_Gradients = tuple[torch.Tensor, torch.Tensor]


def score_function(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """f(x) d log N(x; mu, sigma^2): REINFORCE; f need not have a derivative.

    Parameters
    ----------
    f : callable
        Element by element, (draws, *shape) -> (draws, *shape).
    mu, sigma : tensor of any shape
    normal : tensor of shape (draws, *shape)
        Standard normal numbers e.

    Returns
    -------
    of_mu, of_sigma : tensors of shape (draws, *shape)
        f(x) e / sigma and f(x) (e^2 - 1) / sigma.
    """
    values = f(mu + sigma * normal)
    return values * normal / sigma, values * (normal.square() - 1) / sigma


def pathwise(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """f'(x) dx: the reparameterisation trick.

    f is continuous, with a derivative nearly everywhere: of jumps it sees nothing.

    Parameters
    ----------
    f, mu, sigma, normal : as in ``score_function``

    Returns
    -------
    of_mu, of_sigma : tensors of shape (draws, *shape)
        f'(x) and f'(x) e.
    """
    slope, _ = _derivatives(f, mu + sigma * normal, 1)
    return slope, slope * normal


def characteristic_function(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """By the theorems of Bonnet and Price.

    d/dmu E f = E f' and d/d(sigma^2) E f = 1/2 E f''. f' is continuous, with a
    derivative nearly everywhere: of kinks (ReLU) it sees nothing.

    Parameters
    ----------
    f, mu, sigma, normal : as in ``score_function``

    Returns
    -------
    of_mu, of_sigma : tensors of shape (draws, *shape)
        f'(x) and sigma f''(x).
    """
    slope, curvature = _derivatives(f, mu + sigma * normal, 2)
    return slope, sigma * curvature


def leave_one_out(values: torch.Tensor) -> torch.Tensor:
    """Each draw's value minus the mean of the other draws'.

    A baseline for the score function that keeps it unbiased [Kool et al. 2019].

    Parameters
    ----------
    values : tensor of shape (draws, ...)
        Of at least two draws.

    Returns
    -------
    centred : tensor of shape (draws, ...)
    """
    n_draws = len(values)
    return (values - values.mean(0)) * (n_draws / (n_draws - 1))


def _derivatives(f: _Function, x: torch.Tensor, order: int) -> tuple[torch.Tensor, ...]:
    """f' and, for order 2, f'' at x, element by element."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        total = f(x).sum()
        if not total.requires_grad:
            return torch.zeros_like(x), torch.zeros_like(x)
        [slope] = torch.autograd.grad(total, x, create_graph=order > 1)
        if order == 1 or not slope.requires_grad:
            return slope.detach(), torch.zeros_like(x)
        [curvature] = torch.autograd.grad(
            slope.sum(), x, allow_unused=True, materialize_grads=True
        )
    return slope.detach(), curvature
