"""Weights with ties in y, and weights by CRPS, against closed forms."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm, poisson

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import (
    gaussian_mixture_distance,
    sample_distance,
)
from skbayesnn._likelihoods.poisson import Counts
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking import weights as weights_module
from skbayesnn._stacking.candidates import StackData
from skbayesnn._stacking.weights import (
    OutOfFold,
    best_factor,
    crps_products,
    crps_weights,
    resolution,
    sparse_stacking_weights,
)
from tests.helpers.stacks import QUICK

NO_ERROR = np.full(1, np.inf)


def _gaussians(seed, draws, rows, targets=1):
    random = np.random.default_rng(seed)
    shape = draws, rows, targets
    return Gaussians(random.normal(size=shape), random.uniform(0.1, 2, size=shape))


# ---- mean density near y


def test_mean_density_is_the_integral_of_the_density(seed):
    components = _gaussians(seed, draws=2, rows=3, targets=4)
    y = np.random.default_rng(seed + 1).normal(size=(3, 4))
    width = np.array([0.3, 1.0, 2.5, 1e-3])
    actual = components.log_mean_density(y, width)
    for i, j, k in np.ndindex(actual.shape):
        std = np.sqrt(components.variance[i, j, k])
        low, high = y[j, k] - width[k] / 2, y[j, k] + width[k] / 2
        inside, _ = quad(norm(components.mean[i, j, k], std).pdf, low, high)
        # The error of the quadrature is below 1e-12.
        assert actual[i, j, k] == pytest.approx(np.log(inside / width[k]), abs=1e-9)


def test_mean_density_of_a_normal_distribution_is_exact_in_the_tails():
    """P(Y > a) is phi(a) / a (1 - 1 / a^2 + ...) far from the mean."""
    components = Gaussians(np.zeros((1, 2, 1)), np.ones((1, 2, 1)))
    y = np.array([[50.0], [-50.0]])
    actual = components.log_mean_density(y, np.array([2.0]))
    expected = norm.logpdf(49) - np.log(49) - np.log(2)
    # 1 / 49^2 is 4e-4.
    np.testing.assert_allclose(actual, expected, atol=1e-3)


def test_mean_density_of_other_distributions_is_a_difference_of_cdfs(seed):
    rate = np.random.default_rng(seed).uniform(1, 5, size=(2, 3, 1))
    y, width = np.array([[0.0], [2.0], [4.0]]), np.array([3.0])
    actual = Counts(rate).log_mean_density(y, width)
    inside = poisson.cdf(y + 1, rate) - poisson.cdf(y - 2, rate)
    np.testing.assert_allclose(actual, np.log(inside / 3))


def test_mixture_measures_only_targets_with_a_width(seed):
    components = _gaussians(seed, draws=5, rows=3, targets=2)
    y = np.random.default_rng(seed + 1).normal(size=(3, 2))
    actual = components.mixture_log_density(y, np.array([0.0, 0.4]))
    std = np.sqrt(components.variance)
    density = norm.pdf(y[:, 0], components.mean[..., 0], std[..., 0])
    low, high = (
        norm.cdf(y[:, 1] + shift, components.mean[..., 1], std[..., 1])
        for shift in (-0.2, 0.2)
    )
    expected = np.log((density * (high - low) / 0.4).mean(0))
    np.testing.assert_allclose(actual, expected)
    np.testing.assert_array_equal(
        components.mixture_log_density(y, np.zeros(2)),
        components.mixture_log_density(y),
    )


# ---- resolution


def test_resolution_is_the_median_gap_of_few_values():
    y = np.repeat([0.0, 0.5, 1.5, 2.0, 9.0], 30)[:, None]
    # The gaps are 0.5, 1, 0.5 and 7.
    assert resolution(y, NO_ERROR).item() == pytest.approx(0.75)
    # Values that are equal up to rounding have no gap.
    noisy = y + 1e-13 * np.arange(len(y))[:, None]
    assert resolution(noisy, NO_ERROR).item() == pytest.approx(0.75)
    assert resolution(y, np.array([0.01])).item() == pytest.approx(0.02)


def test_continuous_values_have_no_resolution(seed):
    random = np.random.default_rng(seed)
    y = random.normal(size=(100, 3))
    y[:, 1] = np.resize(np.arange(26), 100)  # just above a quarter
    y[:, 2] = np.resize(np.arange(24), 100)
    assert resolution(y, np.full(3, np.inf)).tolist() == [0, 0, 1]
    assert resolution(np.zeros((9, 1)), NO_ERROR).tolist() == [0]


def test_width_next_to_a_point_mass_is_the_error(seed):
    y = np.random.default_rng(seed).normal(size=(100, 1))
    error = np.array([0.3])
    y[:4] = 0.0
    assert resolution(y, error).item() == 0
    y[4] = 0.0
    assert resolution(y, error).item() == pytest.approx(0.6)
    # Also if few values are distinct.
    y[4:76] = 0.0
    assert resolution(y, error).item() == pytest.approx(0.6)


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
    assert oof.resolution().item() > 0
    plain = sparse_stacking_weights(oof.log_density(), np.ones(n_rows))
    weights = oof.stacked(score).weights
    assert plain[1] > 0.3
    assert weights[1] < 0.3


def test_factor_of_rounded_values_is_unbiased():
    """The variance of y is 1, and so is the variance of its distribution."""
    values = np.arange(-12, 13) / 2
    counts = np.round(4000 * norm.pdf(values) / norm.pdf(values).sum()).astype(int)
    y = np.repeat(values, counts)
    mixture = MixturePredictive(
        Gaussians(np.zeros((1, len(y), 1)), np.full((1, len(y), 1), y.var())), True
    )
    for width in (0.5, 2.0):
        [factor] = best_factor(mixture, y, np.ones(len(y)), np.array([width]))
        # Four values have 94 % of the variance of the noise: up to 1 % of the factor.
        assert factor == pytest.approx(1, abs=0.015)


@pytest.mark.parametrize(
    "repeated, at_error, expected", [(0.3, 1.0, 1.0), (0.3, 0.22, 0.2), (0, 1.0, 0.2)]
)
def test_repeated_values_do_not_narrow_the_spread(
    monkeypatch, repeated, at_error, expected
):
    """The factor at a width of the error is used if it is much larger.

    The width is the mean absolute error of the better candidate.
    """
    y = np.random.default_rng(0).normal(size=400)
    y[: int(repeated * 400)] = np.repeat(np.arange(int(repeated * 40)), 10)
    oof = _out_of_fold([(y[None] + 0.5, 1.0), (y[None] - 2.0, 1.0)], y)
    widths = []

    def factor_at(mixture, y, weights, width):
        widths.append(width)
        return np.array([0.2 if width is None else at_error])

    monkeypatch.setattr(weights_module, "best_factor", factor_at)
    assert oof.stacked().factor.item() == expected
    assert widths[0] is None
    assert [w.item() for w in widths[1:]] == pytest.approx([0.5] * (repeated > 0))


def test_continuous_y_is_measured_by_its_density(seed):
    components = _gaussians(seed, draws=3, rows=40)
    y = np.random.default_rng(seed).normal(size=40)
    parts = [(components.mean[..., 0], 0.5), (components.mean[..., 0] + 1, 0.7)]
    oof = _out_of_fold(parts, y)
    assert oof.resolution() is None
    expected = [part.log_density(y) for part in oof.predictives]
    np.testing.assert_array_equal(
        oof.log_density(oof.resolution()), np.transpose(expected)
    )


def test_candidate_without_density_has_no_weight():
    y = np.random.default_rng(0).normal(size=8)
    far = np.full((1, 8), 1e9) + np.arange(8)
    good = np.zeros((1, 8)) + y / 2
    for parts in (
        [(good, 1.0), (far, 1.0)],
        [(good, 1.0), (np.full((1, 8), np.nan), 1.0)],
    ):
        assert _out_of_fold(parts, y).stacked().weights.tolist() == [1, 0]


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
