"""Bayesian stacking: out-of-fold predictions, mixture, pools, interrupted fits."""

import math
import pickle
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ParameterGrid,
    RepeatedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._batch.jobs import network_of
from skbayesnn._data.validation import Table
from skbayesnn._distributions.components import Gaussians
from skbayesnn._engine.resources import torch_threads
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive import mixin
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking import base, candidates
from skbayesnn._stacking.candidates import StackData, candidates_of
from skbayesnn._stacking.folds import folds_of, warn_of_copies
from skbayesnn._stacking.weights import (
    best_factor,
    corrected,
    factor_with_starts,
    share_of_starts,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.preprocessing import PiecewiseLinearEncoder

pytestmark = pytest.mark.filterwarnings(
    "ignore:the network explains:sklearn.exceptions.ConvergenceWarning"
)

ROWS, COLUMNS = 41, 3
QUICK = {
    "hidden_layer_sizes": (7,),
    "max_iter": 5,
    "learning_rate_init": 0.05,
    "dtype": "float64",
    "random_state": 0,
    "n_draws": 20,
}
NETWORK = MCDropoutRegressor(**QUICK)
GRID = {"length_scale": [0.5, "auto"], "dropout": [0.0, 0.2]}


def regressor(**params):
    pool = [
        ("network", MCDropoutRegressor(**QUICK), GRID),
        (
            "encoded",
            make_pipeline(
                PiecewiseLinearEncoder(n_bins=4, keep_columns=True),
                MCDropoutRegressor(**QUICK),
            ),
            {"mcdropoutregressor__tau": [1.0, 4.0]},
        ),
    ]
    defaults = {"cv": 3, "n_refits": 2, "random_state": 1}
    return BayesianStackingRegressor(pool, **defaults | params)


def classifier(**params):
    pool = [("network", MCDropoutClassifier(**QUICK), GRID)]
    defaults = {"cv": 3, "n_refits": 2, "random_state": 1}
    return BayesianStackingClassifier(pool, **defaults | params)


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, COLUMNS))
    return X, X[:, 0] + np.abs(X[:, 1]) + 0.3 * random.normal(size=ROWS)


@pytest.fixture
def labelled(table):
    X, y = table
    return X, np.array(["low", "middle", "high"])[np.digitize(y, [0.0, 1.0])]


# ---- out of fold


def test_out_of_fold_predictions_equal_fits_without_the_fold(table):
    """One candidate, whose clones are fitted fold by fold."""
    X, y = table
    network = MCDropoutRegressor(**QUICK)
    cv = KFold(4)
    pool = [("only", network, {})]
    model = BayesianStackingRegressor(pool, cv=cv, n_refits=1).fit(X, y)
    density, mean, std = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    for train, test in cv.split(X):
        single = clone(network).fit(X[train], y[train])
        # A stack corrects the noise of its mixture; candidates keep the training noise.
        del single.parameters_["likelihood/log_factor"]
        density[test] = single.log_predictive_density(X[test], y[test])
        mean[test], std[test] = single.predict(X[test], return_std=True)
    assert model.weights_["weight"].tolist() == [1.0]
    assert model.weights_["log_density"].iloc[0] == pytest.approx(density.mean())
    # Unequal folds are trained in other programs than single fits: up to rounding.
    np.testing.assert_allclose(model.oof_prediction_, mean, rtol=1e-8)
    factor = model.spread_factor_[0]
    np.testing.assert_allclose(model.oof_std_, factor * std, rtol=1e-8)
    if factor == 1:
        np.testing.assert_allclose(model.oof_log_density_, density, rtol=1e-7)


@pytest.mark.parametrize("coverage", [0.5, 0.8])
def test_cross_intervals_follow_the_paper(table, coverage):
    """Barber et al. 2021, eq. 11, row by row, with residuals divided by stds."""
    X, y = table
    network = MCDropoutRegressor(**QUICK | {"dropout": 0.0, "length_scale": 1.0})
    weights = np.ones(ROWS)
    weights[[3, 17]] = 0
    cv = KFold(4)
    model = BayesianStackingRegressor([("only", network, {})], cv=cv)
    model.fit(X, y, sample_weight=weights)
    new = np.random.default_rng(5).normal(size=(9, COLUMNS))
    low, high = [], []
    for train, test in cv.split(X):
        single = clone(network).fit(X[train], y[train], sample_weight=weights[train])
        mean, std = single.predict(X[test], return_std=True)
        mean_new, std_new = single.predict(new, return_std=True)
        for i, row in enumerate(test):
            if weights[row]:
                # Both stds contain the spread factor, which cancels.
                reach = abs(y[row] - mean[i]) / std[i] * std_new
                low.append(mean_new - reach)
                high.append(mean_new + reach)
    n = ROWS - 2
    rank = int(np.floor((1 - coverage) * (n + 1) + 1e-9))
    expected = np.sort(low, axis=0)[rank - 1], np.sort(high, axis=0)[n - rank]
    actual = model.predict_interval(new, coverage, method="cv+")
    np.testing.assert_allclose(actual.T, expected, rtol=1e-6)


def test_cross_intervals_of_several_targets_and_coverages(table):
    X, y = table
    Y = np.column_stack([y, -3 * y])
    model = regressor().fit(X, Y)
    intervals = model.predict_interval(X[:5], [0.5, 0.9], method="cv+")
    assert intervals.shape == (5, 2, 2, 2)
    assert (np.diff(intervals)[..., 0] > 0).all()
    assert (np.diff(intervals[:, :, 1]) >= np.diff(intervals[:, :, 0])).all()
    np.testing.assert_array_equal(
        intervals[:, :, 1], model.predict_interval(X[:5], 0.9, method="cv+")
    )
    with pytest.warns(UserWarning, match="needs at least 99 calibration rows"):
        bounds = model.predict_interval(X[:5], 0.99, method="cv+")
    assert np.isinf(bounds).all()


def test_cross_intervals_raise_for_invalid_arguments(table):
    X, y = table
    model = regressor().fit(X, y)
    with pytest.raises(ValueError, match="`method` must be one of 'mixture', 'cv"):
        model.predict_interval(X, method="cv")
    with pytest.raises(ValueError, match="`kind` must be 'equal_tailed' with"):
        model.predict_interval(X, kind="highest_density", method="cv+")
    repeated = regressor(cv=RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)).fit(
        X, y
    )
    with pytest.raises(ValueError, match="holds each row out at most once"):
        repeated.predict_interval(X, method="cv+")
    # A fit removes the fold estimators of an earlier fit.
    model.set_params(cv=RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)).fit(
        X, y
    )
    assert not hasattr(model, "fold_estimators_")


def test_rows_that_are_never_held_out_have_nan_predictions(table):
    X, y = table
    test = np.array([2, 5, 40])
    cv = [(np.setdiff1d(np.arange(ROWS), test), test)]
    model = regressor(cv=cv).fit(X, y)
    assert np.isfinite(model.oof_prediction_[test]).all()
    for values in (model.oof_prediction_, model.oof_std_, model.oof_log_density_):
        assert values.shape == (ROWS,)
        assert np.isnan(np.delete(values, test)).all()


def test_the_held_out_rows_of_a_group_stay_together(table):
    X, y = table
    groups = np.arange(ROWS) % 5
    model = regressor(cv=GroupKFold(3)).fit(X, y, groups=groups)
    same = regressor(cv=list(GroupKFold(3).split(X, y, groups))).fit(X, y)
    np.testing.assert_array_equal(model.oof_prediction_, same.oof_prediction_)
    with pytest.raises(ValueError, match=r"`groups` need a `cv`.*GroupKFold"):
        regressor(cv=3).fit(X, y, groups=groups)


def test_default_cv_depends_on_the_number_of_rows(monkeypatch, table):
    X, y = table
    model = regressor(cv=None).fit(X, y)
    assert np.isfinite(model.oof_prediction_).all()
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    model = regressor(cv=None).fit(X, y)
    assert np.isfinite(model.oof_prediction_).sum() == 9  # A fifth, rounded up.


def test_single_split_with_more_classes_than_held_out_rows(monkeypatch, seed):
    """Not every class can be among the held-out rows."""
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    codes = np.repeat(np.arange(15), 3)
    [(train, test)] = folds_of(
        None, Table(np.zeros((45, 2)), codes, None), None, of_classes=True, seed=seed
    )
    assert (len(train), len(test)) == (36, 9)


# ---- the mixture


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


def test_spread_factor_spreads_about_the_mean(table):
    X, y = table
    model = regressor().fit(X, y)
    model.spread_bound_ = np.inf
    model.spread_factor_ = np.ones(1)
    mean, std = model.predict(X, return_std=True)
    middle = model.predict_quantile(X, 0.3)
    model.spread_factor_ = np.array([2.5])
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-10)
    np.testing.assert_allclose(model.predict_uncertainty(X), 2.5 * std, rtol=1e-10)
    expected = mean + 2.5 * (middle - mean)
    np.testing.assert_allclose(model.predict_quantile(X, 0.3), expected, rtol=1e-6)
    # Stacks of earlier versions are without a bound.
    del model.spread_bound_
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-10)


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
    mixture = MixturePredictive(Gaussians(mean, variance), flat=True)
    plain = mixture.log_density(np.zeros(9))[4]
    factor = np.array([0.5])
    # One standard deviation away, and half as wide.
    least = plain - 0.5 * 1.05**2
    assert corrected(mixture, factor).log_density(np.zeros(9))[4] > least
    assert corrected(mixture, factor, np.inf).log_density(np.zeros(9))[4] < -100


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
    parts = [open_predictive(model, X).whole() for model in several.estimators_]
    n_parts = len(parts)
    reduction = share_of_starts(parts, several.n_draws_, [1] * n_parts, [3] * n_parts)
    expected = factor_with_starts(single.spread_factor_, reduction, weights)
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
    parts = [open_predictive(estimator, X).whole() for estimator in model.estimators_]
    reduction = share_of_starts(
        parts, model.n_draws_, [1] * len(parts), [2] * len(parts)
    )
    single = regressor(n_refits=1).fit(X, y)
    expected = factor_with_starts(single.spread_factor_, reduction, np.ones(ROWS))
    np.testing.assert_allclose(model.spread_factor_, expected, rtol=1e-6)


def test_reduction_of_refits_is_estimated_on_a_limited_number_of_rows(
    table, monkeypatch
):
    """The limit is divided by the number of targets."""
    X, y = table
    model = regressor().set_params(n_refits=3)
    Y = np.column_stack([y, -y])
    factor_of_all_rows = clone(model).fit(X, Y).spread_factor_
    monkeypatch.setattr("skbayesnn._stacking.regressor.MAX_COMPARED", 14)
    actual = clone(model).fit(X, Y)
    rows = np.arange(0, ROWS, 6)
    assert len(rows) == 7
    parts = [
        open_predictive(estimator, X[rows]).whole() for estimator in actual.estimators_
    ]
    n_parts = len(parts)
    reduction = share_of_starts(parts, actual.n_draws_, [1] * n_parts, [3] * n_parts)
    before = clone(model).set_params(n_refits=1).fit(X, Y).spread_factor_
    expected = factor_with_starts(before, reduction, np.ones(7))
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


# ---- arguments


def test_rows_of_weight_zero_are_ignored(table):
    """In the candidates and in their stacking weights."""
    X, y = table
    cv = KFold(3)
    splits = list(cv.split(X))
    weights = np.ones(ROWS)
    weights[[3, 20]] = 0
    pool = [("network", MCDropoutRegressor(**QUICK), GRID)]
    model = (
        regressor(cv=splits)
        .set_params(estimators=pool)
        .fit(X, y, sample_weight=weights)
    )
    kept = np.flatnonzero(weights)
    new_index = np.cumsum(weights > 0) - 1
    new_splits = [
        tuple(new_index[rows[weights[rows] > 0]] for rows in split) for split in splits
    ]
    without_rows = (
        regressor(cv=new_splits).set_params(estimators=pool).fit(X[kept], y[kept])
    )
    np.testing.assert_allclose(
        model.weights_["weight"], without_rows.weights_["weight"], rtol=1e-5
    )
    np.testing.assert_allclose(model.predict(X), without_rows.predict(X), rtol=1e-5)


@pytest.mark.parametrize("kind", [regressor, classifier])
def test_rows_of_weight_zero_are_in_no_fold(kind, labelled, table):
    """The default folds depend only on the rows with weight."""
    X, y = table if kind is regressor else labelled
    random = np.random.default_rng(0)
    absent = np.repeat([False, True], [ROWS, 700])[random.permutation(ROWS + 700)]
    many = random.normal(size=(len(absent), COLUMNS))
    labels = np.repeat(y, 20)[: len(absent)]
    many[~absent], labels[~absent] = X, y
    model = kind(cv=None).fit(many, labels, sample_weight=1.0 * ~absent)
    without_rows = kind(cv=None).fit(X, y)
    densities = model.oof_log_density_
    assert np.isnan(densities[absent]).all()
    np.testing.assert_allclose(
        densities[~absent], without_rows.oof_log_density_, rtol=1e-5
    )


def test_default_pool_depends_on_the_rows_with_weight(monkeypatch):
    monkeypatch.setattr(candidates, "WIDE_FROM", 50)
    options = {"of_classes": False, "max_iter": 1}
    X = np.random.default_rng(0).random((90, 2))
    for n_used, width in ((49, candidates.WIDTHS[0]), (50, candidates.WIDTHS[1])):
        weights = np.repeat([2.0, 0.0], [n_used, 90 - n_used])
        network = candidates.default_pool(X, weights, **options)[1].estimator
        assert network.hidden_layer_sizes == (width, width)


def test_class_of_weight_zero_is_predicted(labelled):
    """As by a single estimator: no fold contains it, the refits know it."""
    X, y = labelled
    model = classifier(class_weight={"low": 0.0}).fit(X, y)
    assert model.classes_.tolist() == np.unique(y).tolist()
    assert model.predict_proba(X).shape == (ROWS, 3)
    assert model.oof_prediction_.shape == (ROWS, 3)
    assert set(model.predict(X)) <= set(y)
    low = y == "low"
    assert np.isnan(model.oof_prediction_[low]).all()
    np.testing.assert_allclose(model.oof_prediction_[~low].sum(1), 1)
    with pytest.raises(ValueError, match="`class_weight` must be finite and >= 0"):
        classifier(class_weight={"low": -1.0}).fit(X, y)


def test_class_without_training_rows_is_left_out_of_weights_and_summary(labelled):
    """It keeps its column of the probabilities."""
    X, y = labelled
    first = np.flatnonzero(y != "low")[:9]
    test = np.concatenate([np.flatnonzero(y == "low"), first])
    cv = [(np.setdiff1d(np.arange(ROWS), test), test)]
    with pytest.warns(UserWarning, match=r"fold: all rows of \['low'"):
        model = classifier(cv=cv).fit(X, y)
    without = classifier(cv=[(cv[0][0], first)]).fit(X, y)
    assert model.classes_.tolist() == np.unique(y).tolist()
    for name in ("log_density", "error"):
        value = getattr(model.summary_, name)
        assert value == pytest.approx(getattr(without.summary_, name), rel=1e-12)
    assert model.summary_.others == pytest.approx(without.summary_.others, rel=1e-12)
    np.testing.assert_allclose(
        model.weights_["weight"], without.weights_["weight"], rtol=1e-9
    )
    np.testing.assert_allclose(
        model.predict_proba(X), without.predict_proba(X), rtol=1e-9
    )


def test_class_weight_equals_sample_weight(labelled):
    X, y = labelled
    by_class = {"low": 3.0, "middle": 1.0, "high": 0.5}
    with_class_weight = classifier(class_weight=by_class).fit(X, y)
    weights = np.array([by_class[label] for label in y])
    with_sample_weight = classifier().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(
        with_class_weight.predict_proba(X), with_sample_weight.predict_proba(X)
    )


def test_sparse_and_several_targets(table):
    X, y = table
    Y = np.column_stack([y, -3 * y + X[:, 2]])
    pool = [("network", MCDropoutRegressor(**QUICK), GRID)]
    model = BayesianStackingRegressor(pool, cv=3, random_state=1)
    dense = clone(model).fit(X, Y)
    assert dense.predict(X).shape == dense.oof_std_.shape == (ROWS, 2)
    assert dense.predict_interval(X).shape == (ROWS, 2, 2)
    assert dense.spread_factor_.shape == (2,)
    csr = sparse.csr_array(X)
    fitted = clone(model).fit(csr, Y)
    np.testing.assert_allclose(fitted.predict(csr), dense.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "likelihood", ["heteroscedastic", "student_t", "poisson", "mixture"]
)
def test_every_likelihood(table, likelihood):
    X, y = table
    y = np.round(np.abs(y)) if likelihood == "poisson" else y
    network = MCDropoutRegressor(likelihood=likelihood, **QUICK)
    model = BayesianStackingRegressor([("network", network, GRID)], cv=3).fit(X, y)
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert np.isfinite(model.crps(X, y)).all()
    lower, upper = model.predict_interval(X).T
    assert (lower <= upper).all()
    lower = model.predict_interval(X, [0.5, 0.9], method="cv+")[..., 0]
    assert (lower.min() >= 0) == (likelihood == "poisson")


def test_default_pool_has_three_kinds_of_networks(table):
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, cv=2, random_state=0).fit(X, y)
    names = {name.split("(")[0] for name in model.weights_.index}
    assert names == {"network", "encoded", "linear"}


def test_predictions_do_not_depend_on_the_block_size(table, monkeypatch):
    """The same block by block and for all rows at once."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=20, random_state=0).fit(X, y)
    sizes, encode = [], PiecewiseLinearEncoder.transform
    X = np.concatenate([X, 0.9 * X])

    def encoded(self, X):
        sizes.append(len(X))
        return encode(self, X)

    monkeypatch.setattr(mixin, "BLOCK", 10)
    expected = model.predict(X, return_std=True), model.sample_y(X, 3)
    monkeypatch.setattr(PiecewiseLinearEncoder, "transform", encoded)
    monkeypatch.setattr(base, "OPENED_AT_ONCE", 25)
    with torch_threads(1):
        mean, std = model.predict(X, return_std=True)
    assert max(sizes) == 25
    # The first part has the requested size, the others consist of whole blocks.
    n_encoders = sum("encoder" in str(estimator) for estimator in model.estimators_)
    assert sizes.count(25) == n_encoders
    assert sizes.count(20) + sizes.count(2) == n_encoders * 4
    np.testing.assert_allclose(mean, expected[0][0], rtol=1e-12)
    np.testing.assert_allclose(std, expected[0][1], rtol=1e-12)
    np.testing.assert_allclose(model.sample_y(X, 3), expected[1], rtol=1e-12)
    whole = model._open_predictive(X).whole()
    np.testing.assert_allclose(whole.mean(), expected[0][0], rtol=1e-12)


@pytest.mark.parametrize("rows_of_a_part", [25, 30])
def test_predictions_do_not_depend_on_the_number_of_threads(
    rows_of_a_part, table, monkeypatch
):
    """Parts of whole blocks, the first of which may be larger."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=20, random_state=0).fit(X, y)
    monkeypatch.setattr(mixin, "BLOCK", 10)
    monkeypatch.setattr(base, "OPENED_AT_ONCE", rows_of_a_part)
    results = []
    for n_threads in (1, 2):
        with torch_threads(n_threads):
            mean, std = model.predict(X, return_std=True)
            results.append((mean, std, model.predict_interval(X), model.crps(X, y)))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-12)


def test_errors_in_threads_are_raised(table, monkeypatch):
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, random_state=0).fit(X, y)
    monkeypatch.setattr(base, "OPENED_AT_ONCE", 10)
    monkeypatch.setattr(MixturePredictive, "mean", None)
    with torch_threads(2), pytest.raises(TypeError, match="not callable"):
        model.predict(X)


def test_sparse_tables_with_few_columns_are_made_dense(table):
    """Such as one-hot encoded categories; with many columns they stay sparse."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, cv=2, random_state=0)
    csr = sparse.csr_array(X)
    from_sparse, from_dense = clone(model).fit(csr, y), clone(model).fit(X, y)
    for rows in (X, csr):
        np.testing.assert_array_equal(from_sparse.predict(rows), from_dense.predict(X))
    wide = sparse.hstack([csr, sparse.csr_array((ROWS, 300))], format="csr")
    model.fit(wide, y)
    names = {name.split("(")[0] for name in model.weights_.index}
    assert names == {"network", "linear"}


@pytest.mark.parametrize("of_classes", [False, True])
def test_many_rows_train_fewer_epochs_at_the_higher_dropout(monkeypatch, of_classes):
    X, weights = np.random.default_rng(0).random((50, 3)), np.ones(50)
    options = {"of_classes": of_classes, "max_iter": "auto"}
    few = candidates.default_pool(X, weights, **options)
    monkeypatch.setattr(candidates, "MANY_ROWS", 50)
    many = candidates.default_pool(X, weights, **options)
    fixed = candidates.default_pool(X, weights, **options | {"max_iter": 10})
    for candidate, expected in zip(fixed, few, strict=True):
        assert candidate.grid == expected.grid
    for before, after in zip(few, many, strict=True):
        assert len(ParameterGrid(before.grid)) == len(ParameterGrid(after.grid))
        if before.name == "linear":
            assert before.grid == after.grid
            continue
        if before.name == "encoded":
            widths = [
                candidate.estimator[0].estimator.n_bins for candidate in (before, after)
            ]
            assert widths == [*candidates.MAX_BINS]
        lower, higher = after.grid
        assert lower == before.grid[0]
        [n_epochs] = (higher[key] for key in higher if key.endswith("max_iter"))
        all_epochs = network_of(before.estimator).max_iter
        assert n_epochs == [math.ceil(candidates.SHARE_OF_STEPS * all_epochs)]
        rates = (
            [grid[k] for k in grid if k.endswith("dropout")] for grid in after.grid
        )
        assert next(rates) < next(rates)


def test_columns_of_few_values_take_no_bins():
    """With ninety binary columns all bins go to the two numeric columns."""
    random = np.random.default_rng(0)
    X = random.integers(2, size=(100, 92)).astype(float)
    X[:, 90:] = random.random((100, 2))
    options = {"of_classes": False, "max_iter": 1}
    pool = candidates.default_pool(X, np.ones(100), **options)
    [encoded] = (entry.estimator for entry in pool if entry.name == "encoded")
    n_bins = encoded[0].estimator.n_bins_
    assert n_bins.tolist() == [0] * 90 + [candidates.MAX_BINS[0]] * 2
    names = [
        entry.name
        for entry in candidates.default_pool(X[:, :90], np.ones(50), **options)
    ]
    assert names == ["network", "linear"]


def test_repeated_values_get_features():
    """Columns share a limit, and the unit of the weights does not matter."""
    random = np.random.default_rng(0)
    amounts = np.append(100.0 * np.arange(1, 100) ** 2, 101.0)
    codes = np.append(np.zeros(2800), np.resize(amounts, 200))
    X = random.random((3000, 5))
    X[:, 1], X[:, 3] = random.permutation(codes), random.permutation(codes)
    options = {"of_classes": True, "max_iter": 1}
    half = candidates.MAX_VALUES // 2
    for n_columns, expected in [(3, [0, 100, 0]), (5, [0, half, 0, half, 0])]:
        for unit in (1.0, 1e-6, 30.0, 1 / 3):
            weights = np.full(3000, unit)
            entry, *_ = candidates.default_pool(X[:, :n_columns], weights, **options)
            values = entry.estimator[0].estimator.values_
            assert [len(values_of_column) for values_of_column in values] == expected


def test_weights_have_the_same_items_without_pandas(monkeypatch):
    pytest.importorskip("pandas")
    columns = np.array([0.2, 0.0, 0.8]), np.array([-3.0, -9.0, -1.0])
    frame = base._framed(["a", "b", "c"], *columns)
    monkeypatch.setitem(sys.modules, "pandas", None)
    plain = base._framed(["a", "b", "c"], *columns)
    assert isinstance(plain, dict)
    for column in ("weight", "log_density"):
        assert list(plain[column]) == ["c", "a", "b"]
        assert list(plain[column].items()) == list(frame[column].items())


def test_same_random_state_gives_the_same_predictions(table):
    X, y = table
    model, same = (regressor().fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(model.predict(X), same.predict(X))
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(X), restored.predict(X))
    # Some processors sum products in an order that depends on the shape.
    np.testing.assert_allclose(model.predict(X[:7]), model.predict(X)[:7], rtol=1e-12)


def test_stack_inside_other_estimators(table):
    X, y = table
    model = make_pipeline(StandardScaler(), regressor()).fit(X, y)
    std = skbayesnn.predict_uncertainty(model, X)
    assert (std > 0).all()
    assert skbayesnn.predict_interval(model, X).shape == (ROWS, 2)
    assert np.isfinite(cross_val_score(regressor(), X, y, cv=2)).all()
    for outer in (CalibratedUncertaintyRegressor, ConformalRegressor):
        lower, upper = outer(regressor(), cv=2).fit(X, y).predict_interval(X).T
        assert (lower <= upper).all()


def test_batched_search_refuses_a_stack():
    with pytest.raises(TypeError, match="BayesianStackingRegressor"):
        BatchedGridSearchCV(regressor(), {"n_refits": [1]}).fit([[0.0]], [0.0])


def test_feature_names_are_stored_and_checked(table):
    pandas = pytest.importorskip("pandas")
    X, y = table
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = BayesianStackingRegressor(max_iter=1, cv=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The fit has one epoch.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(frame, y)
        named = model.predict(frame)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["c", "b", "a"]])
    plain = clone(model).fit(X, y)
    np.testing.assert_array_equal(plain.predict(X), named)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    # A sparse matrix of the same values predicts the same.
    np.testing.assert_allclose(model.predict(sparse.csr_array(X)), named, rtol=1e-6)


def test_weights_reach_pipelines_with_and_without_metadata_routing(table):
    X, y = table
    weights = np.linspace(0.5, 2, ROWS)
    expected = regressor().fit(X, y, sample_weight=weights).predict(X)
    with config_context(enable_metadata_routing=True):
        model = regressor().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_target_of_shape_rows_by_one_is_flattened(table):
    X, y = table
    with pytest.warns(DataConversionWarning):
        model = regressor().fit(X, y[:, None])
    same = regressor().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))
    assert str(model.summary_) == str(same.summary_)


def test_random_state_is_passed_to_candidates_without_one(table):
    X, y = table
    network = clone(NETWORK).set_params(random_state=None)
    first, second = (
        BayesianStackingRegressor([("only", network)], cv=2, random_state=3).fit(X, y)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert network.random_state is None


def test_folds_may_be_masks(table):
    X, y = table
    test = np.arange(ROWS) % 4 == 0
    with_masks = regressor(cv=[(~test, test)]).fit(X, y)
    rows = np.flatnonzero(~test), np.flatnonzero(test)
    with_indices = regressor(cv=[rows]).fit(X, y)
    np.testing.assert_array_equal(
        with_masks.oof_prediction_, with_indices.oof_prediction_
    )


@pytest.mark.parametrize("counts", [(20, 19, 1), (3, 3, 3), (30, 8, 2)])
def test_rare_classes(counts, seed):
    y = np.repeat(["a", "b", "c"], counts)
    X = np.random.default_rng(seed).normal(size=(len(y), COLUMNS))
    model = classifier(cv=None).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.isfinite(model.summary_.log_density)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("n_rows", [56, 101])
def test_default_folds_train_on_every_class(n_rows, seed):
    """Labels are in order, and the last class has two rows."""
    y = np.repeat([0, 1], [n_rows - 2, 2])
    rows = Table(np.zeros((n_rows, 2)), y, None)
    for train, test in folds_of(None, rows, None, of_classes=True, seed=seed):
        assert len(train) + len(test) == n_rows
        assert np.unique(y[train]).tolist() == [0, 1]


@pytest.mark.parametrize("cv", [None, 3])
def test_raises_if_only_one_class_can_be_held_out(cv):
    """One of the two classes has a single row."""
    y = np.array(["a"] + 20 * ["b"])
    message = (
        "stack of classifiers needs rows of at least 2 classes .*; got class 'a' in 1 "
        "of 21 rows.*Give each class at least 2 rows"
    )
    with pytest.raises(ValueError, match=message):
        classifier(cv=cv).fit(np.eye(21), y)
    with pytest.raises(ValueError, match="BayesianStackingClassifier needs rows of at"):
        classifier(cv=cv).fit(np.eye(21)[1:], y[1:])


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_warning_if_the_stack_explains_nothing(likelihood, seed):
    """Two outliers of a million standard deviations dominate eighty rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(80, 2))
    y = 3 * X[:, 0] + 0.1 * random.normal(size=80)
    y[[3, 50]] = [1e6, -3e6]
    network = MCDropoutRegressor(
        (), dropout=0.0, likelihood=likelihood, max_iter=300, random_state=seed
    )
    stack = BayesianStackingRegressor([("one", network)], n_refits=1, random_state=seed)
    if likelihood == "gaussian":
        message = (
            r"explains no more of y .*Outliers of y \(2 rows\) .*`estimators` with"
        )
        with pytest.warns(ConvergenceWarning, match=message):
            stack.fit(X, y)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        stack.fit(X, y)


def test_warning_if_classes_are_not_separated(seed):
    """By labels unrelated to the columns, and by outliers in a column."""
    random = np.random.default_rng(seed)
    # Every row has both labels, so that no random labels are predictable by chance.
    X, coin = np.repeat(random.normal(size=(40, 9)), 2, axis=0), np.tile([0, 1], 40)
    options = {"cv": 3, "random_state": 0}
    network = MCDropoutClassifier(**QUICK | {"max_iter": 100})
    stack = BayesianStackingClassifier([("one", network)], **options)
    with pytest.warns(ConvergenceWarning, match="no better than their shares.*unrelat"):
        stack.fit(X, coin)
    X[:, 0] = 2 * coin - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        stack.fit(X[:, :1], coin)
    X[[3, 50], 0] = 1e6, -1e6
    with pytest.warns(ConvergenceWarning, match=r"their shares.*\(columns \[0\]\)"):
        stack.fit(X, coin)


def test_warning_names_only_the_row_with_an_outlier(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * random.normal(size=60)
    X[3, 1] = 1e8
    network = MCDropoutRegressor(**QUICK | {"max_iter": 100})
    stack = BayesianStackingRegressor([("one", network)], cv=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"is poor in .* outliers of X .*\[1\]"):
        stack.fit(X, y)


def test_constant_target_is_left_out_of_the_r2_score(table):
    """The score is the mean over the targets that vary."""
    X, y = table
    options = {"cv": 3, "random_state": 0}
    pool = [("one", MCDropoutRegressor(**QUICK | {"max_iter": 100}))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        warnings.filterwarnings("ignore", "y is constant")
        both = BayesianStackingRegressor(pool, **options).fit(
            X, np.c_[y, np.full(ROWS, 3)]
        )
    assert 0 < both.summary_.others["R^2"] < 1


@pytest.mark.parametrize("classes", [False, True])
def test_warning_of_repeated_rows(table, classes, seed):
    """But not if columns have few values."""
    X, y = table
    y = (y > 0).astype(int) if classes else y
    message = "of the rows are repeated"
    with pytest.warns(UserWarning, match=f"100% {message}"):
        warn_of_copies(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    with pytest.warns(UserWarning, match=f"100% {message}"):
        warn_of_copies(sparse.csr_array(np.repeat(X, 2, axis=0)), np.repeat(y, 2))
    with pytest.warns(UserWarning, match=f"48% {message}"):  # 26 of 54
        warn_of_copies(np.concatenate([X, X[:13]]), np.concatenate([y, y[:13]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_copies(X, y)
        warn_of_copies(np.repeat(X, 2, axis=0), np.r_[y, y + 1])
        warn_of_copies(np.array(["a", "b"] * 20), y[:40])
        random = np.random.default_rng(seed)
        few = random.integers(2, size=(500, 3))
        warn_of_copies(few, random.integers(2, size=500))
    folds_of_copies = Table(np.repeat(X, 2, axis=0), np.repeat(y, 2), None)
    with pytest.warns(UserWarning, match=message):
        folds_of(5, folds_of_copies, None, of_classes=classes, seed=seed)


def test_candidates_that_cannot_be_pickled_are_fitted(table):
    X, y = table
    plain = make_pipeline(FunctionTransformer(lambda X: X), NETWORK)
    model = BayesianStackingRegressor([("plain", plain)], cv=3).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_warning_if_columns_are_unrelated_to_y(seed):
    """A constant out-of-fold prediction is a little worse than the mean of all rows."""
    random = np.random.default_rng(seed)
    # With this step size every weight reaches zero, the mean of the prior.
    network = MCDropoutRegressor(
        (), length_scale=1e3, dropout=0.0, max_iter=300, learning_rate_init=0.05
    )
    stack = BayesianStackingRegressor([("one", network)], n_refits=1, random_state=seed)
    with pytest.warns(ConvergenceWarning, match="columns may be unrelated to y"):
        stack.fit(random.normal(size=(60, 2)), random.normal(size=60))


def test_raises_with_a_single_row():
    with pytest.raises(ValueError, match=r"a stack needs at least 2 rows, .*; got n_s"):
        regressor(cv=None).fit(np.ones((1, 2)), np.ones(1))


def test_single_outlier_does_not_change_the_factor(seed):
    """The log density of its row is clipped."""
    random = np.random.default_rng(seed)
    y = random.normal(size=100)
    mean, variance = np.zeros((1, 100, 1)), np.ones((1, 100, 1))
    mixture = MixturePredictive(Gaussians(mean, variance), flat=True)
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


def test_factor_is_the_mode_of_its_posterior(seed):
    """For one Gaussian, by its stationary equation; x = log s, weights v:

    sum_i v_i (y_i^2 exp(-2 x) - 1) = x / prior variance
    """
    random = np.random.default_rng(seed)
    n_rows = 13
    y = 1.4 * random.uniform(-2, 2, size=n_rows)
    mean, variance = np.zeros((1, n_rows, 1)), np.ones((1, n_rows, 1))
    mixture = MixturePredictive(Gaussians(mean, variance), flat=True)
    weights = random.uniform(0.5, 1.5, size=n_rows)
    x = np.log(best_factor(mixture, y, weights)).item()
    slope = weights @ (np.square(y) * np.exp(-2 * x) - 1) - x / 0.5**2
    # x is rounded to 0.001; d slope / dx is at most 2 sum_i v_i y_i^2 + 4.
    assert slope == pytest.approx(0, abs=1e-3 * (weights @ np.square(y) + 4))


# ---- failures


def test_candidate_that_fails_is_left_out(table):
    X, y = table
    pool = [("network", MCDropoutRegressor(**QUICK), {"dropout": [0.1, 7.0]})]
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 candidates.*dropout=7.0"):
        model = BayesianStackingRegressor(pool, cv=2).fit(X, y)
    assert model.weights_.index.tolist() == ["network(dropout=0.1)"]
    pool = [("network", MCDropoutRegressor(**QUICK), {"dropout": [3.0, 7.0]})]
    with pytest.raises(ValueError, match=r"`dropout` must be in \[0, 1\)"):
        BayesianStackingRegressor(pool, cv=2).fit(X, y)


def test_candidate_that_cannot_predict_is_left_out(table):
    """A row of one fold has a category that the other folds do not contain."""
    X, y = table
    X = np.column_stack([X, np.append(np.ones(ROWS - 1), 2.0)])
    encoded = make_pipeline(
        ColumnTransformer([("one", OneHotEncoder(), [3])], remainder="passthrough"),
        NETWORK,
    )
    pool = [("plain", NETWORK), ("encoded", encoded)]
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 .*encoded.*unknown categor"):
        model = BayesianStackingRegressor(pool, cv=3, random_state=0).fit(X, y)
    assert model.weights_.index.tolist() == ["plain"]


def _refuse_all_rows(X):
    if len(X) == ROWS:
        raise ValueError("too many rows")
    return X


def test_candidate_whose_refit_fails_has_no_weight(table):
    X, y = table
    failing = make_pipeline(FunctionTransformer(_refuse_all_rows), NETWORK)
    pool = [("plain", NETWORK, GRID), ("moody", failing)]
    with pytest.warns(ConvergenceWarning, match=r"1 of \d .*moody.*too many rows"):
        model = BayesianStackingRegressor(pool, cv=3, random_state=0).fit(X, y)
    assert "moody" not in model.weights_.index
    assert model.weights_["weight"].sum() == pytest.approx(1)
    assert model.n_draws_.sum() == 200
    assert len(model.estimators_) == (model.weights_["weight"] > 0).sum()


def test_weights_are_recomputed_if_a_refit_fails(table):
    """As if the pool had no such candidate, and with all draws of the mixture."""
    X, y = table
    failing = make_pipeline(FunctionTransformer(_refuse_all_rows), NETWORK)
    # Better than all other candidates out of fold.
    long = {"mcdropoutregressor__max_iter": [200], "mcdropoutregressor__dropout": [0]}
    pool = [("plain", NETWORK, GRID)]
    options = {"cv": 3, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="too many rows"):
        model = BayesianStackingRegressor(
            [*pool, ("moody", failing, long)], **options
        ).fit(X, y)
    without = BayesianStackingRegressor(pool, **options).fit(X, y)
    assert model.weights_.index.tolist() == without.weights_.index.tolist()
    np.testing.assert_allclose(
        model.weights_["weight"], without.weights_["weight"], rtol=1e-5
    )
    assert [estimator.n_draws for estimator in model.estimators_] == [
        estimator.n_draws for estimator in without.estimators_
    ]
    np.testing.assert_allclose(model.predict(X), without.predict(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "n_networks"), [({"n_refits": 3}, [3, 6]), ({}, [4, 6])]
)
def test_number_of_refitted_networks(table, params, n_networks):
    """At least `n_refits` networks per candidate, with different seeds."""
    pool = [("network", NETWORK, {"n_estimators": [2, 6]})]
    model = BayesianStackingRegressor(pool, cv=3, random_state=0, **params).fit(*table)
    seeds = [estimator.seeds_ for estimator in model.estimators_]
    assert sorted(map(len, seeds)) == n_networks
    assert all(
        len(set(seeds_of_model)) == len(seeds_of_model) for seeds_of_model in seeds
    )


def test_default_number_of_refits():
    assert BayesianStackingRegressor().n_refits == 4
    assert BayesianStackingClassifier().n_refits == 2


def test_texts_may_be_a_list_or_an_array(seed):
    random = np.random.default_rng(seed)
    y = random.integers(2, size=30)
    words = np.array(["cold rain", "warm sun"])
    texts = np.array([f"{words[k]} {random.integers(9)}0" for k in y], dtype=object)
    vectors = make_pipeline(TfidfVectorizer(), MCDropoutClassifier(**QUICK))
    model = BayesianStackingClassifier([("words", vectors)], cv=3, random_state=0)
    expected = model.fit(list(texts), y).predict_proba(list(texts))
    np.testing.assert_array_equal(model.fit(texts, y).predict_proba(texts), expected)
    assert not hasattr(model, "n_features_in_")


def test_predictions_do_not_depend_on_later_set_params(table):
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, random_state=0).fit(X, y)
    expected = model.predict(X)
    model.set_params(estimators=[("network", NETWORK)])
    np.testing.assert_array_equal(model.predict(sparse.csr_array(X)), expected)


def test_raises_if_held_out_rows_have_no_weight(table):
    X, y = table
    cv = [(np.arange(20), np.arange(20, ROWS))]
    weights = np.repeat([1.0, 0.0], [20, ROWS - 20])
    with pytest.raises(ValueError, match="holds out must have a positive weig"):
        regressor(cv=cv).fit(X, y, sample_weight=weights)


def test_failed_fit_keeps_the_previous_fit(table):
    X, y = table
    model = regressor().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.full(ROWS, np.nan))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("random_state", "error"),
    [(1, KeyboardInterrupt), (None, KeyboardInterrupt), (1, MemoryError)],
)
def test_interrupted_fit_continues(table, monkeypatch, random_state, error):
    """Trained models are kept; the result equals an uninterrupted fit."""
    X, y = table
    expected = regressor().fit(X, y).predict(X)
    model, trained_before = regressor(random_state=random_state), []
    held_out = base.held_out

    def interrupted(*arguments):
        n_done = 0
        for results in held_out(*arguments):
            yield results
            n_done += len(results)
            if n_done > 4:
                raise error

    monkeypatch.setattr(base, "held_out", interrupted)
    with pytest.raises(error):
        model.fit(X, y)
    assert not hasattr(model, "estimators_")

    def recorded(*arguments):
        trained_before.append(len(arguments[-1]))
        yield from held_out(*arguments)

    monkeypatch.setattr(base, "held_out", recorded)
    model.fit(X, y)
    assert trained_before[0] > 4
    assert len(pickle.dumps(model)) < 2 * len(pickle.dumps(regressor().fit(X, y)))
    if random_state is not None:
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        ([], TypeError, r"`estimators` must be 'auto' or a list .* got \[\]"),
        ([NETWORK], TypeError, r"or a list of \(name, estimator\)"),
        ([(3, NETWORK)], TypeError, "got the name 3"),
        ([("a", NETWORK), ("a", NETWORK)], ValueError, "must differ; got a more"),
        ([("a", NETWORK, {"tau": [2.0, 2.0]})], ValueError, r"got a\(tau=2.0\) more"),
        ([("a", Ridge())], TypeError, "needs a network of skbayesnn.*got Ridge"),
        ([("a", MCDropoutClassifier())], TypeError, "regressors only; got MCDropoutC"),
        ([("a", NETWORK, {"likelihood": [["gaussian"]]})], ValueError, "`likelihood`"),
        (
            [("a", NETWORK, {"likelihood": ["heteroscedastic", "student_t"]})],
            TypeError,
            "same kind of obs.*'heteroscedastic' and 'student_t'",
        ),
    ],
)
def test_invalid_pools_are_refused_before_training(table, pool, error, message):
    model = BayesianStackingRegressor(pool, verbose=True)
    with pytest.raises(error, match=message):
        model.fit(*table)


def test_grid_of_a_candidate_is_optional(table):
    model = BayesianStackingRegressor([("only", NETWORK)], cv=2).fit(*table)
    assert model.weights_.index.tolist() == ["only"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"estimators": "all"}, "`estimators` must be one of 'auto'; got 'all'"),
        ({"n_refits": 0}, "`n_refits` must be"),
        ({"memory_budget": -1}, "`memory_budget` must be"),
    ],
)
def test_invalid_parameters_are_refused(table, params, message):
    with pytest.raises(ValueError, match=message):
        regressor().set_params(**params).fit(*table)


def test_changed_pool_does_not_reuse_trained_models(table, monkeypatch):
    """The networks differ, although scikit-learn prints them alike."""
    X, y = table
    network, changed = (
        clone(NETWORK).set_params(hidden_layer_sizes=(2,) * 39 + (last,), max_iter=1)
        for last in (2, 3)
    )
    assert repr(network) == repr(changed)
    held_out = base.held_out

    def interrupted(*arguments):
        yield from held_out(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "held_out", interrupted)
    model = BayesianStackingRegressor([("deep", network)], cv=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    monkeypatch.setattr(base, "held_out", held_out)
    model.set_params(estimators=[("deep", changed)]).fit(X, y)
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.oof_prediction_, fresh.oof_prediction_)


def test_changed_folds_do_not_reuse_trained_models(monkeypatch, seed):
    """The folds differ, although NumPy prints them alike."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(2100, 1))
    y = X[:, 0] + 0.1 * random.normal(size=len(X))
    rows = np.arange(len(X))
    middle = np.concatenate([rows[:3], random.permutation(rows[3:-3]), rows[-3:]])
    folds, changed = ([(part[1000:], part[:1000])] for part in (rows, middle))
    changed = [(np.r_[a[:-3], rows[-3:]], np.r_[rows[:3], b[3:]]) for a, b in changed]
    held_out = base.held_out

    def interrupted(*arguments):
        yield from held_out(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "held_out", interrupted)
    pool = [("network", clone(NETWORK).set_params(max_iter=1))]
    model = BayesianStackingRegressor(pool, cv=folds, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    monkeypatch.setattr(base, "held_out", held_out)
    model.set_params(cv=changed).fit(X, y)
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.oof_prediction_, fresh.oof_prediction_)


def test_trained_networks_are_kept_after_a_later_error(table, monkeypatch):
    """An error in the summary."""
    model, trained = regressor(), []
    with monkeypatch.context() as patch:
        patch.setattr(BayesianStackingRegressor, "_summary", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.fit(*table)
    held_out = base.held_out

    def recorded(*arguments):
        for results in held_out(*arguments):
            trained.append(len(results))
            yield results

    monkeypatch.setattr(base, "held_out", recorded)
    model.fit(*table)
    assert sum(trained) == 0


def test_verbose_prints_progress_and_summary(table, capsys):
    model = regressor(verbose=True).fit(*table)
    assert str(model.summary_) in model._repr_html_()
    assert str(model.summary_) in model._repr_mimebundle_()["text/html"]
    assert "out of fold:" not in regressor()._repr_html_()
    output = capsys.readouterr().out
    assert "networks out of fold" in output
    assert str(model.summary_) in output
    assert "log density" in str(model.summary_)


def test_time_left_is_estimated(monkeypatch):
    """From the mean time of the trained models; before, from the expected time."""
    now = 0.0

    def trained():
        nonlocal now
        first = 0
        for n_done, seconds in [(2, 12.0), (3, 10.0), (6, 14.0), (8, 6.0)]:
            now += seconds
            yield {("network", fold): None for fold in range(first, n_done)}
            first = n_done

    def messages(**expected):
        texts = []
        seconds = base._collect(trained(), {}, texts.append, 8, "fits", **expected)
        assert seconds == 30 / 6
        return texts

    clock = SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr(base, "time", clock)
    remaining = [
        "3 of 8 fits, about 50 s left",
        "6 of 8 fits, about 12 s left",
        "8 of 8 fits",
    ]
    assert messages() == ["2 of 8 fits", *remaining]
    assert messages(seconds=40.0) == ["2 of 8 fits, about 4 min left", *remaining]


def test_expected_time_of_refits_grows_with_rows_and_networks(table):
    """Relative to the out-of-fold fits, before the first refit is trained."""
    pool = [("one", NETWORK), ("several", clone(NETWORK).set_params(n_estimators=3))]
    pool_candidates = candidates_of(candidates.given_pool(pool, 0))
    settings = {
        candidate.name: {f"{candidate.path}n_estimators": 6}
        for candidate in pool_candidates
    }
    rows = StackData(*table, None)
    half = np.arange(len(table[1]) // 2)
    expected = len(table[1]) / len(half) * (6 + 2) / 2
    assert (
        base._work_of_refits(pool_candidates, settings, rows, [(half, half)])
        == expected
    )


# ---- CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["auto", "given", "classes"])
def test_stacks_on_a_gpu(kind, table, labelled):
    """A fit repeats exactly, and a CPU predicts what the GPU predicts."""
    if kind == "auto":
        model = BayesianStackingRegressor(max_iter=3, device="cuda", random_state=0)
    else:
        model = regressor() if kind == "given" else classifier()
        for _, network, _ in model.estimators:
            network_of(network).set_params(device="cuda")
    X, y = labelled if kind == "classes" else table
    model.fit(X, y)
    repeated = clone(model).fit(X, y)
    np.testing.assert_array_equal(repeated.oof_log_density_, model.oof_log_density_)
    stored = pickle.loads(pickle.dumps(model))
    for network in stored.estimators_:
        assert network_of(network).device == "cuda"
        network_of(network).set_params(device="cpu")
    # The default pool trains in float32.
    tolerance = 1e-3 if kind == "auto" else 1e-9
    names = ["log_predictive_density", "predict"]
    names += ["predict_proba"] if kind == "classes" else ["predict_quantile"]
    for name in names:
        arguments = {"log_predictive_density": (X, y), "predict_quantile": (X, 0.2)}
        on_gpu = getattr(model, name)(*arguments.get(name, (X,)))
        same = getattr(repeated, name)(*arguments.get(name, (X,)))
        np.testing.assert_array_equal(same, on_gpu, err_msg=name)
        on_cpu = getattr(stored, name)(*arguments.get(name, (X,)))
        if name == "predict" and kind == "classes":
            np.testing.assert_array_equal(on_cpu, on_gpu)
            continue
        np.testing.assert_allclose(
            on_cpu, on_gpu, rtol=tolerance, atol=tolerance, err_msg=name
        )
