"""Three estimators of one gradient: exact expectations, and what each requires of f.

F(mu, sigma) = E f(x), x ~ N(mu, sigma^2), has a closed form for all f below. The
estimators are functions of standard normal draws e. At the nodes of Gauss-Hermite
quadrature their expectations and variances are exact. Means over random draws stand for
functions that quadrature does not integrate exactly.
"""

import math

import numpy as np
import pytest
import torch

from skbayesnn.gradient_estimators import (
    characteristic_function,
    leave_one_out,
    pathwise,
    score_function,
)

ESTIMATORS = (score_function, pathwise, characteristic_function)
SMOOTH = (pathwise, characteristic_function)
DRAWS = 200_000
NODES = 60
# Tolerance of random estimates, in standard errors: 6 is one failure in 500 million.
ERRORS = 6


def _damped(sigma):
    return torch.exp(-sigma.square() / 2)


# f, and the derivatives of E f with respect to mu and sigma.
CLOSED_FORMS = {
    "x": (
        lambda x: x,
        lambda m, s: torch.ones_like(m + s),
        lambda m, s: torch.zeros_like(m + s),
    ),
    "x^2": (torch.square, lambda m, s: 2 * m, lambda m, s: 2 * s),
    "x^3": (
        lambda x: x**3,
        lambda m, s: 3 * m**2 + 3 * s**2,
        lambda m, s: 6 * m * s,
    ),
    "x^4": (
        lambda x: x**4,
        lambda m, s: 4 * m**3 + 12 * m * s**2,
        lambda m, s: 12 * m**2 * s + 12 * s**3,
    ),
    "sin": (
        torch.sin,
        lambda m, s: m.cos() * _damped(s),
        lambda m, s: -s * m.sin() * _damped(s),
    ),
    "cos": (
        torch.cos,
        lambda m, s: -m.sin() * _damped(s),
        lambda m, s: -s * m.cos() * _damped(s),
    ),
    "exp": (
        torch.exp,
        lambda m, s: m.exp() / _damped(s),
        lambda m, s: s * m.exp() / _damped(s),
    ),
}

by_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__
)
by_function = pytest.mark.parametrize("name", CLOSED_FORMS)


def _normals(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _means_and_stds(seed, *shape):
    """mu of both signs, sigma between 0.2 and 1."""
    generator = torch.Generator().manual_seed(1000 + seed)
    mu = 3 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1.5
    sigma = 0.2 + 0.8 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return mu, sigma


def _quadrature():
    """Nodes and weights of E g(e), e standard normal; exact to degree 2 NODES - 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / math.sqrt(2 * math.pi)
    return torch.as_tensor(nodes), torch.as_tensor(weights)


def _exact(estimator, f, mu, sigma):
    """Mean and standard deviation of both estimates, [(mean, std), (mean, std)]."""
    nodes, weights = _quadrature()
    nodes = nodes.view(-1, *(1,) * mu.ndim).expand(-1, *mu.shape)
    results = []
    for values in estimator(f, mu, sigma, nodes):
        mean = torch.tensordot(weights, values, 1)
        variance = torch.tensordot(weights, (values - mean).square(), 1)
        results.append((mean, variance.sqrt()))
    return results


def _assert_mean(values, expected, std):
    """The mean over the draws, within ERRORS standard errors (and rounding)."""
    error = ERRORS * std / math.sqrt(len(values)) + 1e-12
    assert torch.all((values.mean(0) - expected).abs() <= error)


@by_function
@by_estimator
def test_expectation_is_the_gradient(seed, name, estimator):
    f, *exact_gradients = CLOSED_FORMS[name]
    mu, sigma = _means_and_stds(seed, 3, 7)
    for (mean, _), exact in zip(
        _exact(estimator, f, mu, sigma), exact_gradients, strict=True
    ):
        torch.testing.assert_close(mean, exact(mu, sigma), rtol=1e-9, atol=1e-9)


CONSTANT_SLOPE = {
    "x": lambda x: x,
    "3 x - 2": lambda x: 3 * x - 2,
    "x / 4, the slope requires a gradient": lambda x: (
        x * torch.full((), 0.25, dtype=x.dtype, requires_grad=True)
    ),
    "2 x, in two halves": lambda x: x + x,
    "sum of (x + 1)^2 and -x^2": lambda x: (x + 1) ** 2 - x**2,
}


@pytest.mark.parametrize("f", CONSTANT_SLOPE.values(), ids=CONSTANT_SLOPE)
def test_gradient_in_sigma_is_zero_if_the_slope_is_constant(seed, f):
    mu, sigma = _means_and_stds(seed, 3)
    e = _normals(seed, 11, 3)
    grad_mu, grad_sigma = characteristic_function(f, mu, sigma, e)
    zeros, ones = torch.zeros_like(mu), torch.ones_like(mu)
    torch.testing.assert_close(grad_mu, (f(ones) - f(zeros)).detach().expand_as(e))
    assert torch.all(grad_sigma == 0)
    _, pathwise_grad_sigma = pathwise(f, mu, sigma, e)
    torch.testing.assert_close(pathwise_grad_sigma, grad_mu * e)


CONSTANTS = {
    "one for every element": torch.ones_like,
    "times zero": lambda x: 0 * x + 5,
    "a step": lambda x: (x > 0).to(x.dtype),
    "a step that torch can differentiate": torch.sign,
}


@pytest.mark.parametrize("estimator", SMOOTH, ids=["pathwise", "characteristic"])
@pytest.mark.parametrize("f", CONSTANTS.values(), ids=CONSTANTS)
def test_gradient_is_zero_if_f_is_constant(seed, f, estimator):
    mu, sigma = _means_and_stds(seed, 3)
    for values in estimator(f, mu, sigma, _normals(seed, 11, 3)):
        assert values.shape == (11, 3)
        assert torch.all(values == 0)


def test_score_function_needs_no_derivative(seed):
    """A step function: d Phi(mu / sigma). The other two estimators return zero."""
    mu, sigma = _means_and_stds(seed, 3)

    def step(x):
        return torch.as_tensor(np.heaviside(x.numpy(), 0.5))

    ratio = mu / sigma
    density = torch.exp(-ratio.square() / 2) / (math.sqrt(2 * math.pi) * sigma)
    estimates = score_function(step, mu, sigma, _normals(seed, DRAWS, 3))
    for values, exact in zip(estimates, (density, -ratio * density), strict=True):
        _assert_mean(values, exact, values.std(0))


def test_only_pathwise_is_unbiased_at_a_kink(seed):
    """ReLU: d/dsigma is the density at the kink; f'' is zero on both sides."""
    mu, sigma = _means_and_stds(seed, 3)
    e = _normals(seed, DRAWS, 3)
    ratio = mu / sigma
    exact_mu = 0.5 * (1 + torch.erf(ratio / math.sqrt(2)))
    exact_sigma = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    for values, exact in zip(
        pathwise(torch.relu, mu, sigma, e), (exact_mu, exact_sigma), strict=True
    ):
        _assert_mean(values, exact, values.std(0))
    grad_mu, grad_sigma = characteristic_function(torch.relu, mu, sigma, e)
    _assert_mean(grad_mu, exact_mu, grad_mu.std(0))
    assert torch.all(grad_sigma == 0)


@by_estimator
def test_gradients_of_the_caller_are_unchanged(seed, estimator):
    """Under no_grad, and with arguments that require gradients."""
    mu, sigma = _means_and_stds(seed, 3)
    e = _normals(seed, 11, 3)
    expected = estimator(torch.sin, mu, sigma, e)
    with torch.no_grad():
        without = estimator(torch.sin, mu, sigma, e)
    leaves = [value.clone().requires_grad_() for value in (mu, sigma)]
    wanted = estimator(torch.sin, *leaves, e)
    for plain, in_no_grad, with_leaves in zip(expected, without, wanted, strict=True):
        assert not plain.requires_grad
        assert torch.equal(plain, in_no_grad)
        assert torch.equal(plain, with_leaves.detach())
    assert all(leaf.grad is None for leaf in leaves)


def test_lowest_variance_depends_on_the_function():
    """Variance of d/dsigma at N(0, 1) [Gal16 3.1.1]."""
    mu, sigma = torch.tensor([0.0, 1.0], dtype=torch.float64)
    wins = {
        "score_function": lambda x: torch.sin(10 * x),
        "pathwise": lambda x: 10 + torch.sin(5 * x),
        "characteristic_function": lambda x: x + x**3,
    }
    for winner, f in wins.items():
        std = {e.__name__: _exact(e, f, mu, sigma)[1][1].item() for e in ESTIMATORS}
        assert min(std, key=std.get) == winner, std


@pytest.mark.parametrize("n_draws", [2, 3, 8])
def test_leave_one_out_subtracts_the_mean_of_the_other_draws(seed, n_draws):
    values = _normals(seed, n_draws, 3, 5)
    actual = leave_one_out(values)
    for i in range(n_draws):
        others = torch.cat([values[:i], values[i + 1 :]])
        torch.testing.assert_close(actual[i], values[i] - others.mean(0))
    torch.testing.assert_close(actual.sum(0), torch.zeros(3, 5, dtype=torch.float64))


def _with_baseline(f, mu, sigma, e):
    """The score function estimate of a few draws with leave-one-out, (..., *shape)."""
    values = leave_one_out(f(mu + sigma * e))
    return (values * e / sigma).mean(0), (values * (e**2 - 1) / sigma).mean(0)


@by_function
def test_leave_one_out_is_unbiased(seed, name):
    """Exact expectation over two draws, each at all nodes of the quadrature."""
    f, *exact_gradients = CLOSED_FORMS[name]
    mu, sigma = _means_and_stds(seed, 3)
    nodes, weights = _quadrature()
    e = torch.stack(torch.meshgrid(nodes, nodes, indexing="ij")).unsqueeze(-1)
    estimates = _with_baseline(f, mu, sigma, e)
    for values, exact in zip(estimates, exact_gradients, strict=True):
        mean = torch.einsum("i,j,ijk->k", weights, weights, values)
        torch.testing.assert_close(mean, exact(mu, sigma), rtol=1e-9, atol=1e-9)
