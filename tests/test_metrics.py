"""Scores of predictive distributions, against closed forms and simulation."""

import numpy as np
import pytest
from scipy.stats import norm

from skbayesnn.metrics import interval_coverage, interval_width, mixture_crps

DRAWS, ROWS = 7, 5


@pytest.fixture
def mixture(seed):
    """y (5,), mean and variance (7, 5), and a generator."""
    random = np.random.default_rng(seed)
    y = 2 * random.standard_normal(ROWS)
    mean = random.standard_normal((DRAWS, ROWS))
    return y, mean, random.uniform(0.1, 2.0, (DRAWS, ROWS)), random


def gaussian_crps(y, mean, std):
    """Gneiting & Raftery (2007), eq. 21, with the sign of a loss."""
    z = (y - mean) / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def test_crps_of_one_gaussian(mixture):
    y, mean, variance, _ = mixture
    expected = gaussian_crps(y, mean[0], np.sqrt(variance[0])).mean()
    assert mixture_crps(y, mean[:1], variance[:1]) == pytest.approx(expected, rel=1e-12)
    # A mixture of equal components is that component.
    same = [np.tile(v[:1], (DRAWS, 1)) for v in (mean, variance)]
    assert mixture_crps(y, *same) == pytest.approx(expected, rel=1e-12)


def test_crps_against_scoringrules(mixture):
    scoringrules = pytest.importorskip("scoringrules")
    y, mean, variance, _ = mixture
    expected = scoringrules.crps_mixnorm(y, mean.T, np.sqrt(variance).T)
    assert mixture_crps(y, mean, variance) == pytest.approx(expected.mean(), rel=1e-9)


def test_crps_is_the_integral_of_the_squared_distance(mixture):
    """Definition: the integral of (F(x) - [y <= x])^2, by quadrature."""
    y, mean, variance, _ = mixture
    expected = []
    for i in range(ROWS):
        inside = np.linspace(-15, y[i], 20_001), np.linspace(y[i], 15, 20_001)
        for x, step in zip(inside, (0, 1), strict=True):
            cdf = norm.cdf(x, mean[:, i, None], np.sqrt(variance)[:, i, None]).mean(0)
            expected.append(np.trapezoid((cdf - step) ** 2, x))
    # Trapezoidal rule with steps of about 1e-3: errors of 1e-7.
    assert mixture_crps(y, mean, variance) == pytest.approx(
        np.sum(expected) / ROWS, abs=1e-6
    )


def test_crps_against_simulation(mixture):
    """E|Y - y| - E|Y - Y'| / 2."""
    y, mean, variance, random = mixture
    n = 40_000
    first, second = (
        np.take_along_axis(mean, draws, 0)
        + np.sqrt(np.take_along_axis(variance, draws, 0))
        * random.standard_normal((n, ROWS))
        for draws in (random.integers(DRAWS, size=(n, ROWS)) for _ in range(2))
    )
    terms = np.abs(first - y) - 0.5 * np.abs(first - second)
    error = terms.mean(1).std() / np.sqrt(n)
    # 5 standard errors.
    assert mixture_crps(y, mean, variance) == pytest.approx(terms.mean(), abs=5 * error)


def test_crps_has_units(mixture):
    y, mean, variance, _ = mixture
    crps = mixture_crps(y, mean, variance)
    scaled = mixture_crps(1e6 * y + 3, 1e6 * mean + 3, 1e12 * variance)
    assert scaled == pytest.approx(1e6 * crps, rel=1e-9)


def test_weights(mixture):
    y, mean, variance, _ = mixture
    interval = np.stack([mean[0] - 1, mean[0] + variance[0]], axis=-1)
    counts = np.array([3, 0, 1, 2, 4])
    rows = np.repeat(np.arange(ROWS), counts)
    assert mixture_crps(y, mean, variance, counts) == pytest.approx(
        mixture_crps(y[rows], mean[:, rows], variance[:, rows])
    )
    assert interval_coverage(y, interval, counts) == pytest.approx(
        interval_coverage(y[rows], interval[rows])
    )
    assert interval_width(interval, counts) == pytest.approx(
        interval_width(interval[rows])
    )


def test_interval_coverage():
    interval = np.array([[0, 1], [0, 1], [0, 1], [-2, 5], [3, 4.0]])
    y = [0.0, 1.0, 1.1, 3.0, 2.9]  # ends count as inside
    assert interval_coverage(y, interval) == pytest.approx(3 / 5)
    assert interval_width(interval) == pytest.approx((3 * 1 + 7 + 1) / 5)
    assert type(interval_coverage(y, interval)) is float
    assert type(interval_width(interval)) is float


def test_several_targets():
    """Mean over targets, then over rows."""
    interval = np.zeros((3, 2, 2))
    interval[..., 1] = [[1, 10], [1, 20], [1, 30]]
    y = np.array([[0.5, 40], [2.0, 40], [0.5, 5]])
    assert interval_coverage(y, interval) == pytest.approx(3 / 6)
    assert interval_coverage(y, interval, [1, 0, 1]) == pytest.approx(3 / 4)
    assert interval_width(interval) == pytest.approx((3 + 60) / 6)


def test_shapes_that_do_not_match(mixture):
    y, mean, variance, _ = mixture
    message = r"`mean` and `variance` must be of shape \(n_draws, n_samples\)"
    for wrong in (
        (y[:4], mean, variance),
        (y, mean, variance[:3]),
        (y[:, None], mean, variance),
        (y, mean.T, variance.T),
    ):
        with pytest.raises(ValueError, match=message):
            mixture_crps(*wrong)
    with pytest.raises(
        ValueError, match=r"`interval` must be of shape \(\*y.shape, 2\)"
    ):
        interval_coverage(y, np.zeros((2, ROWS)))
