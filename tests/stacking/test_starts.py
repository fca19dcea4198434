"""What several starts take off: against the errors of mixtures whose law is known."""

import numpy as np
import pytest

from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking.weights import (
    MIN_LEFT,
    factor_with_starts,
    share_of_starts,
    variance_of_starts,
)

ROWS, TARGETS = 4_000, 2
# Of three candidates: draws in the mixture, networks out of fold and now, draws of each
# network, and the variance of their starts.
N_DRAWS = np.array([30, 50, 20])
BEFORE, NOW, DRAWS = (1, 2, 1), (4, 3, 1), (3, 5, 2)
VARIANCE = np.array([[0.5, 2.0], [1.5, 0.1], [3.0, 0.4]])
NOISE = np.array([0.3, 0.8])
# Standard deviation of a network's draws.
SPREAD = 0.4


def predictives(random, n_networks, rows=ROWS):
    """Of all candidates, networks side by side within every draw, about f = 0."""
    parts = []
    for variance, n, draws in zip(VARIANCE, n_networks, DRAWS, strict=True):
        starts = np.sqrt(variance) * random.normal(size=(n, rows, TARGETS))
        apart = SPREAD * random.normal(size=(draws, n, rows, TARGETS))
        mean = (starts + apart).reshape(-1, rows, TARGETS)
        noise = np.broadcast_to(NOISE, mean.shape)
        parts.append(MixturePredictive(Gaussians(mean, noise), flat=False))
    return parts


def test_factor_is_that_of_more_starts(seed):
    """Networks that differ by their starts and draws: the expected error is known.

    Row by row, since of the mean of ratios nothing is known exactly.
    """
    share = N_DRAWS / N_DRAWS.sum()
    of_mean = share**2 @ (VARIANCE / np.array(BEFORE)[:, None])
    error, variance = of_mean + NOISE, share @ VARIANCE - of_mean + NOISE + SPREAD**2
    parts = predictives(np.random.default_rng(seed), NOW)
    taken_off = share_of_starts(parts, N_DRAWS, BEFORE, NOW)
    mixture = MixturePredictive.pooled(parts, n_draws=N_DRAWS)
    variance_now = np.square(mixture.uncertainty(["total"])["total"])
    factor = np.sqrt(error / variance)
    found = np.stack(
        [
            v * np.square(factor_with_starts(factor, share[None], np.ones(1)))
            for v, share in zip(variance_now, taken_off, strict=True)
        ]
    )
    # About their own mean, n draws are narrower than their distribution.
    narrower = share**2 @ (SPREAD**2 / np.multiply(NOW, DRAWS)) * np.square(factor)
    expected = share**2 @ (VARIANCE / np.array(NOW)[:, None]) + NOISE - narrower
    tolerance = 5 * found.std(0) / np.sqrt(ROWS)
    np.testing.assert_array_less(np.abs(found.mean(0) - expected), tolerance)
    # Without it one would be farther away.
    unchanged = (variance_now * np.square(factor)).mean(0)
    assert (np.abs(unchanged - expected) > tolerance).all()


@pytest.mark.parametrize("n", [2, 3])
def test_variance_of_starts(seed, n):
    """Unbiased, whatever the number of draws of each network."""
    random = np.random.default_rng(seed)
    part = predictives(random, (n, n, n))[0]
    found = variance_of_starts(part, n).mean(0)
    error = VARIANCE[0] * np.sqrt(2 / (n - 1) / ROWS)
    np.testing.assert_array_less(np.abs(found - VARIANCE[0]), 5 * error)


def test_as_many_starts_as_before_take_nothing_off(seed):
    parts = predictives(np.random.default_rng(seed), NOW, rows=7)
    taken_off = share_of_starts(parts, N_DRAWS, NOW, NOW)
    np.testing.assert_array_equal(taken_off, np.zeros((7, TARGETS)))
    factor = np.array([0.7, 1.6])
    found = factor_with_starts(factor, taken_off, np.ones(7))
    np.testing.assert_allclose(found, factor, rtol=1e-15)


def test_half_of_the_factor_is_left(seed):
    """Where starts differ by more than the held-out rows allow for."""
    taken_off = np.random.default_rng(seed).uniform(0.1, 0.3, size=(5, TARGETS))
    found = factor_with_starts(np.array([0.1, 2.0]), taken_off, np.ones(5))
    assert found[0] == pytest.approx(MIN_LEFT * 0.1)
    mean = taken_off[:, 1].mean()
    assert found[1] == pytest.approx(np.sqrt(4 * (1 - mean) - mean))


def test_rows_count_by_their_weights(seed):
    taken_off = np.random.default_rng(seed).uniform(size=(4, TARGETS))
    weights = np.array([1, 3, 0, 2])
    factor = np.full(TARGETS, 3.0)
    found = factor_with_starts(factor, taken_off, weights)
    several = np.repeat(taken_off, weights, axis=0)
    expected = factor_with_starts(factor, several, np.ones(6))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
