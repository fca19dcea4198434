"""DropConnect: its KL, its draws, and their first two moments in training; float64."""

import numpy as np
import pytest
import torch

from skbayesnn._families import DropConnect
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
    return DropConnect().kl(params, KEEP, PRIOR, None)


@pytest.fixture
def all_draws(params, exact):
    """All 2^8 networks: weights, biases, and probabilities (2^8, members)."""
    source, probability = exact.masks(KEEP, INPUTS * OUTPUTS)
    return *DropConnect().draw(params, KEEP, source), probability


def test_kl_is_p_l2_over_2_times_the_squares(params, kl):
    squares = KEEP * params["mean"].square().sum((1, 2))
    expected = LENGTH_SCALE**2 / 2 * (squares + params["bias"].square().sum(1))
    np.testing.assert_allclose(kl, expected, rtol=1e-14)


def test_kl_is_the_expectation_over_all_masks(kl, all_draws, exact):
    """E_q[-log p], with all 2^8 masks enumerated."""
    *draw, probability = all_draws
    expected = (probability * exact.minus_log_prior(LENGTH_SCALE, *draw)).sum(0)
    np.testing.assert_allclose(kl, expected, rtol=1e-12)


def test_kl_equals_mean_over_draws(params, kl, exact, sampling):
    def minus_log_prior(source):
        draw = DropConnect().draw(params, KEEP, source)
        return exact.minus_log_prior(LENGTH_SCALE, *draw)

    sampling.check(minus_log_prior, kl)


def test_weights_are_dropped_separately(params, all_draws):
    """Each weight is m_ij or zero, independently: 2^8 different networks."""
    weights, _, _ = all_draws
    assert ((weights == params["mean"]) | (weights == 0)).all()
    assert len(weights[:, 0].flatten(1).unique(dim=0)) == 2 ** (INPUTS * OUTPUTS)


def test_moments_of_the_weights(params, all_draws):
    """E W = p M; the covariance is diagonal, p (1 - p) M^2."""
    weights, _, probability = all_draws
    weights, m = weights.flatten(2).numpy(), params["mean"].flatten(1).numpy()
    p = KEEP.numpy()[:, None]
    mean = np.einsum("ti,tin->in", probability, weights)
    np.testing.assert_allclose(mean, p * m, rtol=1e-12)
    centred = weights - mean
    covariance = np.einsum("ti,tin,tim->inm", probability, centred, centred)
    variance = p * (1 - p) * m**2
    expected = variance[:, :, None] * np.eye(INPUTS * OUTPUTS)
    np.testing.assert_allclose(covariance, expected, atol=1e-13)


def test_activations_have_the_moments_of_the_masks(params, all_draws, exact, seed):
    """In training they are normal, independent over rows and over outputs."""
    x = torch.as_tensor(np.random.default_rng([seed, 1]).normal(size=(ROWS, INPUTS)))
    found_mean, found_covariance = exact.normal_moments(
        lambda source: DropConnect().linear(params, KEEP, x[None], source),
        ROWS * OUTPUTS,
    )
    weight, bias, probability = all_draws
    activations = (x @ weight + bias.unsqueeze(1)).numpy()
    mean = np.einsum("ti,tirn->irn", probability, activations)
    centred = activations - mean
    # Outputs of a row are uncorrelated, as are outputs of different rows in training.
    covariance = np.einsum("ti,tirn,tirm->irnm", probability, centred, centred)
    np.testing.assert_allclose(covariance[..., 0, 1], 0, atol=1e-13)
    variance = covariance.diagonal(axis1=2, axis2=3).reshape(MEMBERS, -1)
    expected = variance[:, :, None] * np.eye(ROWS * OUTPUTS)
    np.testing.assert_allclose(found_mean, mean.reshape(MEMBERS, -1), rtol=1e-11)
    np.testing.assert_allclose(found_covariance, expected, atol=1e-12)


def test_start_has_the_given_size(params):
    """p ||M||^2 = E ||W||^2 is the given squared norm."""
    wanted = params["mean"]
    start = DropConnect().init(wanted, 1.0, params["bias"], KEEP)
    squares = start["mean"].square().sum((1, 2))
    np.testing.assert_allclose(KEEP * squares, wanted.square().sum((1, 2)), rtol=1e-14)
