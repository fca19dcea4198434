"""Approximations of the log-uniform prior's KL against the exact KL; float64.

With w ~ N(1, alpha), log |w| = 1/2 log of a noncentral chi-square variable times alpha.
So the expectation in the KL is also a series, over j ~ Poisson(1 / (2 alpha)):

    E log |1 + sqrt(alpha) e| = 1/2 (log(2 alpha) + E digamma(j + 1/2)).
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from skbayesnn import _priors
from skbayesnn._families.variational_dropout import MAX_LOG_ALPHA, MIN_LOG_ALPHA
from skbayesnn._priors import GaussianPrior, LogUniformPrior

APPROXIMATIONS = {
    "kingma": (_priors.kingma, _priors.kingma_slope),
    "molchanov": (_priors.molchanov, _priors.molchanov_slope),
}
# Largest errors over the ranges in use, with the published coefficients: 0.0403398 at
# alpha = 0.1227 and 0.0093746 at log alpha = -3.512 (nats per alpha); of d/d log alpha
# 0.053877 at alpha = 1 and 0.013690 at log alpha = -2.488.
LARGEST_ERROR = {"kingma": 0.04034, "molchanov": 0.009375}
LARGEST_SLOPE_ERROR = {"kingma": 0.05388, "molchanov": 0.013691}


def _kl_by_quadrature(log_alpha):
    """-1/2 log alpha + E log |1 + sqrt(alpha) e| + (log 2 + gamma) / 2.

    The logarithm's singularity, e = -1 / sqrt(alpha), separates two intervals.
    """
    root = math.exp(0.5 * log_alpha)
    singular = -1 / root

    def integrand(e):
        distance = abs(1 + root * e)
        return stats.norm.pdf(e) * math.log(distance) if distance else 0.0

    inner = {-3.0, 0.0, 3.0, singular - 1, singular, singular + 1}
    ends = [-12.0, *sorted(end for end in inner if -12 < end < 12), 12.0]
    expectation = sum(
        integrate.quad(integrand, low, high, epsabs=1e-12, epsrel=1e-11, limit=200)[0]
        for low, high in pairwise(ends)
    )
    return -0.5 * log_alpha + expectation + 0.5 * (math.log(2) + np.euler_gamma)


def _expectation_over_poisson(function, log_alpha):
    """E function(j), j ~ Poisson(1 / (2 alpha)), over all j with positive mass."""
    rate = 0.5 * math.exp(-log_alpha)
    reach = 12 * math.sqrt(rate) + 60
    j = np.arange(max(0, math.floor(rate - reach)), math.ceil(rate + reach) + 1)
    return (stats.poisson.pmf(j, rate) * function(j)).sum()


def _kl_by_series(log_alpha):
    mean_digamma = _expectation_over_poisson(
        lambda j: special.digamma(j + 0.5), log_alpha
    )
    return 0.5 * (math.log(2) + mean_digamma) + 0.5 * (math.log(2) + np.euler_gamma)


def _slope_by_series(log_alpha):
    """d/d log alpha: -rate times d/d rate, and d/d rate E f(j) = E f(j + 1) - f(j)."""
    rate = 0.5 * math.exp(-log_alpha)
    differences = _expectation_over_poisson(lambda j: 1 / (j + 0.5), log_alpha)
    return -0.5 * rate * differences


@pytest.fixture(scope="module")
def exact():
    """log alpha on a grid of the widest range in use, KL and slope."""
    log_alpha = np.linspace(MIN_LOG_ALPHA, max(MAX_LOG_ALPHA.values()), 1401)
    kl = np.array([_kl_by_series(value) for value in log_alpha])
    slope = np.array([_slope_by_series(value) for value in log_alpha])
    return log_alpha, kl, slope


@pytest.fixture(params=APPROXIMATIONS, ids=str)
def name(request):
    return request.param


@pytest.mark.parametrize("log_alpha", [-10.0, -5.0, -2.1, -1.0, 0.0, 2.0, 4.0])
def test_exact_kl(log_alpha):
    """Integral and series agree, and so do the series' slope and differences.

    The quadrature is accurate to 1e-9; finite differences have errors of step^2.
    """
    kl = _kl_by_series(log_alpha)
    np.testing.assert_allclose(kl, _kl_by_quadrature(log_alpha), atol=1e-9)
    step = 1e-4
    ends = _kl_by_series(log_alpha + step), _kl_by_series(log_alpha - step)
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(slope, _slope_by_series(log_alpha), atol=1e-8)


def test_exact_kl_tends_to_zero():
    """The constant is chosen for that; from above, as 1 / (2 alpha)."""
    np.testing.assert_allclose(_kl_by_series(20.0), 0.5 * math.exp(-20), rtol=1e-3)
    constant = 0.5 * (math.log(2) + np.euler_gamma)
    np.testing.assert_allclose(_priors.CONSTANT, constant, rtol=1e-15)


def test_error_of_the_approximation(name, exact):
    """The published coefficients have exactly this error."""
    log_alpha, kl, _ = exact
    in_use = log_alpha <= MAX_LOG_ALPHA[name]
    value, _ = APPROXIMATIONS[name]
    actual = value(torch.as_tensor(log_alpha[in_use])).numpy()
    error = np.abs(actual - kl[in_use]).max()
    assert 0.999 * LARGEST_ERROR[name] < error <= LARGEST_ERROR[name]


def test_error_of_the_slope(name, exact):
    """Training uses the slope: it moves alpha."""
    log_alpha, _, slope = exact
    in_use = log_alpha <= MAX_LOG_ALPHA[name]
    _, approximation = APPROXIMATIONS[name]
    actual = approximation(torch.as_tensor(log_alpha[in_use])).numpy()
    error = np.abs(actual - slope[in_use]).max()
    assert 0.999 * LARGEST_SLOPE_ERROR[name] < error <= LARGEST_SLOPE_ERROR[name]


def test_kl_falls_with_alpha(name, exact):
    """As the exact KL does: more noise never costs more."""
    log_alpha, _, slope = exact
    in_use = torch.as_tensor(log_alpha[log_alpha <= MAX_LOG_ALPHA[name]])
    assert (slope < 0).all()
    assert (APPROXIMATIONS[name][1](in_use) < 0).all()


def test_kingma_requires_small_alpha():
    """Beyond alpha = 1 the polynomial diverges: by 163 nats at e^2."""
    error = _priors.kingma(torch.tensor(2.0).double()).item() - _kl_by_series(2.0)
    assert error < -100


def test_slope_is_the_derivative_of_the_value(name, seed):
    """By autograd, and by differences of the value (with an error of step^2)."""
    random = np.random.default_rng(seed)
    low, high = MIN_LOG_ALPHA, MAX_LOG_ALPHA[name]
    log_alpha = torch.as_tensor(random.uniform(low, high, size=(3, 4, 2)))
    value, slope = APPROXIMATIONS[name]
    leaf = log_alpha.clone().requires_grad_()
    [slope_by_autograd] = torch.autograd.grad(value(leaf).sum(), leaf)
    np.testing.assert_allclose(slope(log_alpha), slope_by_autograd, rtol=1e-12)
    step = 1e-5
    difference = (value(log_alpha + step) - value(log_alpha - step)) / (2 * step)
    np.testing.assert_allclose(slope(log_alpha), difference, atol=1e-8)


def test_priors_of_biases_and_of_weights_without_noise(seed):
    """Biases have a Gaussian prior; weights without noise have a flat prior."""
    random = np.random.default_rng(seed)
    length_scale = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
    prior = LogUniformPrior(length_scale)
    weight = torch.as_tensor(random.normal(size=(3, 4, 2)))
    bias = torch.as_tensor(random.normal(size=(3, 2)))
    assert not prior.weight.energy(weight).any()
    expected = GaussianPrior(length_scale).bias.energy(bias)
    np.testing.assert_array_equal(prior.bias.energy(bias), expected)
