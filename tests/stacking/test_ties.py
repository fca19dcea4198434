"""Weights with ties in y, and weights by CRPS, against closed forms."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm, poisson

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import (
    gaussian_mixture_distance,
    sample_distance,
)
from skbayesnn._likelihoods.poisson import Counts
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking.candidates import StackData
from skbayesnn._stacking.weights import (
    OutOfFold,
    best_factor,
    crps_products,
    crps_weights,
    sparse_stacking_weights,
)
from tests.helpers.stacks import QUICK


def _gaussians(seed, draws, rows, targets=1):
    random = np.random.default_rng(seed)
    shape = draws, rows, targets
    return Gaussians(random.normal(size=shape), random.uniform(0.1, 2, size=shape))


# ---- probability of an interval


def test_probability_is_the_integral_of_the_density(seed):
    components = _gaussians(seed, draws=2, rows=3, targets=4)
    random = np.random.default_rng(seed + 1)
    low = random.normal(size=(3, 4))
    high = low + random.choice([1e-3, 0.3, 2.5], size=(3, 4))
    actual = components.log_probability(low, high)
    density = components.log_density_in(low, high)
    for i, j, k in np.ndindex(actual.shape):
        std = np.sqrt(components.variance[i, j, k])
        ends = low[j, k], high[j, k]
        inside, _ = quad(norm(components.mean[i, j, k], std).pdf, *ends)
        # The error of the quadrature is below 1e-12.
        assert actual[i, j, k] == pytest.approx(np.log(inside), abs=1e-9)
        width = high[j, k] - low[j, k]
        assert density[i, j, k] == pytest.approx(np.log(inside / width), abs=1e-9)


def test_probability_of_a_normal_distribution_is_exact_in_the_tails():
    """P(Y > a) is phi(a) / a (1 - 1 / a^2 + ...) far from the mean."""
    components = Gaussians(np.zeros((1, 4, 1)), np.ones((1, 4, 1)))
    low = np.array([[49.0], [-51.0], [49.0], [-np.inf]])
    high = np.array([[51.0], [-49.0], [np.inf], [-49.0]])
    expected = norm.logpdf(49) - np.log(49)
    # 1 / 49^2 is 4e-4.
    actual = components.log_probability(low, high)
    np.testing.assert_allclose(actual.ravel(), expected, atol=1e-3)


def test_probability_of_other_distributions_is_a_difference_of_cdfs(seed):
    rate = np.random.default_rng(seed).uniform(1, 5, size=(2, 3, 1))
    y = np.array([[0.0], [2.0], [4.0]])
    actual = Counts(rate).log_probability(y - 1.5, y + 1.5)
    inside = poisson.cdf(y + 1, rate) - poisson.cdf(y - 2, rate)
    np.testing.assert_allclose(actual, np.log(inside))


def test_mixture_has_densities_at_points_and_mean_densities_in_cells(seed):
    components = _gaussians(seed, draws=5, rows=3, targets=2)
    y = np.random.default_rng(seed + 1).normal(size=(3, 2))
    cells = Cells(y - np.array([0, 0.1]), y + np.array([0, 0.3]))
    predictive = MixturePredictive(components, squeeze_targets=False)
    std = np.sqrt(components.variance)
    density = norm.pdf(y[:, 0], components.mean[..., 0], std[..., 0])
    low, high = (
        norm.cdf(end[:, 1], components.mean[..., 1], std[..., 1]) for end in cells
    )
    expected = np.log((density * (high - low) / 0.4).mean(0))
    np.testing.assert_allclose(predictive.log_density(cells), expected)
    np.testing.assert_array_equal(
        predictive.log_density(Cells(y, y)), predictive.log_density(y)
    )


# ---- cells


def test_cells_of_repeated_values():
    """Cells end half-way between values, and are disjoint.

    A value that occurs once is its own cell, and a cell is not wider than the error.
    """
    training = np.array([0.0, 0.0, 1.0, 1.0, 4.0, 4.0, 4.0, 9.0, 10.0, 10.0])
    y = np.array([0.0, 1.0, 4.0, 9.0, 10.0])
    for most, expected in {
        np.inf: [(-0.5, 0.5), (0.5, 2.5), (2.5, 6.5), (9, 9), (9.5, 10.5)],
        1.2: [(-0.5, 0.5), (0.5, 2.2), (2.8, 5.2), (9, 9), (9.5, 10.5)],
        0.0: [(value, value) for value in y],
    }.items():
        # The other target has other values; rounding errors do not separate values.
        other = np.resize([3.0, 3.0 + 1e-15, 7.0], len(training))
        cells = Cells.of(
            np.stack([y, np.full(5, 3.0)], 1),
            np.stack([training, other], 1),
            np.array([most, np.inf]),
        )
        np.testing.assert_allclose(np.stack(cells, -1)[:, 0], expected)
        np.testing.assert_allclose(np.stack(cells, -1)[:, 1], [(1, 5)] * 5)


def test_continuous_y_has_no_cells_and_constant_y_has_one(seed):
    y = np.random.default_rng(seed).normal(size=(30, 2))
    y[:, 1] = 7
    cells = Cells.of(y, y, np.zeros(2))
    np.testing.assert_array_equal(cells.low, y - np.array([0, 0.5]))
    np.testing.assert_array_equal(cells.high, y + np.array([0, 0.5]))


# ---- spikes do not win


def _out_of_fold(candidates, y):
    data = StackData(np.zeros((len(y), 1)), y, None)
    parts = [
        MixturePredictive(
            Gaussians(mean[..., None], np.full_like(mean, var)[..., None]), True
        )
        for mean, var in candidates
    ]
    rows = np.arange(len(y))
    return OutOfFold(parts, rows, data, np.ones(len(y)), rows % 2)


def _rounded(x):
    return np.round(x)


def _coarse(x):
    return 0.3 * np.round(x, 1)


def _clipped(x):
    return np.maximum(x + 0.6, 0)


@pytest.mark.parametrize("observe", [_rounded, _coarse, _clipped])
@pytest.mark.parametrize("score", ["log_density", "crps"])
def test_spikes_do_not_win(seed, observe, score):
    """Spikes at values of y, independent of X, against a normal distribution of y | X.

    By plain densities the spikes would have most of the weight.
    """
    random = np.random.default_rng(seed)
    n_rows = 1200
    centre = random.normal(size=n_rows)
    y = observe(centre + random.normal(size=n_rows))
    samples = observe(centre + random.normal(size=(200, n_rows)))
    honest = samples.mean(0)[None], samples.var(0).mean()
    spikes = random.permuted(np.tile(y, (50, 1)), axis=1), (1e-9 * y.std()) ** 2
    oof = _out_of_fold([honest, spikes], y)
    densities = [part.log_density(y) for part in oof.predictives]
    plain = sparse_stacking_weights(np.stack(densities, 1), np.ones(n_rows))
    weights = oof.stacked(score).weights
    assert plain[1] > 0.3
    # At a floor they are right: at most in its rows.
    assert weights[1] < max(0.3, np.mean(y == y.min()) + 0.05)


def test_factor_of_rounded_values_is_unbiased():
    """The rounded values have the variance of the distribution plus width^2 / 12."""
    values = np.arange(-12, 13) / 2
    counts = np.round(4000 * norm.pdf(values) / norm.pdf(values).sum()).astype(int)
    y = np.repeat(values, counts)[:, None]
    variance = np.full((1, len(y), 1), y.var() - 0.5**2 / 12)
    mixture = MixturePredictive(Gaussians(0 * variance, variance), True)
    cells = Cells.of(y, y, np.full(1, np.inf))
    [factor] = best_factor(mixture, cells, np.ones(len(y)))
    # Sheppard's correction; the factor is rounded to a thousandth.
    assert factor == pytest.approx(1, abs=2e-3)


def test_candidate_without_density_has_no_weight():
    y = np.random.default_rng(0).normal(size=8)
    far = np.full((1, 8), 1e9) + np.arange(8)
    good = np.zeros((1, 8)) + y / 2
    for parts in (
        [(good, 1.0), (far, 1.0)],
        [(good, 1.0), (np.full((1, 8), np.nan), 1.0)],
    ):
        assert _out_of_fold(parts, y).stacked().weights.tolist() == [1, 0]


def test_a_quarter_of_weights_by_log_density_minimises_the_crps(seed):
    """Among candidates that have weight by log density; the others keep none."""
    random = np.random.default_rng(seed)
    n_rows = 501
    y = random.normal(size=n_rows)
    candidates = [
        ((y + error * random.normal(size=n_rows))[None], variance)
        for error, variance in [(0.5, 0.04), (0.9, 0.9), (0.6, 1.4), (9.0, 0.03)]
    ]
    oof = _out_of_fold(candidates, y)
    first = sparse_stacking_weights(oof.log_density(), np.ones(n_rows))
    used = np.flatnonzero(first)
    assert 1 < len(used) < 4
    rows = np.arange(0, n_rows, 2)  # at most 500
    components = [oof.predictives[i].components.rows(rows) for i in used]
    products = crps_products(components, y[rows, None], np.ones(len(rows)))
    expected = 0.75 * first
    expected[used] += 0.25 * crps_weights(products)
    assert np.abs(expected - first).max() > 0.01
    np.testing.assert_allclose(oof.stacked().weights, expected, atol=1e-8)


def test_candidate_that_is_worse_than_a_constant_has_no_weight(seed):
    """Although only this one has a density in a few rows."""
    random = np.random.default_rng(seed)
    y = random.normal(size=200)
    good = y + 0.1 * random.normal(size=200)
    good[:4] += 5
    wild = 6 * random.normal(size=200)
    oof = _out_of_fold([(good[None], 0.01), (wild[None], 25.0)], y)
    assert sparse_stacking_weights(oof.log_density(), np.ones(200))[1] > 0.01
    for score in ("log_density", "crps"):
        assert oof.stacked(score).weights.tolist() == [1, 0]
    # If all are worse, they are kept.
    assert _out_of_fold([(wild[None], 25.0)], y).stacked().weights.tolist() == [1]
    wild[3] = np.inf
    assert _out_of_fold([(wild[None], 25.0)], y).stacked().weights.tolist() == [1]


def test_log_density_of_counts_is_not_better_than_the_truth(seed):
    """Forests have spikes at the values of y."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(600, 2))
    rate = np.exp(0.3 + 0.5 * X[:, 0])
    y = random.poisson(rate).astype(float)
    pool = [("forest", "fast"), ("linear", "fast")]
    model = BayesianStackingRegressor(pool, max_iter=20, random_state=0).fit(X, y)
    truth = poisson.logpmf(y, rate)
    # Three standard errors of a mean of 600 rows.
    assert model.summary_.log_density < truth.mean() + 3 * truth.std() / 600**0.5
    assert np.nanmean(model.oof_log_density_) == pytest.approx(
        model.summary_.log_density
    )


# ---- weights by CRPS


def test_distance_of_gaussian_mixtures_is_the_mean_of_samples(seed):
    """The CRPS of a mixture of both contains the same distance."""
    first, second = _gaussians(seed, 3, 4, 2), _gaussians(seed + 1, 6, 4, 2)
    arguments = first.mean, first.variance, second.mean, second.variance
    actual = gaussian_mixture_distance(*arguments)
    expected = np.zeros((4, 2))
    for i in range(3):
        for j in range(6):
            std = np.sqrt(first.variance[i] + second.variance[j])
            z = (first.mean[i] - second.mean[j]) / std
            expected += std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z)) / 18
    np.testing.assert_allclose(actual, expected)


def test_distance_of_samples_is_the_mean_over_pairs(seed):
    random = np.random.default_rng(seed)
    points, others = random.normal(size=(2, 5, 3, 2))
    weights = random.dirichlet(np.ones(5))
    pairs = np.abs(points[:, None] - others)
    expected = np.einsum("i,j,ij...->...", weights, weights, pairs)
    np.testing.assert_allclose(sample_distance(points, others, weights), expected)


def test_products_are_the_crps_of_mixtures(seed):
    """With equal weights: the CRPS of the pooled draws."""
    parts = [_gaussians(seed + i, draws=2, rows=7, targets=3) for i in range(4)]
    random = np.random.default_rng(seed)
    y, row_weights = random.normal(size=(7, 3)), random.uniform(size=7)
    products = crps_products(parts, y, row_weights)
    scale = np.sqrt(
        np.average((y - np.average(y, 0, row_weights)) ** 2, 0, row_weights)
    )
    for kept in ([0], [1, 3], [0, 1, 2, 3]):
        pooled = Gaussians.concatenated([parts[i] for i in kept])
        crps = np.average(pooled.mixture_crps(y), 0, row_weights) / scale
        share = np.zeros(4)
        share[kept] = 1 / len(kept)
        assert share @ products @ share == pytest.approx(crps.mean())


def test_products_of_counts_are_the_crps_of_mixtures(seed):
    random = np.random.default_rng(seed)
    parts = [Counts(random.uniform(1, 9, size=(3, 5, 1))) for _ in range(2)]
    y = random.integers(0, 9, size=(5, 1)).astype(float)
    share = np.array([0.5, 0.5])
    products = crps_products(parts, y, np.ones(5))
    crps = Counts.concatenated(parts).mixture_crps(y).mean() / y.std()
    # A hundred quantiles represent each distribution.
    assert share @ products @ share == pytest.approx(crps, abs=0.01)


def test_weights_by_crps_are_the_optimum_of_a_general_solver(seed):
    parts = [_gaussians(seed + i, draws=2, rows=30) for i in range(5)]
    y = np.random.default_rng(seed).normal(size=(30, 1))
    products = crps_products(parts, y, np.ones(30))
    weights = crps_weights(products)
    assert weights.sum() == pytest.approx(1)
    best = minimize(
        lambda w: w @ products @ w,
        np.full(5, 0.2),
        method="SLSQP",
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-12},
    )
    # Candidates below 2 % are left out, which may cost a little.
    assert weights @ products @ weights <= best.fun * (1 + 1e-3)


def test_perfect_candidate_has_all_weight():
    products = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 2.0]])
    np.testing.assert_allclose(crps_weights(products), [1, 0, 0], atol=1e-9)


def test_stack_with_weights_by_crps(table):
    X, y = table
    pool = [("network", MCDropoutRegressor(**QUICK), {"length_scale": [0.5, 5.0]})]
    model = BayesianStackingRegressor(pool, weights="crps", cv=3, random_state=0)
    model.fit(X, y)
    assert model.weights_["weight"].sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="weights"):
        model.set_params(weights="brier").fit(X, y)
