"""CalibratedUncertaintyRegressor: fitted on held-out rows, calibrated on new rows."""

from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    CalibratedUncertaintyRegressor,
    MCDropoutRegressor,
    NeighbourRegressor,
    log_predictive_density,
    predict_interval,
    predict_uncertainty,
)
from skbayesnn._engine.posterior import PosteriorPredictor
from skbayesnn._predictive.recalibration import QuantileMap
from skbayesnn.scoring import log_density_scorer, neg_coverage_error_scorer
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

ROWS, FRESH, NOISE = 300, 1000, 0.5
METHODS = ("scale", "isotonic")
# Brent's method stops within 1e-5 of the log of the scale.
OPTIMUM = 3e-5


def network(**parameters):
    quick = {
        "hidden_layer_sizes": (8,),
        "max_iter": 30,
        "n_draws": 10,
        "dropout": 0.2,
        "learning_rate_init": 0.03,
        "random_state": SEED,
    }
    return MCDropoutRegressor(**quick | parameters)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 21])

    def rows(n):
        X = random.normal(size=(n, 3))
        return X, X @ [1.0, -2.0, 0.5] + NOISE * random.normal(size=n)

    (X, y), (X_new, y_new) = rows(ROWS), rows(FRESH)
    return SimpleNamespace(
        X=X, y=y, Y=np.c_[y, 20 * np.abs(y)], X_new=X_new, y_new=y_new, random=random
    )


@pytest.fixture(scope="module", params=METHODS)
def fitted(request, data):
    """A calibration around one network; with the folds three fits in all."""
    model = CalibratedUncertaintyRegressor(network(), method=request.param, cv=2)
    return model.fit(data.X, data.y)


def standardised(model, X, y):
    """Residuals divided by the predictive's std."""
    return (y - model.predict(X)) / model.predict_uncertainty(X)


def rms(values, weight=None):
    return np.sqrt(np.average(np.square(values), axis=0, weights=weight))


# ---- held-out rows only


class Recorder(LinearGaussian):
    """Records the rows of every fit and of every prediction."""

    seen, predicted = [], []

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.seen.append(self.seen_)
        return self

    def _open_predictive(self, X):
        self.predicted.append(X[:, 0])
        return super()._open_predictive(X)


@pytest.fixture
def recorder():
    Recorder.seen, Recorder.predicted = [], []
    return Recorder()


@pytest.mark.parametrize("method", METHODS)
def test_each_fold_is_predicted_by_a_model_without_it(data, recorder, method):
    rows = np.random.default_rng([SEED, 22]).permutation(ROWS)
    folds = [(rows[:100], rows[100:170]), (rows[170:], rows[20:90])]
    model = CalibratedUncertaintyRegressor(recorder, method=method, cv=folds)
    model.fit(data.X, data.y)
    first = data.X[:, 0]
    expected = [first[folds[0][0]], first[folds[1][0]], first]
    for seen, rows_of_fold in zip(Recorder.seen, expected, strict=True):
        np.testing.assert_array_equal(seen, rows_of_fold)
    for predicted, (_, test) in zip(Recorder.predicted, folds, strict=True):
        np.testing.assert_array_equal(predicted, first[test])
    np.testing.assert_array_equal(model.estimator_.seen_, first)


def held_out(data, estimator, y, cv):
    """Standardised residuals of every row, from the model that held it out."""
    parts = [
        (
            test,
            standardised(
                clone(estimator).fit(data.X[train], y[train]), data.X[test], y[test]
            ),
        )
        for train, test in cv.split(data.X)
    ]
    order = np.concatenate([test for test, _ in parts])
    return order, np.concatenate([values for _, values in parts])


def test_scale_is_the_rms_of_held_out_residuals(data):
    model = LinearGaussian(factor=0.2, uneven=0.3)
    calibrated = CalibratedUncertaintyRegressor(model, cv=3).fit(data.X, data.y)
    _, residuals = held_out(data, model, data.y, KFold(3))
    assert calibrated.scale_ == pytest.approx(rms(residuals), rel=OPTIMUM)
    assert isinstance(calibrated.scale_, float)
    default = CalibratedUncertaintyRegressor(model).fit(data.X, data.y)
    _, residuals = held_out(data, model, data.y, KFold(5))
    assert default.scale_ == pytest.approx(rms(residuals), rel=OPTIMUM)


def test_map_is_fitted_to_held_out_levels(data):
    """The levels are those after scaling."""
    model = LinearGaussian(factor=3.0)
    calibrated = CalibratedUncertaintyRegressor(model, method="isotonic", cv=3)
    calibrated.fit(data.X, data.y)
    _, residuals = held_out(data, model, data.y, KFold(3))
    assert calibrated.scale_ == pytest.approx(rms(residuals), rel=OPTIMUM)
    expected = QuantileMap.fit(norm.cdf(residuals / calibrated.scale_), np.ones(ROWS))
    [actual] = calibrated.quantile_maps_
    np.testing.assert_allclose(actual.level, expected.level, rtol=1e-9)
    np.testing.assert_allclose(actual.share, expected.share)


def test_every_target_has_a_scale_and_a_map(data):
    model = LinearGaussian(factor=0.2)
    calibrated = CalibratedUncertaintyRegressor(model, cv=3).fit(data.X, data.Y)
    _, residuals = held_out(data, model, data.Y, KFold(3))
    np.testing.assert_allclose(calibrated.scale_, rms(residuals), rtol=OPTIMUM)
    assert calibrated.predict_interval(data.X_new, [0.5, 0.9]).shape == (FRESH, 2, 2, 2)
    column = clone(calibrated).fit(data.X, data.y[:, None])
    assert column.scale_.shape == (1,)
    mapped = clone(calibrated).set_params(method="isotonic").fit(data.X, data.Y)
    assert len(mapped.quantile_maps_) == 2
    # Separate fits give the same, since least squares does not mix targets.
    for j in range(2):
        separate = clone(mapped).fit(data.X, data.Y[:, j])
        np.testing.assert_allclose(
            mapped.predict_interval(data.X_new)[:, j],
            separate.predict_interval(data.X_new),
            rtol=1e-4,  # an optimum found to 1e-5
        )


def test_large_tables_are_thinned(data, monkeypatch):
    monkeypatch.setattr("skbayesnn._meta.calibration.MAX_ROWS", 100)
    frozen = FrozenEstimator(LinearGaussian(factor=0.2).fit(data.X, data.y))
    thinned = CalibratedUncertaintyRegressor(frozen, cv=2).fit(data.X, data.y)
    residuals = standardised(frozen, data.X, data.y)
    # 300 rows with a limit of 100: every third row of each fold.
    kept = np.r_[0:150:3, 150:300:3]
    assert thinned.scale_ == pytest.approx(rms(residuals[kept]), rel=OPTIMUM)


def test_frozen_estimator_is_not_fitted_again(data):
    model = LinearGaussian(factor=0.2).fit(data.X_new, data.y_new)
    frozen = FrozenEstimator(model)
    calibrated = CalibratedUncertaintyRegressor(frozen, cv=7).fit(data.X, data.y)
    assert calibrated.estimator_ is frozen
    np.testing.assert_array_equal(model.seen_, data.X_new[:, 0])
    expected = rms(standardised(model, data.X, data.y))
    assert calibrated.scale_ == pytest.approx(expected, rel=OPTIMUM)


def test_folds_in_parallel(data):
    calibrated = CalibratedUncertaintyRegressor(LinearGaussian(), cv=3, n_jobs=2)
    with joblib.parallel_backend("threading"):
        calibrated.fit(data.X, data.y)
    sequential = clone(calibrated).set_params(n_jobs=None).fit(data.X, data.y)
    assert calibrated.scale_ == sequential.scale_


# ---- on fresh rows


@pytest.mark.parametrize("method", METHODS)
def test_overconfident_network_is_calibrated(data, method):
    """tau is 25 times too large: the noise std is a fifth of the true one."""
    long = {
        "hidden_layer_sizes": (16,),
        "max_iter": 100,
        "learning_rate_init": 0.05,
    }
    wrong = network(dropout=0.0, tau=25 / NOISE**2, **long)
    raw = clone(wrong).fit(data.X, data.y)
    model = CalibratedUncertaintyRegressor(wrong, method=method).fit(data.X, data.y)
    # Five, and a little more for the error of the mean; estimated from 300 rows to 4 %.
    assert 4 < model.scale_ < 7

    def shares(estimator):
        interval = estimator.predict_interval(data.X_new, [0.5, 0.9])
        y = data.y_new[:, None]
        return ((interval[..., 0] <= y) & (y <= interval[..., 1])).mean(0)

    assert (shares(raw) < [0.2, 0.4]).all()
    # Over seeds these shares vary by 0.045 and 0.016, because of the new rows, of the
    # 300 calibration rows, and of folds that are fitted better or worse than all rows.
    assert (np.abs(shares(model) - [0.5, 0.9]) < [0.2, 0.08]).all()
    # A Gaussian with the spread of the errors has this density on average; a map of 18
    # pieces has a lower one because it is rough.
    errors = data.y_new - model.predict(data.X_new)
    best = norm(scale=errors.std()).logpdf(errors).mean()
    density = {
        candidate: candidate.log_predictive_density(data.X_new, data.y_new).mean()
        for candidate in (raw, model)
    }
    assert density[raw] < best - 5
    assert best - 0.15 < density[model] < best + 0.05


def test_isotonic_corrects_the_shape(data):
    """Noise of one sign only, which a factor cannot correct."""
    random = np.random.default_rng([SEED, 23])
    y = data.X[:, 0] + random.exponential(size=ROWS) - 1
    y_new = data.X_new[:, 0] + random.exponential(size=FRESH) - 1
    density, below = {}, {}
    for method in METHODS:
        model = CalibratedUncertaintyRegressor(LinearGaussian(), method=method)
        model.fit(data.X, y)
        density[method] = model.log_predictive_density(data.X_new, y_new).mean()
        below[method] = (y_new < model.predict_quantile(data.X_new, 0.1)).mean()
    # The mean log density is -1.42 for N(0, 1) and -1 for the exponential. No value is
    # below -1, while the 10 % quantile of N(0, 1) is -1.28. 300 rows determine a share
    # of 10 % to 0.02.
    assert density["isotonic"] > density["scale"]
    assert below["scale"] < 0.05
    assert abs(below["isotonic"] - 0.1) < 0.09


def test_point_predictions_do_not_change(data, fitted):
    plain = network().fit(data.X, data.y)
    np.testing.assert_array_equal(fitted.predict(data.X_new), plain.predict(data.X_new))
    mean, std = fitted.predict(data.X_new, return_std=True)
    np.testing.assert_array_equal(mean, plain.predict(data.X_new))
    # Scaled moments of draws equal the moments of scaled draws, to rounding.
    again = fitted.predict_uncertainty(data.X_new)
    np.testing.assert_allclose(std, again, rtol=1e-12)
    assert std.shape == (FRESH,)


QUERIES = {
    "predict": lambda model, X, y: model.predict(X),
    "std": lambda model, X, y: model.predict(X, return_std=True),
    "cov": lambda model, X, y: model.predict(X, return_cov=True),
    "uncertainty": lambda model, X, y: model.predict_uncertainty(X, "all"),
    "interval": lambda model, X, y: model.predict_interval(X),
    "quantile": lambda model, X, y: model.predict_quantile(X, [0.1, 0.5]),
    "cdf": lambda model, X, y: model.predictive_cdf(X, y),
    "density": lambda model, X, y: model.log_predictive_density(X, y),
    "crps": lambda model, X, y: model.crps(X, y),
    "samples": lambda model, X, y: model.sample_y(X, 3),
}


@pytest.mark.parametrize("query", QUERIES)
def test_posterior_is_opened_once_per_call(data, fitted, monkeypatch, query):
    """By the inner estimator, and by the calibrated one.

    With mapped levels the estimator still computes the mean, but not the spread.
    """
    opened, init = [], PosteriorPredictor.__init__
    monkeypatch.setattr(
        PosteriorPredictor,
        "__init__",
        lambda self, *arguments: (opened.append(self), init(self, *arguments))[1],
    )
    QUERIES[query](fitted.estimator_, data.X_new, data.y_new)
    assert len(opened) == 1
    QUERIES[query](fitted, data.X_new, data.y_new)
    mapped = fitted.method == "isotonic" and query in ("std", "cov")
    assert len(opened) == (3 if mapped else 2)


def test_scale_multiplies_every_std(data):
    """Around a pipeline."""
    inner = make_pipeline(StandardScaler(), network())
    model = CalibratedUncertaintyRegressor(inner, cv=2).fit(data.X, data.y)
    assert model.n_features_in_ == 3
    before = predict_uncertainty(model.estimator_, data.X_new, "all")
    after = model.predict_uncertainty(data.X_new, "all")
    for kind, std in before.items():
        np.testing.assert_allclose(after[kind], model.scale_ * std, rtol=1e-9)


def test_predictions_are_consistent(data, fitted):
    X, y = data.X_new[:40], data.y_new[:40]
    quantiles = fitted.predict_quantile(X, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(
        fitted.predict_interval(X), quantiles[:, [0, 2]], rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        fitted.predictive_cdf(X, quantiles[:, 2]), 0.95, rtol=1e-6
    )
    short = fitted.predict_interval(X, kind="highest_density")
    # The kinks of a map make several minima; the interval may be a little wider.
    assert (np.diff(short) <= 1.01 * np.diff(fitted.predict_interval(X))).all()
    held = fitted.predictive_cdf(X, short[:, 1]) - fitted.predictive_cdf(X, short[:, 0])
    np.testing.assert_allclose(held, 0.9, rtol=1e-6)
    assert (fitted.crps(X, y) > 0).all()
    samples = fitted.sample_y(X, 300, random_state=SEED)
    below = (samples < quantiles[:, [1]]).mean()
    # Samples share their draws over rows, so at worst only 300 are independent.
    assert below == pytest.approx(0.5, abs=6 * 0.5 / np.sqrt(300))


# ---- weights


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_weight_zero_do_not_count(data, method):
    frozen = FrozenEstimator(LinearGaussian(factor=0.5).fit(data.X, data.y))
    weight = np.random.default_rng([SEED, 24]).integers(0, 3, size=ROWS)
    weighted = CalibratedUncertaintyRegressor(frozen, method=method)
    weighted.fit(data.X, data.y, sample_weight=weight)
    present = weight > 0
    absent = clone(weighted).fit(
        data.X[present], data.y[present], sample_weight=weight[present]
    )
    assert weighted.scale_ == pytest.approx(absent.scale_, rel=1e-12)
    np.testing.assert_allclose(
        weighted.predict_interval(data.X_new),
        absent.predict_interval(data.X_new),
        rtol=1e-9,
    )
    residuals = standardised(frozen, data.X, data.y)
    assert weighted.scale_ == pytest.approx(rms(residuals, weight), rel=OPTIMUM)


def test_fold_of_weight_zero_does_not_count(data):
    """The other folds determine the result."""
    weight = np.ones(ROWS)
    folds = list(KFold(3).split(data.X))
    weight[folds[1][1]] = 0
    actual, expected = (
        CalibratedUncertaintyRegressor(LinearGaussian(), cv=cv).fit(
            data.X, data.y, sample_weight=weight
        )
        for cv in (folds, folds[::2])
    )
    assert actual.scale_ == expected.scale_


def test_weights_reach_the_estimator(data):
    """All fits get the weights of their rows."""
    weight = np.random.default_rng([SEED, 25]).integers(0, 3, size=ROWS).astype(float)
    folds = list(KFold(3).split(data.X))
    calibrated = CalibratedUncertaintyRegressor(LinearGaussian(), cv=folds)
    calibrated.fit(data.X, data.y, sample_weight=weight)
    present, new = np.flatnonzero(weight), np.cumsum(weight > 0) - 1
    present_folds = [[new[rows[weight[rows] > 0]] for rows in fold] for fold in folds]
    reference = clone(calibrated).set_params(cv=present_folds)
    reference.fit(data.X[present], data.y[present], sample_weight=weight[present])
    assert calibrated.scale_ == pytest.approx(reference.scale_, rel=OPTIMUM)
    np.testing.assert_allclose(calibrated.estimator_.coef_, reference.estimator_.coef_)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: TransformedTargetRegressor(model, transformer=StandardScaler()),
        lambda model: GridSearchCV(model, {"factor": [0.2]}, cv=2),
        FrozenEstimator,
    ],
    ids=["target transform", "search", "frozen"],
)
def test_weights_reach_the_inner_estimator(data, wrap):
    """The wrappers accept weights as keywords and pass them to the estimator."""
    weight = np.random.default_rng([SEED, 29]).integers(1, 9, size=ROWS).astype(float)
    plain = LinearGaussian(0.2).fit(data.X, data.y, weight)
    model = CalibratedUncertaintyRegressor(wrap(plain), cv=3)
    model.fit(data.X, data.y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(data.X_new), plain.predict(data.X_new))
    # Held-out and training residuals differ little: 4 values are estimated from 300
    # rows.
    expected = rms(standardised(plain, data.X, data.y), weight)
    assert model.scale_ == pytest.approx(expected, rel=0.1)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def unweighted():
    return StandardScaler().set_fit_request(sample_weight=False)


def test_groups_are_passed_to_the_splitter(data, recorder, routing):
    groups = np.random.default_rng([SEED, 26]).integers(4, size=ROWS)
    model = CalibratedUncertaintyRegressor(recorder, cv=GroupKFold(4))
    model.fit(data.X, data.y, groups=groups)
    group_of = dict(zip(data.X[:, 0], groups, strict=True))
    tested = [
        {group_of[value] for value in predicted} for predicted in Recorder.predicted
    ]
    assert sorted(tested, key=min) == [{0}, {1}, {2}, {3}]
    for seen, predicted in zip(Recorder.seen, tested, strict=False):
        assert {group_of[value] for value in seen} == {0, 1, 2, 3} - predicted


def test_default_folds_do_not_split_groups_of_a_search(data):
    """The search takes any parameter, and its own folds respect the groups."""
    groups = np.arange(ROWS) % 5
    network = MCDropoutRegressor(max_iter=2, n_draws=2)
    search = GridSearchCV(network, {"tau": [1.0, 2.0]}, cv=GroupKFold(2))
    model = CalibratedUncertaintyRegressor(search, cv=3)
    with pytest.raises(ValueError, match="`groups`"):
        model.fit(data.X, data.y, groups=groups)
    pipeline = make_pipeline(StandardScaler(), NeighbourRegressor(max_iter=2))
    model = CalibratedUncertaintyRegressor(pipeline, cv=3)
    with pytest.raises(ValueError, match="`groups`"):
        model.fit(data.X, data.y, neighbourregressor__groups=groups)


def test_weights_are_passed_to_the_last_step_of_a_pipeline(data, routing):
    weight = np.random.default_rng([SEED, 27]).integers(0, 2, size=ROWS).astype(float)
    last = LinearGaussian().set_fit_request(sample_weight=True)
    pipeline = make_pipeline(unweighted(), last)
    model = CalibratedUncertaintyRegressor(pipeline, cv=3)
    model.fit(data.X, data.y, sample_weight=weight)
    # The scaling of X does not change least squares.
    plain = CalibratedUncertaintyRegressor(last, cv=3)
    plain.fit(data.X, data.y, sample_weight=weight)
    assert model.scale_ == pytest.approx(plain.scale_, rel=OPTIMUM)
    ignored = CalibratedUncertaintyRegressor(
        LinearGaussian().set_fit_request(sample_weight=False), cv=3
    ).fit(data.X, data.y, sample_weight=weight)
    np.testing.assert_allclose(
        ignored.estimator_.coef_, LinearGaussian().fit(data.X, data.y).coef_
    )


def test_weights_are_passed_to_a_calibration_inside_a_pipeline(data, routing):
    weight = np.random.default_rng([SEED, 28]).integers(0, 2, size=ROWS).astype(float)
    inner = LinearGaussian().set_fit_request(sample_weight=True)
    last = CalibratedUncertaintyRegressor(inner).set_fit_request(sample_weight=True)
    model = make_pipeline(unweighted(), last)
    model.fit(data.X, data.y, sample_weight=weight)
    plain = clone(last).fit(data.X, data.y, sample_weight=weight)
    assert model[-1].scale_ == pytest.approx(plain.scale_, rel=OPTIMUM)


# ---- a scikit-learn estimator


def test_inside_of_a_search(data):
    model = GridSearchCV(
        CalibratedUncertaintyRegressor(LinearGaussian(), cv=2),
        {"estimator__factor": [0.01, 1.0], "method": METHODS},
        scoring={"density": log_density_scorer, "coverage": neg_coverage_error_scorer},
        refit="density",
        cv=2,
    ).fit(data.X, data.y)
    results = model.cv_results_
    by_case = {
        (case["method"], case["estimator__factor"]): score
        for case, score in zip(
            results["params"], results["mean_test_density"], strict=True
        )
    }
    # Calibration removes the effect of the factor.
    for method in METHODS:
        np.testing.assert_allclose(
            by_case[method, 0.01], by_case[method, 1.0], atol=1e-3
        )
    assert predict_interval(model, data.X_new).shape == (FRESH, 2)


@pytest.mark.parametrize("method", METHODS)
def test_around_and_inside_of_a_target_transform(data, method):
    y, y_new = np.exp(data.y / 3), np.exp(data.y_new / 3)
    plain = CalibratedUncertaintyRegressor(LinearGaussian(0.3), method=method)
    plain.fit(data.X, np.log(y))
    expected = np.exp(plain.predict_interval(data.X_new, [0.5, 0.9]))
    log = {"func": np.log, "inverse_func": np.exp}
    inside = TransformedTargetRegressor(clone(plain), **log).fit(data.X, y)
    around = clone(plain).set_params(
        estimator=TransformedTargetRegressor(LinearGaussian(0.3), **log)
    )
    around.fit(data.X, y)
    assert around.scale_ == pytest.approx(plain.scale_, rel=OPTIMUM)
    for model in (inside, around):
        np.testing.assert_allclose(
            predict_interval(model, data.X_new, [0.5, 0.9]), expected, rtol=1e-4
        )
        np.testing.assert_allclose(
            log_predictive_density(model, data.X_new, y_new),
            plain.log_predictive_density(data.X_new, np.log(y_new)) - np.log(y_new),
            rtol=1e-3,
            atol=1e-3,  # the scale is an optimum found to 1e-5, at residuals of 5 stds
        )


def test_calibration_of_a_calibrated_model(data):
    once = CalibratedUncertaintyRegressor(LinearGaussian(0.2), cv=3)
    twice = CalibratedUncertaintyRegressor(once, cv=3).fit(data.X, data.y)
    # Nothing is left to correct; two thirds of the rows determine it less accurately.
    assert twice.scale_ == pytest.approx(1, abs=0.1)
    twice.set_params(estimator__method="isotonic")
    with pytest.raises(TypeError, match=r"cannot be recalibrated again"):
        twice.fit(data.X, data.y)


def test_frames(data):
    index = pd.Index(np.arange(ROWS) + 1000)
    X = pd.DataFrame(data.X, columns=["a", "b", "c"], index=index)
    y = pd.Series(data.y, index=index)
    model = CalibratedUncertaintyRegressor(network(), cv=2).fit(X, y)
    plain = clone(model).fit(data.X, data.y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(plain, "feature_names_in_")
    assert model.scale_ == plain.scale_
    frame = model.predict_uncertainty(X[5:9], ["total", "epistemic"], as_frame=True)
    assert frame.columns.tolist() == ["total", "epistemic"]
    assert frame.index.tolist() == [1005, 1006, 1007, 1008]
    with pytest.raises(ValueError, match=r"feature names"):
        model.predict_uncertainty(X.rename(columns={"a": "z"}))
    plain.fit(X, y)
    plain.fit(data.X, data.y)
    assert not hasattr(plain, "feature_names_in_")


# ---- errors


class FailsOnAll(LinearGaussian):
    """Fits the folds, but fails on all rows."""

    def fit(self, X, y, sample_weight=None):
        if len(X) == ROWS:
            raise RuntimeError("all rows")
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_fit_changes_nothing(data, method):
    model = CalibratedUncertaintyRegressor(LinearGaussian(), method=method, cv=2)
    before = dict(vars(model.fit(data.X, data.y)))
    model.estimator = FailsOnAll()
    with pytest.raises(RuntimeError, match="all rows"):
        model.fit(data.X, data.y)
    model.estimator = before["estimator"]
    assert vars(model) == before


def test_second_fit_replaces_the_first(data):
    model = CalibratedUncertaintyRegressor(LinearGaussian(), method="isotonic", cv=2)
    model.fit(data.X, data.y)
    model.set_params(method="scale").fit(data.X, data.y)
    assert not hasattr(model, "quantile_maps_")
    fresh = clone(model).fit(data.X, data.y)
    assert vars(model).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(
        model.predict_interval(data.X_new), fresh.predict_interval(data.X_new)
    )


def test_refit_is_reproducible(data, fitted):
    again = clone(fitted).fit(data.X, data.y)
    assert again.scale_ == fitted.scale_


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"method": "sigmoid"}, ValueError, r"'scale' or 'isotonic'; got 'sigmoid'"),
        (
            {"estimator": LogisticRegression()},
            TypeError,
            r"needs a regressor; got LogisticRegression.*CalibratedClassifierCV",
        ),
        (
            {"estimator": LinearRegression()},
            TypeError,
            r"a predictive distribution needs.*got LinearRegression",
        ),
    ],
    ids=["method", "classifier", "another regressor"],
)
def test_wrong_parameters(data, parameters, error, message):
    model = CalibratedUncertaintyRegressor(LinearGaussian()).set_params(**parameters)
    with pytest.raises(error, match=message):
        model.fit(data.X, data.y)
    assert not [name for name in vars(model) if name.endswith("_")]
