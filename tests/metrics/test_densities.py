"""Scores of Gaussian mixtures, against closed forms, simulation and scoringrules."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn.metrics import mixture_crps, mixture_log_density

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


# ---- log density


def test_log_density_of_one_gaussian(mixture):
    y, mean, variance, _ = mixture
    expected = norm.logpdf(y, mean[0], np.sqrt(variance[0])).mean()
    assert mixture_log_density(y, mean[:1], variance[:1]) == pytest.approx(expected)
    # A mixture of equal components is that component.
    same = [np.tile(v[:1], (DRAWS, 1)) for v in (mean, variance)]
    assert mixture_log_density(y, *same) == pytest.approx(expected)


def test_log_density_is_the_log_of_the_mean_density(mixture):
    y, mean, variance, _ = mixture
    density = norm.pdf(y, mean, np.sqrt(variance)).mean(0)
    assert mixture_log_density(y, mean, variance) == pytest.approx(
        np.log(density).mean(), rel=1e-12
    )


def test_log_density_against_scoringrules(mixture):
    scoringrules = pytest.importorskip("scoringrules")
    y, mean, variance, _ = mixture
    expected = -scoringrules.logs_mixnorm(y, mean.T, np.sqrt(variance).T)
    assert mixture_log_density(y, mean, variance) == pytest.approx(
        expected.mean(), rel=1e-9
    )


def test_log_density_far_from_all_components(mixture):
    """No density underflows to zero."""
    y, mean, variance, _ = mixture
    far = logsumexp(norm.logpdf(1000.0, mean, np.sqrt(variance)), axis=0)
    assert mixture_log_density(y - y + 1000, mean, variance) == pytest.approx(
        far.mean() - np.log(DRAWS), rel=1e-12
    )


def test_log_density_has_units(mixture):
    """Nats of a density per unit of y."""
    y, mean, variance, _ = mixture
    scaled = mixture_log_density(1000 * y, 1000 * mean, 1e6 * variance)
    assert scaled == pytest.approx(
        mixture_log_density(y, mean, variance) - np.log(1000), abs=1e-12
    )


# ---- CRPS


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


# ---- errors


@pytest.mark.parametrize("score", [mixture_crps, mixture_log_density])
def test_bad_input(mixture, score):
    y, mean, variance, _ = mixture
    message = r"`mean` and `variance` must be of shape \(n_draws, n_samples\)"
    for wrong in (
        (y[:4], mean, variance),
        (y, mean, variance[:3]),
        (y[:, None], mean, variance),
        (y, mean.T, variance.T),
        (y, mean[0], variance[0]),
    ):
        with pytest.raises(ValueError, match=message):
            score(*wrong)
    with pytest.raises(ValueError, match="at least one draw"):
        score(y, mean[:0], variance[:0])
    with pytest.raises(ValueError, match=r"`variance` must be positive; got 0\.0"):
        score(y, mean, np.where(np.arange(ROWS) == 2, 0, variance))
    with pytest.raises(ValueError, match="`mean` must not contain NaN; got 7"):
        score(y, np.where(np.arange(ROWS) == 2, np.nan, mean), variance)
