"""Reduction of the spread by refits, against mixtures with known errors."""

import numpy as np
import pytest

from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking.weights import (
    MIN_SHARE_OF_FACTOR,
    factor_with_starts,
    share_of_starts,
    variance_of_starts,
)

ROWS, TARGETS = 4_000, 2
# Three candidates: draws in the mixture, networks out of fold and refitted, draws
# of each network, and the variance between networks.
N_DRAWS = np.array([30, 50, 20])
N_OUT_OF_FOLD, N_REFITS, DRAWS = (1, 2, 1), (4, 3, 1), (3, 5, 2)
VARIANCE = np.array([[0.5, 2.0], [1.5, 0.1], [3.0, 0.4]])
NOISE = np.array([0.3, 0.8])
# Standard deviation of a network's draws.
SPREAD = 0.4


def predictives(random, n_networks, rows=ROWS):
    """Of all candidates, with a mean of zero, and networks next to each other."""
    parts = []
    for variance, n, draws in zip(VARIANCE, n_networks, DRAWS, strict=True):
        starts = np.sqrt(variance) * random.normal(size=(n, rows, TARGETS))
        deviations = SPREAD * random.normal(size=(draws, n, rows, TARGETS))
        mean = (starts + deviations).reshape(-1, rows, TARGETS)
        noise = np.broadcast_to(NOISE, mean.shape)
        parts.append(MixturePredictive(Gaussians(mean, noise), squeeze_targets=False))
    return parts


def test_factor_corrects_for_more_networks(seed):
    """The expected error is known: networks differ by their starts and draws.

    Row by row, since the expectation of the mean of ratios is unknown.
    """
    share = N_DRAWS / N_DRAWS.sum()
    variance_of_mean = share**2 @ (VARIANCE / np.array(N_OUT_OF_FOLD)[:, None])
    error, variance = (
        variance_of_mean + NOISE,
        share @ VARIANCE - variance_of_mean + NOISE + SPREAD**2,
    )
    parts = predictives(np.random.default_rng(seed), N_REFITS)
    reduction = share_of_starts(parts, N_DRAWS, N_OUT_OF_FOLD, N_REFITS)
    mixture = MixturePredictive.pooled(parts, n_draws=N_DRAWS)
    variance_now = np.square(mixture.uncertainty(["total"])["total"])
    factor = np.sqrt(error / variance)
    actual = np.stack(
        [
            v * np.square(factor_with_starts(factor, share[None], np.ones(1)))
            for v, share in zip(variance_now, reduction, strict=True)
        ]
    )
    # The sample variance of n draws is smaller than the variance.
    narrower = share**2 @ (SPREAD**2 / np.multiply(N_REFITS, DRAWS)) * np.square(factor)
    expected = share**2 @ (VARIANCE / np.array(N_REFITS)[:, None]) + NOISE - narrower
    tolerance = 5 * actual.std(0) / np.sqrt(ROWS)
    np.testing.assert_array_less(np.abs(actual.mean(0) - expected), tolerance)
    # Without the correction the variance is farther away.
    unchanged = (variance_now * np.square(factor)).mean(0)
    assert (np.abs(unchanged - expected) > tolerance).all()


@pytest.mark.parametrize("n", [2, 3])
def test_variance_between_networks(seed, n):
    """Unbiased for any number of draws of each network."""
    random = np.random.default_rng(seed)
    part = predictives(random, (n, n, n))[0]
    actual = variance_of_starts(part, n).mean(0)
    error = VARIANCE[0] * np.sqrt(2 / (n - 1) / ROWS)
    np.testing.assert_array_less(np.abs(actual - VARIANCE[0]), 5 * error)


def test_no_reduction_with_as_many_networks_as_before(seed):
    parts = predictives(np.random.default_rng(seed), N_REFITS, rows=7)
    reduction = share_of_starts(parts, N_DRAWS, N_REFITS, N_REFITS)
    np.testing.assert_array_equal(reduction, np.zeros((7, TARGETS)))
    factor = np.array([0.7, 1.6])
    actual = factor_with_starts(factor, reduction, np.ones(7))
    np.testing.assert_allclose(actual, factor, rtol=1e-15)


def test_reduction_of_the_factor_is_limited(seed):
    """If networks differ by more than the held-out rows allow for."""
    reduction = np.random.default_rng(seed).uniform(0.1, 0.3, size=(5, TARGETS))
    actual = factor_with_starts(np.array([0.1, 2.0]), reduction, np.ones(5))
    assert actual[0] == pytest.approx(MIN_SHARE_OF_FACTOR * 0.1)
    mean = reduction[:, 1].mean()
    assert actual[1] == pytest.approx(np.sqrt(4 * (1 - mean) - mean))


def test_integer_weights_equal_repeated_rows(seed):
    reduction = np.random.default_rng(seed).uniform(size=(4, TARGETS))
    weights = np.array([1, 3, 0, 2])
    factor = np.full(TARGETS, 3.0)
    actual = factor_with_starts(factor, reduction, weights)
    repeated = np.repeat(reduction, weights, axis=0)
    expected = factor_with_starts(factor, repeated, np.ones(6))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
