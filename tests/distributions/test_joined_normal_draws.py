"""Normal draws next to mixtures of normal distributions, against single draws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import crps_by_quantiles
from skbayesnn._distributions.mixtures import (
    GaussianMixtures,
    JoinedDraws,
    of_one_class,
)

ROWS, TARGETS = 5, 2
# Of two kinds; the second and third draw of the mixtures are repeated.
NORMAL, MIXTURES, PEAKS = 4, 3, 6
DRAWS = np.array([0, 1, 2, 3, 4, 5, 5, 6, 6, 6])


def _parts(random, rows=ROWS):
    shape = MIXTURES, rows, TARGETS, PEAKS
    return (
        Gaussians(
            random.normal(size=(NORMAL, rows, TARGETS)),
            random.uniform(0.1, 2, size=(NORMAL, rows, TARGETS)),
        ),
        GaussianMixtures(
            random.dirichlet(np.ones(PEAKS), size=shape[:-1]),
            2 * random.normal(size=shape),
            random.uniform(0.2, 2, size=shape),
        ),
    )


@pytest.fixture
def parts(seed):
    return _parts(np.random.default_rng(seed))


@pytest.fixture
def mixed(parts):
    return JoinedDraws(parts, DRAWS)


@pytest.fixture
def y(seed):
    return 2 * np.random.default_rng([seed, 1]).normal(size=(ROWS, TARGETS))


def _density(parts, y):
    """Log density of each draw, by loops over the Gaussians."""
    normal, mixtures = parts
    values = [norm.logpdf(y, normal.mean, np.sqrt(normal.variance))]
    peaks = norm.logpdf(y[..., None], mixtures.location, mixtures.scale)
    values.append(logsumexp(peaks, axis=-1, b=mixtures.weight))
    return np.concatenate(values)[DRAWS]


def test_densities_and_moments(parts, mixed, y):
    expected = _density(parts, y)
    np.testing.assert_allclose(mixed.log_density_per_target(y), expected)
    np.testing.assert_allclose(
        mixed.mixture_log_density(y),
        logsumexp(expected.sum(-1), axis=0) - np.log(len(DRAWS)),
    )
    for name in ("mean", "variance"):
        values = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(mixed, name), values[DRAWS])
    low, high = y - np.array([0.2, 0.1]), y + np.array([0.3, 0.1])
    actual = np.exp(mixed.log_probability(low, high))
    # A difference of distribution functions has an absolute error.
    np.testing.assert_allclose(actual, mixed.cdf(high) - mixed.cdf(low), atol=1e-14)


def test_mixture_of_all_draws(mixed, y):
    cdf = mixed.cdf(y).mean(0)
    np.testing.assert_allclose(mixed.mixture_cdf(y), cdf, rtol=1e-12)
    np.testing.assert_allclose(mixed.mixture_quantile(cdf), y, rtol=1e-8, atol=1e-8)
    level = np.full((ROWS, TARGETS), 0.3)
    quantile = mixed.quantile(level)
    at_quantile = [mixed.cdf(values)[k] for k, values in enumerate(quantile)]
    np.testing.assert_allclose(at_quantile, 0.3, rtol=1e-8)
    by_quantiles = crps_by_quantiles(y, mixed.mixture_quantile)
    # 200 quantiles have an error below a thousandth.
    np.testing.assert_allclose(mixed.mixture_crps(y), by_quantiles, rtol=1e-3)


def test_equal_to_mixtures_with_the_same_number_of_gaussians(mixed, y):
    expanded = mixed.expanded()
    assert expanded.weight.shape == (len(DRAWS), ROWS, TARGETS, PEAKS)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(mixed, name), getattr(expanded, name))
    names = "mixture_cdf", "mixture_crps", "mixture_log_density", "crps_of_draws"
    for name in names:
        actual, expected = (getattr(draws, name)(y) for draws in (mixed, expanded))
        np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_scales(mixed, y):
    """y' = centre + factor (y - centre), exactly, and with a bound of the shift."""
    centre, factor = mixed.mean.mean(0), np.array([0.7, 1.6])
    before = centre + (y - centre) / factor
    for scaled, point in (
        (mixed.scaled_about(centre, factor), before),
        (mixed.rescaled((1 - factor) * centre, factor), before),
    ):
        np.testing.assert_allclose(
            scaled.log_density_per_target(y),
            mixed.log_density_per_target(point) - np.log(factor),
        )
    bounded = mixed.scaled_about(centre, factor, 0.1)
    expected = mixed.expanded().scaled_about(centre, factor, 0.1)
    np.testing.assert_allclose(bounded.mean, expected.mean)
    np.testing.assert_allclose(bounded.variance, expected.variance)


def test_samples_are_from_each_draw(parts):
    """10,000 copies of each draw: six standard errors of their means and variances."""
    n = 10_000
    mixed = JoinedDraws(parts, np.repeat(np.arange(NORMAL + MIXTURES), n))
    sample = mixed.sample(np.random.default_rng(0))
    sample = sample.reshape(NORMAL + MIXTURES, n, ROWS, TARGETS)
    mean, variance = (v[::n] for v in (mixed.mean, mixed.variance))
    error = np.abs(sample.mean(1) - mean) / np.sqrt(variance / n)
    assert error.max() < 6
    # The kurtosis of the mixtures is below 10.
    np.testing.assert_allclose(sample.var(1), variance, rtol=6 * 3 / np.sqrt(n))


def test_selections(mixed, y):
    density = mixed.log_density_per_target(y)
    rows, draws = np.array([3, 0]), np.array([9, 2, 2])
    for part, at, expected in (
        (mixed.rows(rows), y[rows], density[:, rows]),
        (mixed.draws(draws), y, density[draws]),
        (mixed.targets(slice(1, 2)), y[:, 1:], density[..., 1:]),
        (mixed.repeated(3), y, np.repeat(density, 3, axis=0)),
        (mixed.resized(5), y, density[::2]),
    ):
        assert (part.n_draws, part.n_rows, part.n_targets) == expected.shape
        np.testing.assert_array_equal(part.log_density_per_target(at), expected)


@pytest.mark.parametrize("same_draws", [True, False])
def test_concatenation(mixed, y, same_draws, seed):
    other = JoinedDraws(_parts(np.random.default_rng([seed, 2])), DRAWS)
    if not same_draws:
        other = other.draws(np.arange(len(DRAWS))[::-1])
    pair, function = [mixed, other], JoinedDraws.concatenated
    one, two = (part.log_density_per_target(y) for part in pair)
    for axis, at in enumerate([y, np.concatenate([y, y]), np.hstack([y, y])]):
        joined = function(pair, axis=axis)
        if axis:
            assert isinstance(joined, JoinedDraws) == same_draws
        np.testing.assert_allclose(
            joined.log_density_per_target(at), np.concatenate([one, two], axis)
        )


@pytest.mark.parametrize("most", [2, 3, 11])
def test_versions_of_rows(seed, most):
    """Each draw selects the same versions as other components."""
    random = np.random.default_rng(seed)
    n_versions = np.array([1, most, 2])
    first = np.cumsum(n_versions) - n_versions
    mixed = JoinedDraws(_parts(random, n_versions.sum()), DRAWS)
    actual = mixed.mix_versions(first, n_versions, most)
    expected = mixed.expanded().mix_versions(first, n_versions, most)
    y = random.normal(size=(3, TARGETS))
    np.testing.assert_allclose(
        actual.log_density_per_target(y), expected.log_density_per_target(y)
    )


def test_classes_of_parts(parts):
    normal, mixtures = parts
    assert of_one_class([normal, normal]) == [normal, normal]
    assert {type(part) for part in of_one_class(parts)} == {JoinedDraws}
    assert {type(part) for part in of_one_class([mixtures])} == {JoinedDraws}


# ---- draws that share y


def _shared(parts, share):
    """The parts, where the normal draws from the second one on share y."""
    normal, mixtures = parts
    own_share = np.ones((NORMAL, ROWS, TARGETS))
    own_share[1:] = share
    return replace(normal, own_share=own_share), mixtures


def test_means_of_draws_that_share_y(parts, seed):
    """y is from the draw itself, or from any of the draws 1 to 3."""
    share = np.random.default_rng([seed, 2]).uniform(0.1, 0.9, size=(ROWS, TARGETS))
    share[0] = 1.0
    normal, mixtures = _shared(parts, share)
    expected = normal.mean.copy()
    expected[1:] = share * normal.mean[1:] + (1 - share) * normal.mean[1:].mean(0)
    np.testing.assert_allclose(normal.given_draws(normal.mean), expected)
    joined = JoinedDraws((normal, mixtures), np.array([0, 1, 2, 3, 4, 5, 5, 6]))
    expected = np.concatenate([expected, mixtures.mean])[joined.draw]
    forms = {
        "joined": joined,
        "expanded": joined.expanded(),
        "rows in two parts": JoinedDraws.concatenated(
            [joined.rows(slice(0, 2)), joined.rows(slice(2, None))], axis=1
        ),
        "in a mixture": JoinedDraws.concatenated(
            [JoinedDraws((normal,), joined.draw[:4]), JoinedDraws.of(mixtures)]
        ).draws(np.array([0, 1, 2, 3, 4, 5, 5, 6])),
        "with draws that do not share": JoinedDraws.of(
            Gaussians.concatenated([normal, parts[0].draws([0, 2])])
        ).draws(np.arange(4)),
    }
    for name, form in forms.items():
        actual = form.given_draws(form.mean)
        np.testing.assert_allclose(
            actual, expected[: form.n_draws], rtol=1e-9, err_msg=name
        )
    scaled = joined.scaled_about(joined.mean.mean(0), np.array([2.0, 0.5]))
    for form in (joined, scaled):
        np.testing.assert_allclose(
            form.given_draws(form.mean).mean(0), form.mean.mean(0)
        )


def test_samples_of_draws_that_share_y(parts, seed):
    """Conditional means; the distribution over all draws stays the same."""
    normal, mixtures = _shared(parts, 0.4)
    joined = JoinedDraws((normal, mixtures), np.arange(NORMAL + MIXTURES))
    random, n = np.random.default_rng([seed, 3]), 20_000
    error = 6 * np.sqrt((joined.variance + joined.mean.var(0)).max() / n)
    for draw in (0, 2, 5):
        samples = joined.sample_given_draws(np.full(n, draw), random)
        expected = joined.given_draws(joined.mean)[draw]
        np.testing.assert_allclose(samples.mean(0), expected, atol=error)
        # Rows are independent, given a draw.
        correlation = np.corrcoef(samples[:, :, 0].T)
        assert np.abs(correlation - np.eye(ROWS)).max() < 6 / np.sqrt(n)
    draws = random.integers(joined.n_draws, size=n)
    samples = joined.sample_given_draws(draws, random)
    for y in (samples.min(0) / 3, samples.max(0) / 3):
        np.testing.assert_allclose(
            (samples <= y).mean(0), joined.mixture_cdf(y), atol=3 / np.sqrt(n)
        )
