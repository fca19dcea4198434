"""Predictive distributions of y with probabilities at values, and of intervals."""

import numpy as np
import pytest
from scipy import stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score

from skbayesnn import (
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutRegressor,
    interval_target,
    predict_distribution,
)
from skbayesnn.metrics import quantile_calibration_error
from skbayesnn.plotting import CalibrationCurveDisplay
from skbayesnn.scoring import log_density_scorer, neg_crps_scorer

N, INF = 43, np.inf
SMALL = {
    "hidden_layer_sizes": (7,),
    "max_iter": 30,
    "n_draws": 5,
    "dropout": 0.2,
    "dtype": "float64",
    "random_state": 0,
}


def table(seed, n=N):
    """X (n, 3), and a latent y."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    return X, 0.3 + X[:, 0] + 0.7 * random.normal(size=n)


# Parameters of a network, and y of the latent one.
KINDS = {
    "floor": ({"y_bounds": (0, None)}, lambda z: np.maximum(z, 0)),
    "both": ({"y_bounds": (0, 1)}, lambda z: np.clip(z, 0, 1)),
    "poisson": ({"likelihood": "poisson"}, lambda z: np.floor(np.exp(z))),
    "count": ({"target_scale": "count"}, lambda z: np.floor(np.exp(z))),
    "zeros": (
        {"target_scale": "log", "point_mass": 0.0},
        lambda z: np.where(z < -0.3, 0, np.exp(z)),
    ),
    "within": ({"point_mass": 0.5}, lambda z: np.where(abs(z - 0.5) < 0.3, 0.5, z)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def fitted(kind, seed, **others):
    """Distribution of a small network, and its y."""
    parameters, recorded = KINDS[kind]
    X, z = table(seed)
    y = recorded(z)
    model = MCDropoutRegressor(**SMALL | parameters | others).fit(X, y)
    return model.predict_distribution(X), y


@every_kind
def test_probability_of_a_value(kind, seed):
    """At values with a probability, the log density is its logarithm."""
    distribution, y = fitted(kind, seed)
    values = {
        "floor": [0],
        "both": [0, 1],
        "poisson": [0, 1, 5],
        "count": [0, 1, 5],
        "zeros": [0],
        "within": [0.5],
    }[kind]
    for value in values:
        probability = distribution.pmf(value)
        assert (probability > 0).all()
        np.testing.assert_allclose(
            probability, distribution.pdf(value), rtol=1e-8, atol=1e-12
        )
    for value in (0.25, 0.75, -3.0):
        np.testing.assert_array_equal(distribution.pmf(value), 0)
    below, upto = distribution.pit(y).T
    np.testing.assert_array_equal(upto, distribution.cdf(y))
    np.testing.assert_allclose(upto - below, distribution.pmf(y), atol=1e-15)


def test_counts_have_all_of_the_probability(seed):
    distribution, _ = fitted("count", seed)
    most = int(distribution.ppf(0.999).max())
    total = np.sum([distribution.pmf(k) for k in range(most + 1)], axis=0)
    np.testing.assert_allclose(total, distribution.cdf(most))


def test_probabilities_of_targets_and_transforms(seed):
    X, z = table(seed)
    Y = np.stack([z, np.maximum(z, 0)], axis=1)
    model = MCDropoutRegressor(y_bounds=(-9, None), **SMALL).fit(X, Y)
    assert model.predict_distribution(X).pmf(Y).shape == (N, 2)
    assert model.predict_distribution(X).pit(Y).shape == (N, 2, 2)
    # The logarithm of one is zero, the floor of the transformed y.
    y = np.exp(np.maximum(z, 0))
    model = TransformedTargetRegressor(
        MCDropoutRegressor(y_bounds=(0, None), **SMALL),
        func=np.log,
        inverse_func=np.exp,
        check_inverse=False,
    ).fit(X, y)
    inner = model.regressor_.predict_distribution(X)
    outer = predict_distribution(model, X)
    np.testing.assert_allclose(outer.pmf(1.0), inner.pmf(0.0))
    np.testing.assert_allclose(outer.pit(y), inner.pit(np.log(y)))
    times = [-1.0, 1.5, 4.0]
    expected = inner.sf_interval(np.log(times[1:]))
    np.testing.assert_allclose(outer.sf_interval(times)[:, 1:], expected)
    np.testing.assert_array_equal(outer.sf_interval(times)[:, 0], 1)


def test_transform_of_intervals(seed):
    """F at both ends; equal ends are values."""
    distribution, y = fitted("floor", seed)
    lower = np.where(np.arange(N) % 3 == 0, -INF, y)
    upper = np.where(np.arange(N) % 3 == 1, INF, y)
    below, upto = distribution.pit(interval_target(lower, upper)).T
    exact = distribution.pit(y).T
    for i in range(N):
        expected = [(0, exact[1][i]), (exact[1][i], 1), (exact[0][i], exact[1][i])]
        assert (below[i], upto[i]) == pytest.approx(expected[i % 3], abs=1e-12)


@pytest.mark.parametrize("kind", ["floor", "poisson", "zeros", "censored", "rounded"])
def test_true_models_are_calibrated(kind, seed):
    """y is from the model; the curve is a mean of N shares in [0, 1]."""
    base = {"censored": "floor", "rounded": "within"}.get(kind, kind)
    distribution, _ = fitted(base, seed, n_draws=1)
    n_times = 20
    # With one draw the samples are independent.
    samples = distribution.rvs(n_times, random_state=seed)
    random = np.random.default_rng([seed, 9])
    low, high = [], []
    for y in samples.T:
        if kind == "censored":
            limit = random.uniform(0, 2, N)
            y = interval_target(np.minimum(y, limit), np.where(y > limit, INF, y))
        elif kind == "rounded":
            y = interval_target(np.ceil(2 * y) / 2 - 0.5, np.ceil(2 * y) / 2)
        pit = distribution.pit(y)
        low.append(pit[:, 0])
        high.append(pit[:, 1])
    display = CalibrationCurveDisplay.from_predictions(
        cdf=np.concatenate(high), cdf_below=np.concatenate(low)
    )
    # The deviation of a share has a standard deviation of at most 1/2, over sqrt(860).
    bound = 5 * 0.5 / np.sqrt(N * n_times)
    error = abs(display.observed - display.nominal)
    assert error.max() < bound
    error = quantile_calibration_error(
        np.concatenate(high), cdf_below=np.concatenate(low)
    )
    assert error < bound
    assert display.observed[0] == pytest.approx(0, abs=1e-12)
    assert display.observed[-1] == pytest.approx(1)


def test_intervals_have_no_crps(seed):
    """The error names the log probability."""
    distribution, y = fitted("poisson", seed)
    with pytest.raises(ValueError, match=r"got intervals.*take the log density"):
        distribution.crps(interval_target(y + 2, np.full(N, INF)))


@pytest.mark.parametrize("low, high", [(-0.2, INF), (-INF, 0.9), (-0.2, 0.9)])
def test_crps_between_limits(seed, low, high):
    """The integral of (F - 1[y <= z])^2 between the limits, also for intervals there.

    The integral has steps, and the score 200 quantiles: they differ by up to 7e-4
    (12 fits).
    """
    X, y = table(seed)
    model = MCDropoutRegressor(likelihood="gaussian", **SMALL).fit(X, y)
    distribution = model.predict_distribution(X)
    z = np.linspace(max(low, -30), min(high, 30), 20_001)
    cdf = np.stack([distribution.cdf(np.full(N, point)) for point in z[::20]])
    cdf = np.stack([np.interp(z, z[::20], column) for column in cdf.T])
    expected = np.trapezoid(np.square(cdf - (y[:, None] <= z)), z, axis=1)
    score = distribution.crps(y, low, high)
    np.testing.assert_allclose(score, expected, atol=1e-3)
    lower = np.where(y < low, -INF, np.where(y > high, high, y))
    upper = np.where(y < low, low, np.where(y > high, INF, y))
    np.testing.assert_array_equal(
        distribution.crps(interval_target(lower, upper), low, high), score
    )
    with pytest.raises(ValueError, match=r"must be outside of \(.*got 0 to 0.1"):
        distribution.crps(interval_target(np.zeros(N), np.full(N, 0.1)), low, high)


def test_limits_of_a_crps_are_in_order(seed):
    distribution, y = fitted("floor", seed)
    with pytest.raises(ValueError, match="`low` must be below `high`; got 1 and 1"):
        distribution.crps(y, 1, 1)


def test_survival_of_draws(seed):
    """Quantiles of the draws' probabilities; the functions are their means."""
    X, y = table(seed)
    parameters = {name: v for name, v in SMALL.items() if name != "dropout"}
    model = BBBRegressor(likelihood="gaussian", **parameters).fit(X, y)
    distribution = model.predict_distribution(X[:4])
    means = np.unique(distribution.functions(200), axis=1)
    assert means.shape == (4, SMALL["n_draws"])
    times, std = [0.2, 1.0, -0.7], distribution.aleatoric()[:, None]
    for time, interval in zip(
        times, distribution.sf_interval(times, 0.6).swapaxes(0, 1), strict=True
    ):
        survival = stats.norm.sf((time - means) / std)
        np.testing.assert_allclose(
            interval, np.quantile(survival, [0.2, 0.8], axis=1).T
        )
    # Isotonic recalibration moves levels: the mean over the draws is the mixture.
    recalibrated = CalibratedUncertaintyRegressor(
        FrozenEstimator(model), method="isotonic"
    )
    after = recalibrated.fit(X, y).predict_distribution(X[:4])
    [shares] = after._each(lambda block: block.cdf_of_draws(np.full(4, 0.2)))
    assert shares.shape == (SMALL["n_draws"], 4)
    np.testing.assert_allclose(shares.mean(0), after.cdf(0.2), rtol=1e-6)
    assert (after.cdf(0.2) != distribution.cdf(0.2)).any()
    assert after.sf_interval(times, 0.6).shape == (4, 3, 2)
    at = np.stack([distribution.cdf(time) for time in times], axis=-1)
    np.testing.assert_array_equal(distribution.cdf_at(times), at)
    with pytest.raises(ValueError, match="the values must be a sequence of numbers"):
        distribution.cdf_at([])


def test_searches_score_intervals(seed):
    """By the log probability, which is proper; the CRPS is refused."""
    X, y = table(seed)
    y = interval_target(y, np.where(np.arange(N) % 3, y, INF))
    model = MCDropoutRegressor(**SMALL)
    scores = cross_val_score(model, X, y, scoring=log_density_scorer, cv=3)
    assert np.isfinite(scores).all()
    model.fit(X, y)
    assert log_density_scorer(model, X, y) == pytest.approx(
        model.predict_distribution(X).logpdf(y).mean()
    )
    with pytest.raises(ValueError, match=r"must be exact values .* got intervals"):
        neg_crps_scorer(model, X, y)
