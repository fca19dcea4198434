"""Additive Gaussian noise: the KL of normal weights with a fixed variance; float64."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._families import Additive
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
# Only ``init`` uses it: the variance is a parameter that does not change.
KEEP = torch.tensor([0.5, 0.95, 0.8], dtype=torch.float64)
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
VARIANCE = torch.tensor([1.7, 0.02, 0.4], dtype=torch.float64)
PRIOR = GaussianPrior(LENGTH_SCALE)


@pytest.fixture
def params(seed):
    random = np.random.default_rng(seed)
    return {
        "mean": torch.as_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "bias": torch.as_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
        "variance": VARIANCE,
    }


@pytest.fixture
def kl(params):
    return Additive().kl(params, KEEP, PRIOR, None)


@pytest.fixture
def log_ratio(params, exact):
    """log q(W) - log p(W) at the draws of a source, with the part of the biases."""
    std = 1 / LENGTH_SCALE.numpy()[:, None, None]
    q = norm(params["mean"], VARIANCE.sqrt().numpy()[:, None, None])

    def at(source):
        weight, bias = Additive().draw(params, KEEP, source)
        log_ratio_of_weights = (q.logpdf(weight) - norm.logpdf(weight, 0, std)).sum(
            (-2, -1)
        )
        no_weight = torch.zeros_like(params["mean"])
        return log_ratio_of_weights + exact.minus_log_prior(
            LENGTH_SCALE, no_weight, bias
        )

    return at


def test_kl_in_closed_form(params, kl):
    """(l^2 / 2)(||M||^2 + ||b||^2) + K D / 2 (l^2 v - log(l^2 v) - 1)."""
    l2 = LENGTH_SCALE**2
    squares = params["mean"].square().sum((1, 2)) + params["bias"].square().sum(1)
    ratio = l2 * VARIANCE
    spread = 0.5 * INPUTS * OUTPUTS * (ratio - ratio.log() - 1)
    np.testing.assert_allclose(kl, l2 / 2 * squares + spread, rtol=1e-13)


def test_kl_is_the_expectation_under_q(kl, log_ratio, exact):
    """E_q[log q - log p] is quadratic in the random numbers, so the rule is exact."""
    expected = log_ratio(exact.nodes(INPUTS * OUTPUTS)).mean(0)
    np.testing.assert_allclose(kl, expected, rtol=1e-12)


def test_kl_equals_mean_over_draws(kl, log_ratio, sampling):
    sampling.check(log_ratio, kl)


def test_kl_is_zero_if_q_is_the_prior():
    params = {
        "mean": torch.zeros(MEMBERS, INPUTS, OUTPUTS, dtype=torch.float64),
        "bias": torch.zeros(MEMBERS, OUTPUTS, dtype=torch.float64),
        "variance": LENGTH_SCALE**-2,
    }
    kl = Additive().kl(params, KEEP, PRIOR, None)
    np.testing.assert_allclose(kl, 0, atol=1e-14)


def test_moments_of_the_weights(params, exact):
    """E W = M; all weights have the variance v and are uncorrelated."""
    size = INPUTS * OUTPUTS
    mean, covariance = exact.normal_moments(
        lambda source: Additive().draw(params, KEEP, source)[0], size
    )
    np.testing.assert_allclose(mean, params["mean"].flatten(1), rtol=1e-14)
    expected = VARIANCE.numpy()[:, None, None] * np.eye(size)
    np.testing.assert_allclose(covariance, expected, atol=1e-14)


def test_moments_of_the_activations(params, exact, seed):
    """a M + b, and v ||a||^2, independent over rows and over outputs."""
    x = torch.as_tensor(np.random.default_rng([seed, 1]).normal(size=(ROWS, INPUTS)))
    mean, covariance = exact.normal_moments(
        lambda source: Additive().linear(params, KEEP, x[None], source), ROWS * OUTPUTS
    )
    expected = (x @ params["mean"] + params["bias"].unsqueeze(1)).flatten(1)
    np.testing.assert_allclose(mean, expected, rtol=1e-11)
    squares = x.square().sum(1).repeat_interleave(OUTPUTS).numpy()
    expected = VARIANCE.numpy()[:, None, None] * np.diag(squares)
    np.testing.assert_allclose(covariance, expected, atol=1e-12)


def test_start_divides_the_variance_of_the_weights(params):
    """alpha v = (1 - p) s^2 is noise, v = p s^2 is in the means: E ||W||^2 is as given.

    alpha = (1 - p) / p, as in Gaussian dropout.
    """
    scale = 0.7
    start = Additive().init(params["mean"], scale, params["bias"], KEEP)
    v = KEEP * scale**2
    np.testing.assert_allclose(start["variance"], (1 - KEEP) / KEEP * v, rtol=1e-14)
    kept = start["mean"].square().sum((1, 2)) / params["mean"].square().sum((1, 2))
    np.testing.assert_allclose(kept + start["variance"] / scale**2, 1, rtol=1e-14)


def test_variance_is_not_learned(params):
    """Neither from the data nor from the prior."""
    start = {name: value.clone().requires_grad_() for name, value in params.items()}
    kl = Additive().kl(start, KEEP, PRIOR, None).sum()
    [gradient] = torch.autograd.grad(kl, start["variance"], allow_unused=True)
    assert gradient is None
    assert "variance" in Additive.constants
