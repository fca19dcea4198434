"""Gradients of an expectation under a normal distribution, three ways [Gal16 3.1].

For F(mu, sigma) = E f(x) with x = mu + sigma e, e standard normal, each function
returns unbiased estimates of (dF/dmu, dF/dsigma), one per draw of e. No estimator has
the lowest variance for every f [Gal16 3.1.1]; see `examples/plot_gradient_variance.py`.
"""

from collections.abc import Callable

import torch

__all__ = ["characteristic_function", "leave_one_out", "pathwise", "score_function"]

_Function = Callable[[torch.Tensor], torch.Tensor]
_Gradients = tuple[torch.Tensor, torch.Tensor]


def score_function(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """Score-function estimator (REINFORCE): f(x) d log N(x; mu, sigma^2).

    Use it if f has no derivative.

    Parameters
    ----------
    f : callable
        Elementwise function of a tensor of shape (draws, *shape).
    mu, sigma : tensor of any shape
    normal : tensor of shape (draws, *shape)
        Standard normal numbers e.

    Returns
    -------
    grad_mu, grad_sigma : tensors of shape (draws, *shape)
        f(x) e / sigma and f(x) (e^2 - 1) / sigma.
    """
    values = f(mu + sigma * normal)
    return values * normal / sigma, values * (normal.square() - 1) / sigma


def pathwise(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """Pathwise estimator (reparameterisation trick): f'(x) dx.

    It requires a continuous f with a derivative almost everywhere. Jumps of f would
    make it biased.

    Parameters
    ----------
    f, mu, sigma, normal : as in ``score_function``

    Returns
    -------
    grad_mu, grad_sigma : tensors of shape (draws, *shape)
        f'(x) and f'(x) e.
    """
    slope, _ = _derivatives(f, mu + sigma * normal, 1)
    return slope, slope * normal


def characteristic_function(
    f: _Function, mu: torch.Tensor, sigma: torch.Tensor, normal: torch.Tensor
) -> _Gradients:
    """Estimator by the theorems of Bonnet and Price, with second derivatives.

    d/dmu E f = E f' and d/d(sigma^2) E f = 1/2 E f''. It requires a continuous f' with
    a derivative almost everywhere. Kinks of f (ReLU) would make it biased.

    Parameters
    ----------
    f, mu, sigma, normal : as in ``score_function``

    Returns
    -------
    grad_mu, grad_sigma : tensors of shape (draws, *shape)
        f'(x) and sigma f''(x).
    """
    slope, curvature = _derivatives(f, mu + sigma * normal, 2)
    return slope, sigma * curvature


def leave_one_out(values: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of the other draws from the value of each draw.

    This baseline reduces the variance of the score-function estimator and keeps it
    unbiased [Kool et al. 2019].

    Parameters
    ----------
    values : tensor of shape (draws, ...)
        At least two draws.

    Returns
    -------
    centred : tensor of shape (draws, ...)
    """
    n_draws = len(values)
    return (values - values.mean(0)) * (n_draws / (n_draws - 1))


def _derivatives(f: _Function, x: torch.Tensor, order: int) -> tuple[torch.Tensor, ...]:
    """f' and, for order 2, f'' at x, elementwise."""
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
