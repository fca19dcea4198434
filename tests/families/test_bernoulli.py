"""Closed forms of Bernoulli dropout, in NumPy and float64."""

from itertools import product

import numpy as np
import pytest
import torch

from skbayesnn._engine.random import DrawRandom
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Bernoulli, Needed, Point
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
CPU = torch.device("cpu")
KEEP = np.array([0.5, 0.95, 1.0])
LENGTH_SCALE = np.array([0.3, 2.0, 1.1])


@pytest.fixture
def mean(seed):
    return np.random.default_rng(seed).normal(size=(MEMBERS, INPUTS, OUTPUTS))


@pytest.fixture
def bias(seed):
    return np.random.default_rng(seed + 1).normal(size=(MEMBERS, OUTPUTS))


def _params(mean, bias):
    return {"mean": torch.as_tensor(mean), "bias": torch.as_tensor(bias)}


def _kl(mean, bias):
    """The KL under the length scales of the members; it uses no random numbers."""
    prior = GaussianPrior(torch.as_tensor(LENGTH_SCALE))
    return Bernoulli().kl(_params(mean, bias), torch.as_tensor(KEEP), prior, None)


def _draws(mean, bias, seed, n):
    source = DrawRandom(seed + np.arange(MEMBERS), range(n), CPU, torch.float64)
    return Bernoulli().draw(_params(mean, bias), torch.as_tensor(KEEP), source)


def test_kl_is_p_l2_over_2_times_the_squares(mean, bias):
    """Eq. 4 before the division by N tau; the factor p comes from the masks.

    Biases are not dropped and have no p.
    """
    squares = KEEP * (mean**2).sum((1, 2)) + (bias**2).sum(1)
    expected = LENGTH_SCALE**2 / 2 * squares
    np.testing.assert_allclose(_kl(mean, bias), expected, rtol=1e-14)


def test_kl_is_the_expectation_over_all_masks(mean, bias):
    """(l^2 / 2) E_q ||W||^2, with all 2^K masks enumerated."""
    expected = LENGTH_SCALE**2 / 2 * (bias**2).sum(1)
    for mask in product([0, 1], repeat=INPUTS):
        z = np.array(mask)
        probability = np.prod(np.where(z, KEEP[:, None], 1 - KEEP[:, None]), axis=1)
        squares = ((z[:, None] * mean) ** 2).sum((1, 2))
        expected += probability * LENGTH_SCALE**2 / 2 * squares
    np.testing.assert_allclose(_kl(mean, bias), expected, rtol=1e-13)


def test_masks_drop_rows_and_are_not_rescaled(mean, bias, seed):
    """A row of W is m_i or zero, never m_i / p."""
    weights, biases = _draws(mean, bias, seed, 50)
    kept = (weights.numpy() == mean).all(-1)
    dropped = (weights.numpy() == 0).all(-1)
    assert (kept ^ dropped).all()
    assert dropped[:, KEEP < 1].any()
    np.testing.assert_array_equal(biases, bias)


def test_moments_of_the_weights(mean, bias, seed):
    """E W = p M and Var W = p (1 - p) M^2."""
    n = 40_000
    weights = _draws(mean, bias, seed, n)[0].numpy()
    p = KEEP[:, None, None]
    variance = p * (1 - p) * mean**2
    # Six standard errors. The standard error of the variance of a two-valued variable
    # is |1 - 2 p| m^2 sqrt(p (1 - p) / n) to first order and m^2 / n to second.
    error = np.sqrt(variance / n)
    assert (np.abs(weights.mean(0) - p * mean) <= 6 * error + 1e-9).all()
    error = np.abs(1 - 2 * p) * mean**2 * np.sqrt(p * (1 - p) / n)
    tolerance = 6 * error + 36 * mean**2 / n + 1e-9
    assert (np.abs(weights.var(0) - variance) <= tolerance).all()


def test_start_is_divided_by_root_p(mean, bias):
    """p ||M||^2 = E ||W||^2 is the given squared norm."""
    start = torch.as_tensor(mean), 1.0, torch.as_tensor(bias)
    params = Bernoulli().init(*start, torch.as_tensor(KEEP))
    squares = (params["mean"].numpy() ** 2).sum((1, 2))
    np.testing.assert_allclose(KEEP * squares, (mean**2).sum((1, 2)), rtol=1e-14)
    np.testing.assert_array_equal(params["bias"], bias)


def test_no_dropout_equals_the_point_mass(mean, bias, seed):
    """At p = 1 all functions return the values of the point family, bit for bit."""
    seeds = seed + np.arange(MEMBERS)
    keep = torch.ones(MEMBERS, dtype=torch.float64)
    prior = GaussianPrior(torch.as_tensor(LENGTH_SCALE))
    random = np.random.default_rng(seed + 2)
    x = torch.as_tensor(random.normal(size=(1, ROWS, INPUTS)))
    results = []
    for family in (Bernoulli(), Point()):
        params = family.init(torch.as_tensor(mean), 1.0, torch.as_tensor(bias), keep)
        source = TrainingRandom(seeds, CPU, torch.float64)
        source.start_epoch(0)
        draws = DrawRandom(seeds, range(1), CPU, torch.float64)
        outputs, pullback = family.linear_vjp(params, keep, x.clone(), source)
        grad_params, _ = pullback(torch.ones_like(outputs), Needed.NONE)
        results.append(
            [
                params["mean"],
                params["bias"],
                family.linear(params, keep, x, source),
                outputs,
                grad_params["mean"],
                grad_params["bias"],
                *family.draw(params, keep, draws),
                family.kl(params, keep, prior, source),
            ]
        )
    for bernoulli, point in zip(*results, strict=True):
        assert torch.equal(bernoulli, point)
