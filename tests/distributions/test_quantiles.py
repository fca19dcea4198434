"""The mixture's distribution function and its inverse, against SciPy; float64."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from skbayesnn._distributions import quantiles
from skbayesnn._distributions.quantiles import (
    intervals,
    mixture_cdf,
    mixture_quantile,
    shortest_tail,
)

DRAWS, ROWS, TARGETS = 50, 5, 2
LEVELS = [1e-6, 0.05, 0.5, 0.95, 1 - 1e-6]


@pytest.fixture
def gaussians(seed):
    """Means and variances (draws, rows, targets) of a mixture."""
    random = np.random.default_rng(seed)
    mean = 3 * random.normal(size=(DRAWS, ROWS, TARGETS))
    return mean, random.uniform(0.05, 4, size=mean.shape)


def test_cdf_is_the_mean_of_the_components(gaussians, seed):
    mean, variance = gaussians
    y = 5 * np.random.default_rng(seed + 1).normal(size=(ROWS, TARGETS))
    expected = norm.cdf(y, mean, np.sqrt(variance)).mean(0)
    np.testing.assert_allclose(mixture_cdf(mean, variance, y), expected, rtol=1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_quantile_is_the_root_of_the_distribution_function(gaussians, level):
    mean, variance = gaussians
    actual = mixture_quantile(mean, variance, level)
    assert actual.shape == (ROWS, TARGETS)
    for row in range(ROWS):
        for target in range(TARGETS):
            mixture = norm(mean[:, row, target], np.sqrt(variance[:, row, target]))
            root = brentq(
                lambda y, mixture=mixture: mixture.cdf(y).mean() - level,
                -100,
                100,
                xtol=1e-13,
                rtol=1e-14,
            )
            # Near 1 the level is accurate to 1e-16 only: 1e-8 of the width.
            assert actual[row, target] == pytest.approx(root, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ([0.0, 1e6], [1.0, 1.0]),  # no mass between two distant modes
        ([0.0, 0.0, 0.0], [1e-6, 1.0, 1e6]),  # widths that span twelve decades
        ([1e6, 1e6 + 1], [0.5, 0.5]),  # far from zero
        ([-3.0] * 99 + [500.0], [0.1] * 100),  # one distant draw
    ],
    ids=["two modes", "widths", "far", "one distant"],
)
def test_quantile_of_hard_mixtures(mean, std, level):
    """F(quantile) is the level, where F is not flat."""
    mean, std = np.array(mean)[:, None, None], np.array(std)[:, None, None]
    actual = mixture_quantile(mean, std**2, level)
    reached = norm(mean, std).cdf(actual).mean(0).item()
    assert reached == pytest.approx(level, rel=1e-6, abs=1e-12)


def test_levels_may_differ_per_row_and_target(gaussians, seed):
    level = np.random.default_rng(seed + 1).uniform(0.001, 0.999, (ROWS, TARGETS))
    actual = mixture_quantile(*gaussians, level)
    np.testing.assert_allclose(mixture_cdf(*gaussians, actual), level, rtol=1e-10)
    for row in range(ROWS):
        for target in range(TARGETS):
            alone = mixture_quantile(*gaussians, level[row, target])
            assert actual[row, target] == pytest.approx(alone[row, target], rel=1e-12)


def test_chunks_of_columns_give_the_same_quantiles(gaussians, monkeypatch):
    whole = mixture_quantile(*gaussians, 0.3)
    monkeypatch.setattr(quantiles, "_CHUNK", 3 * DRAWS)
    # Vectorised and single exponentials differ in the last digit.
    np.testing.assert_allclose(mixture_quantile(*gaussians, 0.3), whole, rtol=1e-12)


def test_single_precision_is_computed_in_double(gaussians):
    single = [values.astype(np.float32) for values in gaussians]
    actual = mixture_quantile(*single, 0.1)
    assert actual.dtype == np.float64
    # Only means and variances are rounded: 1e-7 of values of order ten.
    np.testing.assert_allclose(actual, mixture_quantile(*gaussians, 0.1), atol=1e-5)


# --------------------------------------------------------------------- intervals


def _interval(mean, variance, coverage, kind):
    quantile = partial(mixture_quantile, mean, variance)
    return intervals(quantile, mean.shape[1:], [coverage], kind)[..., 0, :]


@pytest.mark.parametrize("kind", ["equal_tailed", "highest_density"])
@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.999])
def test_interval_has_its_coverage(gaussians, kind, coverage):
    interval = _interval(*gaussians, coverage, kind)
    assert interval.shape == (ROWS, TARGETS, 2)
    below, above = (mixture_cdf(*gaussians, interval[..., i]) for i in (0, 1))
    np.testing.assert_allclose(above - below, coverage, rtol=1e-9)
    if kind == "equal_tailed":
        np.testing.assert_allclose(below, (1 - coverage) / 2, rtol=1e-9)


def test_shortest_interval_of_a_gaussian_is_central():
    mean, variance = np.array([[[3.0], [-1.0], [0.0]]]), np.array([[[1.0], [4], [0.1]]])
    for coverage in (0.2, 0.9):
        # Golden sections end within 1e-5 (1 - c) of the best tail.
        np.testing.assert_allclose(
            shortest_tail(partial(mixture_quantile, mean, variance), (3, 1), coverage),
            (1 - coverage) / 2,
            atol=1e-5,
        )


def test_shortest_interval_is_the_shortest(gaussians):
    """Against SciPy's minimiser, started from every part of the range."""
    mean, variance = gaussians
    coverage = 0.7
    interval = _interval(mean, variance, coverage, "highest_density")
    width = interval[..., 1] - interval[..., 0]
    for row in range(ROWS):
        mixture = mean[:, row : row + 1, :1], variance[:, row : row + 1, :1]

        def interval_width(tail, mixture=mixture):
            high, low = (mixture_quantile(*mixture, q) for q in (tail + coverage, tail))
            return (high - low).item()

        edges = np.linspace(1e-9, 1 - coverage - 1e-9, 9)
        best = min(
            minimize_scalar(interval_width, bounds=(a, b), method="bounded").fun
            for a, b in itertools.pairwise(edges)
        )
        # The width is flat about the best tail: 1e-5 of the tail is far less of the
        # width.
        assert width[row, 0] <= best * (1 + 1e-6)


def test_shortest_interval_has_equal_density_at_its_bounds():
    """The highest-density region of a skewed mixture with one mode."""
    mean = np.array([0.0, 1.0, 3.0])[:, None, None]
    std = np.array([1.0, 1.5, 3.0])[:, None, None]
    low, high = _interval(mean, std**2, 0.8, "highest_density")[0, 0]
    density = norm.pdf([low, high], mean[:, 0], std[:, 0]).mean(0)
    assert density[0] == pytest.approx(density[1], rel=1e-4)
    central = _interval(mean, std**2, 0.8, "equal_tailed")[0, 0]
    assert high - low < 0.99 * (central[1] - central[0])


def test_shortest_interval_is_at_the_sharper_mode():
    mean = np.array([0.0, 0.0, 0.0, 10.0, 10.0])[:, None, None]
    std = np.array([0.1, 0.1, 0.1, 2.0, 2.0])[:, None, None]
    low, high = _interval(mean, std**2, 0.5, "highest_density")[0, 0]
    assert -1 < low < high < 1


def test_unknown_kind_of_interval():
    with pytest.raises(ValueError, match="`kind` must be one of 'equal_tailed'"):
        intervals(None, (3, 1), [0.9], "hdi")
