"""Draws of several kinds in one mixture, and distributions with given quantiles.

`test_joined_normal_draws.py` compares joined draws with loops over single draws.
"""

import numpy as np
import pytest

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.mixtures import (
    GaussianMixtures,
    joined_draws,
)
from skbayesnn._distributions.piecewise import PiecewiseUniforms
from skbayesnn._likelihoods.poisson import Counts
from skbayesnn._likelihoods.student_t import StudentTs

DRAWS, ROWS, TARGETS = 5, 4, 2


def _kinds(random):
    """One object of each continuous kind, with different numbers of draws."""

    def values(n_draws, *last):
        return random.normal(size=(n_draws, ROWS, TARGETS, *last))

    weight = np.exp(values(3, 2))
    return [
        Gaussians(values(2), np.exp(values(2))),
        StudentTs(values(4), np.exp(values(4)), np.full_like(values(4), 5.0)),
        GaussianMixtures(
            weight / weight.sum(-1, keepdims=True), values(3, 2), np.exp(values(3, 2))
        ),
        PiecewiseUniforms.from_quantiles(
            values(1, 6)[0], np.linspace(0.1, 0.9, 6), np.full(TARGETS, 0.1)
        ),
    ]


def test_all_kinds_are_joined_in_order(seed):
    random = np.random.default_rng(seed)
    kinds = _kinds(random)
    # A kind that occurs twice becomes one part.
    sequence = [kinds[0], kinds[1], kinds[0], kinds[2], kinds[3], kinds[1]]
    joined = joined_draws(sequence)
    assert len(joined.parts) == len(kinds)
    y = random.normal(size=(ROWS, TARGETS))
    expected = np.concatenate([part.log_density(y) for part in sequence])
    np.testing.assert_allclose(joined.log_density(y), expected, rtol=1e-12)
    again = joined_draws([joined.draws(slice(3, 7)), kinds[3], joined])
    expected = np.concatenate([expected[3:7], kinds[3].log_density(y), expected])
    np.testing.assert_allclose(again.log_density(y), expected, rtol=1e-12)
    level = joined.mixture_cdf(joined.mixture_quantile(0.8))
    np.testing.assert_allclose(level, 0.8, atol=1e-5)


def test_counts_and_real_numbers_are_refused():
    rate = np.ones((2, ROWS, TARGETS))
    with pytest.raises(TypeError, match=r"counts and of real numbers.*Counts, Gauss"):
        joined_draws([Counts(rate), Gaussians(rate, rate)])


# ---- distributions with given quantiles


LEVELS = np.array([0.05, 0.2, 0.5, 0.7, 0.9])


@pytest.fixture
def piecewise(seed):
    random = np.random.default_rng(seed)
    quantiles = np.sort(random.normal(size=(ROWS, TARGETS, len(LEVELS))), axis=-1)
    return PiecewiseUniforms.from_quantiles(quantiles, LEVELS, np.full(TARGETS, 1e-3))


def test_quantiles_are_reproduced_and_the_density_is_the_slope(piecewise, seed):
    random = np.random.default_rng(seed)
    for i, level in enumerate(LEVELS):
        value = piecewise.value[0, ..., i]
        np.testing.assert_allclose(piecewise.cdf(value)[0], level, rtol=1e-12)
        np.testing.assert_allclose(
            piecewise.quantile(np.full(value.shape, level))[0], value, atol=1e-12
        )
    level = random.uniform(0.001, 0.999, size=(ROWS, TARGETS))
    y = piecewise.quantile(level)[0]
    np.testing.assert_allclose(piecewise.cdf(y)[0], level, rtol=1e-9)
    step = 1e-7
    slope = (piecewise.cdf(y + step) - piecewise.cdf(y - step)) / (2 * step)
    # A step across a quantile has two slopes; none is likely for a random level.
    density = np.exp(piecewise.log_density_per_target(y))
    np.testing.assert_allclose(slope, density, rtol=1e-4)
    np.testing.assert_allclose(
        piecewise.log_density_in(y - step, y + step)[0], np.log(density)[0], atol=1e-4
    )


def test_moments_by_integration(piecewise):
    """The mean of quantiles at the midpoints of many equal parts."""
    n = 4_000
    levels = (np.arange(n) + 0.5) / n
    shape = ROWS, TARGETS
    points = np.stack([piecewise.quantile(np.full(shape, p))[0] for p in levels])
    # The outermost part of an exponential tail has an error of log(n) / n.
    np.testing.assert_allclose(piecewise.mean[0], points.mean(0), atol=0.01)
    np.testing.assert_allclose(piecewise.variance[0], points.var(0), rtol=0.04)


def test_crossed_and_equal_quantiles_have_a_bounded_density(seed):
    random = np.random.default_rng(seed)
    quantiles = random.integers(3, size=(50, 1, len(LEVELS))).astype(float)
    model = PiecewiseUniforms.from_quantiles(quantiles, LEVELS, np.array([0.01]))
    y = random.uniform(-1e3, 1e3, size=(50, 1))
    for value in (y, quantiles[..., 2], np.sort(quantiles, -1)[..., 2]):
        density = model.log_density_per_target(value)
        assert np.isfinite(density).all()
        assert (density <= np.log(1 / 0.01) + 1e-9).all()
    middle = np.sort(quantiles, -1)[..., 2]
    np.testing.assert_allclose(model.cdf(middle)[0], 0.5, rtol=1e-9)


def test_tails_of_equal_outer_quantiles():
    """The scales rest on the middle quantile, and have a lower bound."""
    quantiles = np.array([[[0.0, 0.0, 6.0, 7.0, 7.0]], [[4.0, 4.0, 4.0, 4.0, 5.0]]])
    model = PiecewiseUniforms.from_quantiles(quantiles, LEVELS, np.array([1e-4]))
    lower, upper = model._tails()
    bounded = 30 * 1e-4
    np.testing.assert_allclose(lower.ravel(), [6 / np.log(10), bounded], rtol=1e-3)
    np.testing.assert_allclose(upper.ravel(), np.array([1, 1]) / np.log(5), rtol=1e-3)


def test_far_tails_keep_their_digits(piecewise):
    """Beyond the outer quantiles log F and log(1 - F) are linear."""
    lower, upper = piecewise._tails()
    for side, scale, edge, level in (
        (-1, lower, piecewise.value[..., 0], LEVELS[0]),
        (1, upper, piecewise.value[..., -1], 1 - LEVELS[-1]),
    ):
        y = (edge + side * 300 * scale)[0]
        half = 5e-4 * scale.min()
        expected = np.log(level / scale) - 300
        np.testing.assert_allclose(piecewise.log_density_per_target(y), expected)
        np.testing.assert_allclose(
            piecewise.log_density_in(y - half, y + half), expected, rtol=1e-5
        )


def test_crps_of_given_quantiles_by_integration(piecewise, seed):
    y = np.random.default_rng(seed).normal(size=(ROWS, TARGETS))
    grid = np.linspace(-40, 40, 20_001)
    # A draw per point of the grid.
    points = np.broadcast_to(grid[:, None, None], (len(grid), *y.shape))
    share = piecewise.resized(len(grid)).cdf(points)
    error = np.square(share - (y <= points))
    expected = error.sum(0) * (grid[1] - grid[0])
    np.testing.assert_allclose(piecewise.mixture_crps(y), expected, rtol=0.02)


def test_mean_density_of_a_mixture_is_exact_in_both_tails(seed):
    """A mixture of equal Gaussians is that Gaussian, whose tails are symmetric."""
    random = np.random.default_rng(seed)
    mean = random.normal(size=(3, ROWS, TARGETS))
    variance = np.exp(random.normal(size=mean.shape))
    weight = np.full((*mean.shape, 4), 0.25)
    std = np.sqrt(variance)[..., None]
    mixture = GaussianMixtures(weight, mean[..., None] + 0 * weight, std + 0 * weight)
    half = np.array([0.05, 0.15])
    for distance in (-30.0, -9.0, 0.0, 9.0, 30.0):
        y = (mean + distance * np.sqrt(variance))[0]
        ends = y - half, y + half
        expected = Gaussians(mean[:1], variance[:1]).log_probability(*ends)
        actual = mixture.log_probability(*ends)[:1]
        assert np.isfinite(actual).all()
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
