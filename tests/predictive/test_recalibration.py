"""Scales and quantile maps fitted to held-out rows, against closed forms; float64."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.recalibration import QuantileMap, likeliest_scale

DRAWS, ROWS = 7, 50
# Brent's method stops within 1e-5 of the log of the scale.
OPTIMUM = 3e-5


@pytest.fixture
def predicted(seed):
    """Means and variances (draws, rows), and weights (rows,)."""
    random = np.random.default_rng([seed, 1])
    mean = random.normal(size=ROWS) + 0.3 * random.normal(size=(DRAWS, ROWS))
    variance = random.uniform(0.5, 2, size=(DRAWS, ROWS))
    return mean, variance, random.integers(1, 4, size=ROWS).astype(float)


def _sampled(mean, variance, random, n=1):
    """y of every row, drawn from its mixture, (n, rows)."""
    which = random.integers(len(mean), size=(n, mean.shape[1]))
    rows = np.arange(mean.shape[1])
    noise = random.normal(size=which.shape)
    return mean[which, rows] + np.sqrt(variance[which, rows]) * noise


def _likeliest_scale(mean, variance, y, weight):
    """The likeliest scale of Gaussian components, (draws, rows)."""
    components = Gaussians(mean[..., None], variance[..., None])
    return likeliest_scale([components], y, weight)


def _log_density(scale, mean, variance, y, weight):
    """Weighted mean log density of y; ``scale`` spreads the mixtures about the mean."""
    centre = mean.mean(0)
    density = norm(centre + scale * (mean - centre), scale * np.sqrt(variance)).pdf(y)
    return np.average(np.log(density.mean(0)), weights=weight)


# ---- scale


def test_scale_of_gaussians_is_the_rms_of_standardised_residuals(predicted, seed):
    mean, variance, weight = predicted[0][:1], predicted[1][:1], predicted[2]
    y = 20 * np.random.default_rng([seed, 2]).normal(size=ROWS)
    squares = np.square(y - mean[0]) / variance[0]
    expected = np.sqrt(np.average(squares, weights=weight))
    actual = _likeliest_scale(mean, variance, y, weight)
    assert actual == pytest.approx(expected, rel=OPTIMUM)


@pytest.mark.parametrize("wrong", [0.2, 1.0, 5.0])
def test_no_scale_makes_y_likelier(predicted, seed, wrong):
    mean, variance, weight = predicted
    y = _sampled(mean, variance, np.random.default_rng([seed, 3]))[0]
    centre = mean.mean(0)
    y = centre + wrong * (y - centre)
    actual = _likeliest_scale(mean, variance, y, weight)
    best = _log_density(actual, mean, variance, y, weight)
    around = actual * np.geomspace(0.1, 10, 301)
    around_densities = [
        _log_density(scale, mean, variance, y, weight) for scale in around
    ]
    # An optimum accurate to 1e-5 is lower by 1e-10 times the curvature, about 2.
    assert max(around_densities) <= best + 1e-9
    # The slope vanishes at the optimum: half a step of 1e-3 to each side is equally
    # low.
    up, down = (
        _log_density(actual * np.exp(step), mean, variance, y, weight)
        for step in (1e-3, -1e-3)
    )
    assert up - down == pytest.approx(0, abs=4 * OPTIMUM * 2e-3)


def test_scale_of_sharp_and_wide_draws(seed):
    """The likelihood has a peak for each kind of draw; the higher one is returned."""
    random = np.random.default_rng(seed)
    n_rows = 23
    variance = np.array([1e-6, 1.0])[:, None].repeat(n_rows, 1)
    mean = np.zeros((2, n_rows))
    for std in (1e-3, 1.0, 30.0):
        y, weight = std * random.normal(size=n_rows), np.ones(n_rows)
        actual = np.log(_likeliest_scale(mean, variance, y, weight))

        def density(log_scale, y=y):
            parts = norm.logpdf(y, 0, np.exp(log_scale) * np.sqrt(variance))
            return (np.logaddexp(*parts) - np.log(2)).mean()

        everywhere = max(map(density, np.linspace(-9, 9, 1000)))
        # Rows close to 0 make ripples on the peaks, finer than the grid.
        assert density(actual) > everywhere - 0.02


def test_scale_counts_rows_by_weight(predicted, seed):
    mean, variance, weight = predicted
    y = 3 * np.random.default_rng([seed, 4]).normal(size=ROWS)
    rows = np.repeat(np.arange(ROWS), weight.astype(int))
    repeated = _likeliest_scale(
        mean[:, rows], variance[:, rows], y[rows], np.ones(len(rows))
    )
    actual = _likeliest_scale(mean, variance, y, weight)
    assert actual == pytest.approx(repeated, rel=OPTIMUM)
    assert _likeliest_scale(mean, variance, y, 5 * weight) == pytest.approx(
        actual, rel=OPTIMUM
    )


def test_scale_has_no_unit(predicted, seed):
    mean, variance, weight = predicted
    y = 3 * np.random.default_rng([seed, 5]).normal(size=ROWS)
    actual = _likeliest_scale(mean, variance, y, weight)
    in_other_units = _likeliest_scale(
        1e4 * mean - 7, 1e8 * variance, 1e4 * y - 7, weight
    )
    assert in_other_units == pytest.approx(actual, rel=OPTIMUM)


@pytest.mark.parametrize("wrong", [1 / 3, 3.0])
def test_scale_undoes_a_wrong_spread(predicted, seed, wrong):
    mean, variance, _ = predicted
    n = 100
    y = _sampled(mean, variance, np.random.default_rng([seed, 6]), n).ravel()
    mean, variance = np.tile(mean, (1, n)), np.tile(variance, (1, n))
    centre = mean.mean(0)
    y = centre + wrong * (y - centre)
    actual = _likeliest_scale(mean, variance, y, np.ones(len(y)))
    # The standard error of a Gaussian's log scale is 1 / sqrt(2 rows) = 1 %; the tails
    # of these mixtures are as short. Five standard errors.
    assert actual == pytest.approx(wrong, rel=0.05)


# ---- map


def _stratified(n):
    return (np.arange(n) + 0.5) / n


def _map_of(level):
    level = np.asarray(level, dtype=float)
    return QuantileMap.fit(level, np.ones(len(level)))


def _mixed(value, draw):
    """A value or a draw at random."""
    return lambda random: np.where(random.random(100) < 0.5, value, draw(random))


def _uniform(random):
    return random.random(100)


LEVELS = {
    "one row": lambda random: random.random(1),
    "two rows": lambda random: random.random(2),
    "uniform": _uniform,
    "crowded at the ends": lambda random: ndtr(5 * random.normal(size=100)),
    "crowded in the middle": lambda random: ndtr(0.2 * random.normal(size=100)),
    "on one side": lambda random: random.random(100) ** 8,
    "half at zero": _mixed(0.0, _uniform),
    "half at one": _mixed(1.0, _uniform),
    "at both ends": _mixed(0.0, lambda random: 1.0),
    "all at one": lambda random: np.ones(20),
    "one value": lambda random: np.full(20, 0.3),
    "few values": lambda random: random.integers(1, 4, size=100) / 4,
    "next to one": lambda random: 1 - 1e-13 * random.random(100),
}


@pytest.fixture(params=LEVELS)
def any_map(request, seed):
    return _map_of(LEVELS[request.param](np.random.default_rng([seed, 7])))


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_map_of_uniform_levels_is_the_identity(n):
    identity = _map_of(_stratified(n))
    np.testing.assert_allclose(identity.level, identity.share, atol=1e-14)
    level = np.linspace(0, 1, 33)
    np.testing.assert_allclose(identity(level), level, atol=1e-14)
    np.testing.assert_allclose(identity.log_slope(level), 0, atol=1e-12)


def test_map_rises_from_zero_to_one(any_map):
    quantile_map = any_map
    for knots in (quantile_map.level, quantile_map.share):
        assert knots[0] == 0 and knots[-1] == 1
        assert (np.diff(knots) > 0).all()
    assert quantile_map(0.0) == 0 and quantile_map(1.0) == 1
    level = np.linspace(0, 1, 1001)
    assert (np.diff(quantile_map(level)) > 0).all()


def test_inverse_of_the_map(any_map, seed):
    quantile_map = any_map
    level = np.random.default_rng([seed, 8]).random(200)
    # A share close to 1 is accurate to 1e-16, a level to 1e-16 divided by the slope,
    # whose smallest value is a share of 0.1.
    np.testing.assert_allclose(
        quantile_map.inverse(quantile_map(level)), level, atol=1e-13
    )


def test_slope_integrates_to_one(any_map):
    quantile_map = any_map
    middle = (quantile_map.level[1:] + quantile_map.level[:-1]) / 2
    pieces = np.exp(quantile_map.log_slope(middle)) * np.diff(quantile_map.level)
    np.testing.assert_allclose(pieces, np.diff(quantile_map.share), rtol=1e-9)
    assert pieces.sum() == pytest.approx(1)
    assert np.isfinite(quantile_map.log_slope(np.array([0.0, 1.0]))).all()


def test_map_goes_through_the_shares_of_the_rows(seed):
    """Without ties the knots are quantiles of the levels, about sqrt(n) of them."""
    level = np.random.default_rng([seed, 9]).random(400) ** 2
    quantile_map = _map_of(level)
    assert len(quantile_map.level) == 21
    inner = np.quantile(level, quantile_map.share[1:-1], method="hazen")
    np.testing.assert_allclose(quantile_map.level[1:-1], inner, rtol=1e-9)


def test_map_counts_rows_by_weight(seed):
    """Compare at the shares that both maps contain; one has repeated rows.

    Repeated rows add no information, so 100 rows of which 25 differ have 5 pieces as
    weights and 10 as rows.
    """
    random = np.random.default_rng([seed, 10])
    level, weight = (
        random.random(25),
        random.permutation(np.repeat([3, 4, 5], [8, 9, 8])),
    )
    weighted = QuantileMap.fit(level, weight.astype(float))
    repeated = _map_of(np.repeat(level, weight))
    assert len(weighted.level) == 6 and len(repeated.level) == 11
    np.testing.assert_allclose(weighted.level, repeated.level[::2], rtol=1e-9)
    scaled = QuantileMap.fit(level, 7.0 * weight)
    np.testing.assert_allclose(scaled.level, weighted.level, rtol=1e-12)
    absent = QuantileMap.fit(np.r_[level, 0.5], np.r_[weight, 0].astype(float))
    np.testing.assert_allclose(absent.level, weighted.level, rtol=1e-12)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_map_recovers_a_known_distortion(seed, power):
    """Levels u^k of a uniform u: a share of l^(1/k) lies below the level l."""
    random = np.random.default_rng([seed, 11])
    n = 10_000
    quantile_map = _map_of(random.random(n) ** power)
    level = np.linspace(0, 1, 401)
    # The largest error of an empirical distribution function exceeds 0.03 once in 1e7
    # (Dvoretzky, Kiefer & Wolfowitz: 2 exp(-2 n 0.03^2)); between knots the error may
    # grow by one hundredth, their distance.
    np.testing.assert_allclose(quantile_map(level), level ** (1 / power), atol=0.04)


@pytest.mark.parametrize(("end", "shares"), [(0.0, [0.7, 0.8]), (1.0, [0.2, 0.3])])
def test_levels_that_are_zero_or_one(seed, end, shares):
    """Half of y lies where levels are rounded to 0 or 1; the other levels are right."""
    uniform = np.random.default_rng([seed, 12]).random(50)
    level = np.r_[np.full(50, end), uniform]
    inside = np.quantile(level, shares)
    below = [(level <= value).mean() for value in inside]
    # Linear between ten knots.
    np.testing.assert_allclose(_map_of(level)(inside), below, atol=0.1)
