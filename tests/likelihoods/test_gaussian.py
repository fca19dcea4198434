"""The Gaussian likelihood against scipy's, in float64."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._likelihoods import Gaussian
from skbayesnn._likelihoods.base import MIN_NOISE

DRAWS, MEMBERS, ROWS, TARGETS = 7, 3, 5, 2


@pytest.fixture
def problem(seed):
    """tau (members, targets), outputs of draws, and y shared by the members."""
    random = np.random.default_rng(seed)
    tau = random.uniform(0.1, 30, size=(MEMBERS, TARGETS))
    outputs = random.normal(size=(DRAWS, MEMBERS, ROWS, TARGETS))
    y = random.normal(size=(1, ROWS, TARGETS))
    return tau, outputs, y


@pytest.mark.parametrize("learned", [False, True])
def test_log_density_equals_scipy(problem, learned):
    tau, outputs, y = problem
    likelihood = Gaussian(TARGETS, learned)
    params = likelihood.init(torch.as_tensor(tau))
    density = norm(outputs, tau[:, None] ** -0.5).logpdf(y).sum(-1)
    result = likelihood.log_density(
        params, torch.as_tensor(outputs), torch.as_tensor(y)
    )
    assert result.shape == (DRAWS, MEMBERS, ROWS)
    np.testing.assert_allclose(result, density, rtol=1e-12)
    nll = likelihood.nll(params, torch.as_tensor(outputs), torch.as_tensor(y))
    np.testing.assert_array_equal(nll, -result)


def test_components_are_mean_and_noise_level(problem):
    tau, outputs, _ = problem
    likelihood = Gaussian(TARGETS, learned=False)
    params = likelihood.init(torch.as_tensor(tau))
    mean, variance = likelihood.components(params, torch.as_tensor(outputs))
    np.testing.assert_array_equal(mean, outputs)
    expected = np.broadcast_to(1 / tau[:, None], outputs.shape)
    np.testing.assert_allclose(variance, expected, rtol=1e-13)


def test_learned_tau_is_optimal_at_the_residual_variance(problem):
    """At tau = 1 / mean squared residual the gradient is zero, per target."""
    _, outputs, y = problem
    residual = torch.as_tensor(y - outputs[0])
    likelihood = Gaussian(TARGETS, learned=True)
    log_tau = -residual.square().mean(1).log().requires_grad_()
    nll = likelihood.nll({"log_tau": log_tau}, torch.as_tensor(outputs[0]), y=_t(y))
    (gradient,) = torch.autograd.grad(nll.sum(), log_tau)
    assert likelihood.trainable == ("log_tau",)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_only_learned_noise_has_a_lower_bound():
    tau = torch.full((MEMBERS, TARGETS), 1e12, dtype=torch.float64)
    outputs = torch.zeros(1, MEMBERS, ROWS, TARGETS, dtype=torch.float64)
    learned, given = Gaussian(TARGETS, True), Gaussian(TARGETS, False)
    _, variance = learned.components(learned.init(tau), outputs)
    np.testing.assert_allclose(variance, MIN_NOISE**2)
    _, variance = given.components(given.init(tau), outputs)
    np.testing.assert_allclose(variance, 1e-12)
    assert given.trainable == ()


def _t(values):
    return torch.as_tensor(values)
