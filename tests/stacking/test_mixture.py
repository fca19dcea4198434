"""The mixture of a stack, and its correction."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._batch.jobs import network_of
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.components import Gaussians
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking import weights
from skbayesnn._stacking.weights import (
    best_factor,
    corrected,
    factor_with_starts,
    share_of_starts,
)
from tests.helpers.stacks import QUICK, ROWS, classifier, regressor


def test_predictive_is_the_weighted_mixture(table):
    """Computed by hand from the fitted candidates, weighted by their draws."""
    X, y = table
    model = regressor(n_refits=1).fit(X, y)
    share = model.n_draws_ / model.n_draws_.sum()
    assert model.n_draws_.sum() == 200
    weights = model.weights_["weight"]
    assert weights.sum() == pytest.approx(1)
    largest = np.sort(weights.to_numpy())[::-1][: len(share)]
    np.testing.assert_allclose(np.sort(share)[::-1], largest, atol=1 / 200)

    model.spread_factor_ = np.ones(1)
    density = np.stack(
        [
            skbayesnn.log_predictive_density(estimator, X, y)
            for estimator in model.estimators_
        ]
    )
    np.testing.assert_allclose(
        model.log_predictive_density(X, y),
        logsumexp(density, axis=0, b=share[:, None]),
        rtol=1e-7,
    )
    cdf = [skbayesnn.predictive_cdf(estimator, X, y) for estimator in model.estimators_]
    np.testing.assert_allclose(model.predictive_cdf(X, y), share @ cdf, rtol=1e-7)
    mean = np.stack([estimator.predict(X) for estimator in model.estimators_])
    np.testing.assert_allclose(model.predict(X), share @ mean, rtol=1e-7)
    std = np.stack(
        [
            skbayesnn.predict_uncertainty(estimator, X, "total")
            for estimator in model.estimators_
        ]
    )
    # The law of total variance.
    total = share @ (std**2 + (mean - share @ mean) ** 2)
    np.testing.assert_allclose(model.predict_uncertainty(X) ** 2, total, rtol=1e-6)
    np.testing.assert_array_equal(
        model.predict(X, return_std=True)[1], model.predict_uncertainty(X)
    )


def test_spread_factor_spreads_about_the_mean(table, monkeypatch):
    X, y = table
    model = regressor().fit(X, y)
    monkeypatch.setattr(weights, "BOUND", np.inf)
    model.spread_factor_ = np.ones(1)
    mean, std = model.predict(X, return_std=True)
    middle = model.predict_quantile(X, 0.3)
    model.spread_factor_ = np.array([2.5])
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-10)
    np.testing.assert_allclose(model.predict_uncertainty(X), 2.5 * std, rtol=1e-10)
    expected = mean + 2.5 * (middle - mean)
    np.testing.assert_allclose(model.predict_quantile(X, 0.3), expected, rtol=1e-6)


def test_no_draw_is_moved_by_more_than_its_noise(table):
    X, y = table
    model = regressor().fit(X, y)
    model.spread_factor_ = np.ones(1)
    before = open_predictive(model, X).whole().components
    model.spread_factor_ = np.array([0.3])
    after = open_predictive(model, X).whole().components
    np.testing.assert_allclose(after.variance, 0.09 * before.variance, rtol=1e-10)
    shift = 0.7 * (before.mean.mean(0) - before.mean)
    most = np.sqrt(after.variance)
    expected = before.mean + np.clip(shift, -most, most)
    np.testing.assert_allclose(after.mean, expected, rtol=1e-10)
    assert (np.abs(shift) > most).any()
    assert (np.abs(shift) < most).any()


def test_row_with_one_outlying_draw_keeps_its_density(seed):
    """The spread factor must not move the other draws, which are right."""
    random = np.random.default_rng(seed)
    mean = 0.01 * random.normal(size=(20, 9, 1))
    mean[0, 4] = 1e3
    variance = np.ones_like(mean)
    mixture = MixturePredictive(Gaussians(mean, variance), squeeze_targets=True)
    plain = mixture.log_density(np.zeros(9))[4]
    factor = np.array([0.5])
    # One standard deviation away, and half as wide.
    least = plain - 0.5 * 1.05**2
    assert corrected(mixture, factor).log_density(np.zeros(9))[4] > least
    assert mixture.corrected(factor, np.inf).log_density(np.zeros(9))[4] < -100


def test_spread_factor_is_the_ratio_of_true_to_predicted_std(seed):
    """It is one for rows drawn from the mixture, two for rows twice as wide."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(400, 2))
    y = random.normal(size=400)
    params = QUICK | {"hidden_layer_sizes": (), "max_iter": 60}
    network = MCDropoutRegressor(**params)
    narrow = {"tau": [4.0], "dropout": [0.0]}
    model = BayesianStackingRegressor([("linear", network, narrow)], cv=4).fit(X, y)
    # 1 / sqrt(tau) is half of the noise; five standard errors of a std of 400 rows.
    assert model.spread_factor_[0] == pytest.approx(2, rel=5 / np.sqrt(800))
    right = {"tau": [1.0], "dropout": [0.0]}
    model = BayesianStackingRegressor([("linear", network, right)], cv=4).fit(X, y)
    assert model.spread_factor_[0] == pytest.approx(1, rel=5 / np.sqrt(800))


def _factor_of_refits(model, before, X, weights, n_refits):
    """Factor of a mixture of refits, from the factor with single networks."""
    parts = [open_predictive(estimator, X).whole() for estimator in model.estimators_]
    n_before, n_now = [1] * len(parts), [n_refits] * len(parts)
    reduction = share_of_starts(parts, model.n_draws_, n_before, n_now)
    return factor_with_starts(before.spread_factor_, reduction, weights)


def test_several_refits_narrow_the_mixture(table):
    """By the reduction of the variance on the training rows; nothing else changes."""
    X, y = table
    weights = np.ones(ROWS)
    weights[[2, 30]] = 0.0, 3.0
    single, several = (
        regressor(n_refits=n_refits).fit(X, y, sample_weight=weights)
        for n_refits in (1, 3)
    )
    np.testing.assert_array_equal(single.oof_std_, several.oof_std_)
    expected = _factor_of_refits(several, single, X, weights, 3)
    np.testing.assert_allclose(several.spread_factor_, expected, rtol=1e-6)
    assert several.spread_factor_ < single.spread_factor_


def test_out_of_fold_ensembles_count_as_refits(table):
    """With the same number of networks the spread equals the held-out spread."""
    X, y = table
    ensemble = MCDropoutRegressor(**QUICK, n_estimators=3)
    pool = [("ensemble", ensemble, {"tau": [1.0]})]
    for n_refits, same in ((3, True), (4, False)):
        model = BayesianStackingRegressor(pool, cv=3, n_refits=n_refits, random_state=1)
        model.fit(X, y)
        scores = np.abs(y - model.oof_prediction_) / model.oof_std_
        actual = np.sort(np.concatenate(model.fold_scores_)[:, 0])
        assert np.allclose(actual, np.sort(scores), rtol=1e-6) == same


def test_discarded_networks_do_not_count_as_refits(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(
        "skbayesnn.estimators._diagnostics._absurd",
        lambda fitted, among: np.arange(len(among)) == 1,
    )
    model = regressor(n_refits=3).fit(X, y)
    assert {len(network_of(estimator).seeds_) for estimator in model.estimators_} == {2}
    single = regressor(n_refits=1).fit(X, y)
    expected = _factor_of_refits(model, single, X, np.ones(ROWS), 2)
    np.testing.assert_allclose(model.spread_factor_, expected, rtol=1e-6)


def test_reduction_of_refits_is_estimated_on_a_limited_number_of_rows(
    table, monkeypatch
):
    """The limit is divided by the number of targets."""
    X, y = table
    model = regressor().set_params(n_refits=3)
    Y = np.column_stack([y, -y])
    factor_of_all_rows = clone(model).fit(X, Y).spread_factor_
    monkeypatch.setattr("skbayesnn._stacking.base.MAX_COMPARED", 14)
    actual = clone(model).fit(X, Y)
    rows = np.arange(0, ROWS, 6)
    assert len(rows) == 7
    single = clone(model).set_params(n_refits=1).fit(X, Y)
    expected = _factor_of_refits(actual, single, X[rows], np.ones(7), 3)
    np.testing.assert_allclose(actual.spread_factor_, expected, rtol=1e-6)
    assert not np.allclose(actual.spread_factor_, factor_of_all_rows, rtol=1e-6)


def test_class_probabilities_are_the_weighted_mixture(labelled):
    X, y = labelled
    model = classifier(n_refits=1).fit(X, y)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(1), 1)
    model.spread_factor_ = np.ones(1)
    share = model.n_draws_ / model.n_draws_.sum()
    probabilities = np.stack(
        [estimator.predict_proba(X) for estimator in model.estimators_]
    )
    expected = np.tensordot(share, probabilities, 1)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-7)
    codes = np.searchsorted(model.classes_, y)
    np.testing.assert_allclose(
        model.log_predictive_density(X, y),
        np.log(expected[np.arange(ROWS), codes]),
        rtol=1e-6,
    )
    measures = model.predict_uncertainty(X, "all")
    np.testing.assert_allclose(
        measures["entropy"],
        measures["expected_entropy"] + measures["mutual_information"],
        atol=1e-12,
    )
    assert model.oof_prediction_.shape == (ROWS, 3)


def test_temperature_applies_to_every_draw(labelled):
    X, y = labelled
    network = MCDropoutClassifier(**QUICK | {"dropout": 0.0})
    model = BayesianStackingClassifier([("only", network, {})], n_refits=1, cv=3)
    model.fit(X, y)
    model.spread_factor_ = np.ones(1)
    probabilities = model.predict_proba(X)
    model.spread_factor_ = np.array([2.0])
    expected = np.sqrt(probabilities) / np.sqrt(probabilities).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-10)


def test_single_outlier_does_not_change_the_factor(seed):
    """The log density of its row is clipped."""
    random = np.random.default_rng(seed)
    y = random.normal(size=100)
    mean, variance = np.zeros((1, 100, 1)), np.ones((1, 100, 1))
    mixture = MixturePredictive(Gaussians(mean, variance), squeeze_targets=True)
    y[4] = 0.0
    before = best_factor(mixture, y, np.ones(100))
    assert before == pytest.approx(1, rel=5 / np.sqrt(200))
    y[4] = 300.0
    after = best_factor(mixture, y, np.ones(100))
    assert after == pytest.approx(before, rel=0.02)  # one row of 100 less
    # All rows are twice as far out as the mixture predicts; the prior takes a little.
    y[4] = 0.0
    wide = best_factor(mixture, 2 * y, np.ones(100))
    assert wide == pytest.approx(2, rel=5 / np.sqrt(200) + 0.03)


def test_factor_of_intervals_does_not_depend_on_the_unit(seed):
    """Most rows are censored: events are no outliers, however small their density."""
    random = np.random.default_rng(seed)
    y, end = 2 * random.normal(size=(2, 90, 1))
    low, high = np.minimum(y, end - 1.5), np.where(y <= end - 1.5, y, np.inf)
    factors = []
    for unit in (1.0, 2.0**20):
        components = Gaussians(
            np.zeros((1, 90, 1)), np.full((1, 90, 1), np.square(unit))
        )
        mixture = MixturePredictive(components, squeeze_targets=True)
        factors.append(
            best_factor(mixture, Cells(unit * low, unit * high), np.ones(90))
        )
    np.testing.assert_allclose(*factors)
    assert factors[0] > 1.2


def test_factor_is_the_mode_of_its_posterior(seed):
    """For one Gaussian, by its stationary equation; x = log s, weights v:

    sum_i v_i (y_i^2 exp(-2 x) - 1) = x / prior variance
    """
    random = np.random.default_rng(seed)
    n_rows = 13
    y = 1.4 * random.uniform(-2, 2, size=n_rows)
    mean, variance = np.zeros((1, n_rows, 1)), np.ones((1, n_rows, 1))
    mixture = MixturePredictive(Gaussians(mean, variance), squeeze_targets=True)
    weights = random.uniform(0.5, 1.5, size=n_rows)
    x = np.log(best_factor(mixture, y, weights)).item()
    slope = weights @ (np.square(y) * np.exp(-2 * x) - 1) - x / 0.5**2
    # x is rounded to 0.001; d slope / dx is at most 2 sum_i v_i y_i^2 + 4.
    assert slope == pytest.approx(0, abs=1e-3 * (weights @ np.square(y) + 4))
