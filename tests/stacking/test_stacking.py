"""Bayesian stacking: out-of-fold predictions, arguments, warnings."""

import pickle
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import (
    KFold,
    RepeatedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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
from skbayesnn._engine.resources import torch_threads
from skbayesnn._predictive import blocks
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._stacking import base
from skbayesnn._stacking.summary import (
    CONSTANT,
    COVERAGE,
    COVERAGE_ERROR,
    Summary,
    normal_log_density,
    share_and_error,
    shares_log_probability,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.preprocessing import PiecewiseLinearEncoder
from tests.helpers.stacks import (
    COLUMNS,
    GRID,
    NETWORK,
    QUICK,
    ROWS,
    classifier,
    regressor,
)

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


def test_predictions_do_not_depend_on_the_block_size(table, monkeypatch):
    """The same block by block and for all rows at once."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=20, random_state=0).fit(X, y)
    sizes, encode = [], PiecewiseLinearEncoder.transform
    X = np.concatenate([X, 0.9 * X])

    def encoded(self, X):
        sizes.append(len(X))
        return encode(self, X)

    monkeypatch.setattr(blocks, "BLOCK", 10)
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
    monkeypatch.setattr(blocks, "BLOCK", 10)
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


def test_weights_have_the_same_items_without_pandas(table, monkeypatch):
    pytest.importorskip("pandas")
    model = regressor().fit(*table)
    frame = model.weights_
    assert (np.diff(frame["weight"]) <= 0).all()
    monkeypatch.setitem(sys.modules, "pandas", None)
    plain = pickle.loads(pickle.dumps(model)).weights_
    assert isinstance(plain, dict)
    for column in ("weight", "log_density"):
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


def test_target_of_shape_rows_by_one_is_flattened(table):
    X, y = table
    with pytest.warns(DataConversionWarning):
        model = regressor().fit(X, y[:, None])
    same = regressor().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))
    assert str(model.summary_) == str(same.summary_)


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


def test_summary_has_the_log_density_of_a_constant():
    """Against densities of SciPy, with weights; and a text that has both."""
    random = np.random.default_rng(0)
    y, weights = random.standard_normal((50, 2)) * [1, 9] + 3, random.uniform(size=50)
    centre = np.average(y, axis=0, weights=weights)
    std = np.sqrt(np.average((y - centre) ** 2, axis=0, weights=weights))
    density = stats.norm.logpdf(y, centre, std).sum(1)
    expected = np.average(density, weights=weights)
    assert normal_log_density(y, weights) == pytest.approx(expected)
    labels = random.choice(["a", "b", "c"], 50)
    share = {label: weights[labels == label].sum() / weights.sum() for label in "abc"}
    expected = np.average([np.log(share[v]) for v in labels], weights=weights)
    assert shares_log_probability(labels, weights) == pytest.approx(expected)
    summary = Summary(-1.0, 0.5, {CONSTANT: -1.25, "R^2": 0.375})
    assert str(summary) == (
        "out of fold: log density -1.000 +- 0.500 (of a constant -1.250), R^2 0.375"
    )


def test_summary_has_the_standard_error_of_the_coverage():
    """Equal to the one of a binomial share; weights reduce the number of rows."""
    inside = np.arange(50) % 10 > 0
    coverage, error = share_and_error(inside)
    assert coverage == pytest.approx(0.9)
    assert error == pytest.approx(stats.binom.std(50, 0.9) / 50)
    _, of_half = share_and_error(inside, np.arange(50) < 20)
    assert of_half == pytest.approx(stats.binom.std(20, 0.9) / 20)
    # Two targets that miss the same rows together contain no more than one.
    assert share_and_error(np.c_[inside, inside])[1] == pytest.approx(error)
    # If all rows are inside, as with half of a row outside.
    for share in (1.0, 0.0):
        coverage, of_all = share_and_error(np.full(50, share == 1))
        assert coverage == share
        assert of_all == pytest.approx(stats.binom.std(50, 0.01) / 50)
    summary = Summary(-1.0, 0.5, {COVERAGE: 0.9, COVERAGE_ERROR: error})
    assert str(summary).endswith("90 % intervals cover 0.900 +- 0.042")
    older = Summary(-1.0, 0.5, {COVERAGE: 0.9})
    assert str(older).endswith("90 % intervals cover 0.9")


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_constant_y_has_a_finite_distribution(table, value):
    """Linear models have no residuals; NumPy does not warn."""
    X, _ = table
    network = MCDropoutRegressor((8,), max_iter=8, random_state=0)
    pool = [("net", network), ("linear", "fast")]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "y is constant")
        model = BayesianStackingRegressor(pool, random_state=0)
        model.fit(X, np.full(len(X), value))
        mean, std = model.predict(X, return_std=True)
        densities = model.log_predictive_density(X, np.full(len(X), value + 1))
    np.testing.assert_allclose(mean, value, atol=0.1)
    assert (std > 1e-6).all()
    assert np.isfinite(densities).all()


def test_rows_with_a_large_epistemic_part_are_reported(table):
    """No single value is far; all columns together are."""
    X, y = table
    model = BayesianStackingRegressor([("linear", "fast")], random_state=0).fit(X, y)
    far = X[:3] + 30 * X.std(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
    with pytest.warns(UserWarning, match=r"3 of 3 rows are unlike.*SKB303"):
        epistemic = model.predict_uncertainty(far, "epistemic")
    assert (epistemic > 2 * model.largest_epistemic_).all()


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
    assert np.isfinite(both.summary_.others[CONSTANT])


def test_few_rows_warn():
    """Rows of weight zero do not count."""
    random = np.random.default_rng(0)
    X, y = random.standard_normal((16, 2)), random.standard_normal(16)
    stack = BayesianStackingRegressor([("one", MCDropoutRegressor(**QUICK))], cv=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stack.fit(X[:15], y[:15])
    assert not any("hardly better" in str(w.message) for w in caught)
    message = r"fitted to 14 rows. With fewer than 15 .*hardly better .*SKB110"
    with pytest.warns(UserWarning, match=message):
        stack.fit(X, y, sample_weight=np.r_[np.ones(14), 0, 0])


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


# ---- later fits and other inputs


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


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"estimators": "all"}, "one of 'fast', 'auto', 'best'; got 'all'"),
        ({"n_refits": 0}, "`n_refits` must be"),
        ({"memory_budget": -1}, "`memory_budget` must be"),
    ],
)
def test_invalid_parameters_are_refused(table, params, message):
    with pytest.raises(ValueError, match=message):
        regressor().set_params(**params).fit(*table)


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
