"""Gaussian dropout: the first two moments of Bernoulli dropout, and its KL; float64."""

import numpy as np
import pytest
import torch

from skbayesnn._families import Bernoulli, Gaussian
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
KEEP = torch.tensor([0.5, 0.95, 0.8], dtype=torch.float64)
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
PRIOR = GaussianPrior(LENGTH_SCALE)


@pytest.fixture
def params(seed):
    random = np.random.default_rng(seed)
    return {
        "mean": torch.as_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "bias": torch.as_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
    }


@pytest.fixture
def kl(params):
    return Gaussian().kl(params, KEEP, PRIOR, None)


def test_kl_is_p_l2_over_2_times_the_squares(params, kl):
    """Eq. 4 before the division by N tau; biases are not random and have no p."""
    squares = KEEP * params["mean"].square().sum((1, 2))
    expected = LENGTH_SCALE**2 / 2 * (squares + params["bias"].square().sum(1))
    np.testing.assert_allclose(kl, expected, rtol=1e-14)


def test_kl_is_the_expectation_under_q(params, kl, exact):
    """E_q[-log p] is quadratic in the random numbers, so the rule is exact."""
    draw = Gaussian().draw(params, KEEP, exact.nodes(INPUTS))
    expected = exact.minus_log_prior(LENGTH_SCALE, *draw).mean(0)
    np.testing.assert_allclose(kl, expected, rtol=1e-12)


def test_kl_equals_mean_over_draws(params, kl, exact, sampling):
    def minus_log_prior(source):
        draw = Gaussian().draw(params, KEEP, source)
        return exact.minus_log_prior(LENGTH_SCALE, *draw)

    sampling.check(minus_log_prior, kl)


def test_weights_have_the_moments_of_bernoulli_dropout(params, exact):
    """Means and covariances of all weights, with all 2^K masks enumerated."""
    mean, covariance = exact.normal_moments(
        lambda source: Gaussian().draw(params, KEEP, source)[0], INPUTS
    )
    source, probability = exact.masks(KEEP, INPUTS)
    weights = Bernoulli().draw(params, KEEP, source)[0].flatten(2).numpy()
    expected_mean, expected_covariance = _moments(weights, probability)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-12)
    np.testing.assert_allclose(covariance, expected_covariance, atol=1e-13)


def test_activations_have_the_moments_of_bernoulli_dropout(params, exact, seed):
    """In training each row has separate random numbers: rows are independent."""
    x = torch.as_tensor(np.random.default_rng([seed, 1]).normal(size=(ROWS, INPUTS)))
    mean, covariance = exact.normal_moments(
        lambda source: Gaussian().linear(params, KEEP, x[None], source), ROWS * INPUTS
    )
    covariance = covariance.reshape(MEMBERS, ROWS, OUTPUTS, ROWS, OUTPUTS)

    source, probability = exact.masks(KEEP, INPUTS)
    weight, bias = Bernoulli().draw(params, KEEP, source)
    activations = (x @ weight + bias.unsqueeze(1)).numpy()
    for row in range(ROWS):
        expected_mean, expected = _moments(activations[:, :, row], probability)
        mean_of_row = mean.reshape(MEMBERS, ROWS, OUTPUTS)[:, row]
        np.testing.assert_allclose(mean_of_row, expected_mean, rtol=1e-11)
        np.testing.assert_allclose(covariance[:, row, :, row], expected, atol=1e-13)
        other_rows = np.arange(ROWS) != row
        assert not covariance[:, row][:, :, other_rows].any()


def test_alpha_is_the_odds_of_being_dropped(params, exact):
    """W is p M times N(1, alpha) on rows, alpha = (1 - p) / p [KSW15 section 3]."""
    mean, covariance = exact.normal_moments(
        lambda source: Gaussian().draw(params, KEEP, source)[0], INPUTS
    )
    variance = covariance.diagonal(axis1=1, axis2=2)
    alpha = ((1 - KEEP) / KEEP).numpy()[:, None]
    np.testing.assert_allclose(variance, alpha * mean**2, rtol=1e-10)


def _moments(values, probability):
    """Means (members, n) and covariances (members, n, n).

    values : (outcomes, members, n)
    """
    mean = np.einsum("ti,tin->in", probability, values)
    centred = values - mean
    return mean, np.einsum("ti,tin,tim->inm", probability, centred, centred)
