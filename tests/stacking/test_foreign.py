"""Estimators of other libraries as candidates."""

import pickle
import random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import logsumexp
from scipy.stats import norm, t
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutRegressor,
)
from skbayesnn._batch.cross_fit import refuse_fitted
from skbayesnn._stacking import foreign
from skbayesnn._stacking.foreign import (
    ForeignClassifier,
    ForeignQuantileRegressor,
    ForeignRegressor,
    Noise,
    estimate_noise,
    quantile_fits,
    takes_frame,
)
from tests.helpers.stacks import QUICK

ROWS = 90


@pytest.fixture
def linear(seed):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(ROWS, 3))
    return X, X @ [2.0, -1.0, 0.0] + 0.5 * generator.normal(size=ROWS)


# ---- noise


def test_variance_is_a_step_function_plus_a_multiple_of_the_prediction():
    noise = Noise(
        np.array([0.0, 2.0]),
        np.array([[1.0, 3.0], [np.inf, np.inf]]),
        np.array([[4.0, 5.0, 6.0], [0.5, 0.5, 0.5]]),
    )
    mean = np.array([[0.0, 9.0], [1.0, 9.0], [2.0, 9.0], [3.5, 9.0]])
    actual = noise.variance(mean, np.full((4, 2), 7.0))
    np.testing.assert_array_equal(actual[:, 0], [4, 4, 5, 6])
    np.testing.assert_array_equal(actual[:, 1], 14.5)


def test_bins_of_equal_predictions_have_finite_variances(seed):
    """More than half of the rows have the largest prediction, as leaves of a tree."""
    generator = np.random.default_rng(seed)
    mean = np.minimum(generator.normal(size=(600, 1)), 0.0)
    y = mean + np.where(mean < -0.5, 0.1, 1.0) * generator.normal(size=mean.shape)
    folds = np.arange(600) % 3
    noise, variance = estimate_noise(y, mean, None, np.ones(600), folds)
    assert np.isfinite(noise.variances).all() and np.isfinite(variance).all()
    above = noise.variance(mean + 1.0, np.zeros_like(mean))
    assert (above > 0).all()


def test_constant_noise_is_the_mean_square_of_other_folds(seed):
    generator = np.random.default_rng(seed)
    y, mean = generator.normal(size=(2, 40, 2))
    weights, fold = generator.uniform(0.5, 2, size=40), np.arange(40) % 4
    # Too few rows for several bins.
    noise, variance = estimate_noise(y, mean, None, weights, fold)
    squares = np.square(y - mean)
    expected = np.average(squares, axis=0, weights=weights)
    np.testing.assert_allclose(noise.variances[:, 0], expected)
    for k in range(4):
        others = fold != k
        expected = np.average(squares[others], axis=0, weights=weights[others])
        np.testing.assert_allclose(variance[fold == k], np.tile(expected, (10, 1)))


def test_noise_of_two_levels_is_found(seed):
    """Its standard deviation jumps at a mean of zero."""
    generator = np.random.default_rng(seed)
    mean = np.linspace(-1, 1, 4000)[:, None]
    std = np.where(mean < 0, 0.1, 1.0)
    y = mean + std * generator.normal(size=mean.shape)
    noise, _ = estimate_noise(y, mean, None, np.ones(4000), np.zeros(4000, int))
    # Bins of 400 rows: the error of a standard deviation is 4 %.
    actual = np.sqrt(noise.variance(mean, np.zeros_like(mean)))
    np.testing.assert_allclose(actual, std, rtol=0.2)


def test_predicted_variances_are_used_where_they_are_better(seed):
    generator = np.random.default_rng(seed)
    n = 2000
    predicted = generator.uniform(0.1, 10, size=(n, 3))
    factor = np.array([1.0, 9.0, 0.0])
    std = np.sqrt(factor * predicted + (factor == 0))
    mean = generator.normal(size=(n, 3))
    y = mean + std * generator.normal(size=(n, 3))
    noise, variance = estimate_noise(y, mean, predicted, np.ones(n), np.arange(n) % 5)
    # The relative error of a variance is sqrt(2 / n), 3 %.
    np.testing.assert_allclose(noise.factor, factor, rtol=0.15)
    np.testing.assert_allclose(variance, np.square(std), rtol=0.3)


def test_rows_without_weight_do_not_determine_the_noise(seed):
    generator = np.random.default_rng(seed)
    y, mean = generator.normal(size=(2, 60, 1))
    weights, fold = np.ones(60), np.arange(60) % 3
    weights[::4] = 0
    expected, _ = estimate_noise(y, mean, None, weights, fold)
    y[::4] = 1e6
    actual, variance = estimate_noise(y, mean, None, weights, fold)
    np.testing.assert_array_equal(actual.variances, expected.variances)
    assert variance.max() < 100


# ---- adapters


def test_normal_prediction_of_a_regressor(linear):
    X, y = linear
    model = ForeignRegressor(LinearRegression()).fit(X[:60], y[:60])
    model.set_noise(Noise(np.zeros(1), np.empty((1, 0)), np.array([[0.25]])))
    mean = LinearRegression().fit(X[:60], y[:60]).predict(X[60:])
    new = X[60:]
    np.testing.assert_allclose(model.predict(new), mean)
    uncertainty = model.predict_uncertainty(new, "all")
    np.testing.assert_array_equal(uncertainty["epistemic"], 0)
    np.testing.assert_allclose(uncertainty["aleatoric"], 0.5)
    np.testing.assert_allclose(
        model.log_predictive_density(new, y[60:]), norm.logpdf(y[60:], mean, 0.5)
    )
    np.testing.assert_allclose(
        model.predict_quantile(new, 0.9), norm.ppf(0.9, mean, 0.5), rtol=1e-6
    )


@pytest.mark.parametrize(
    "estimator",
    [
        BayesianRidge(),
        GaussianProcessRegressor(RBF() + WhiteKernel(), random_state=0),
        make_pipeline(StandardScaler(), BayesianRidge()),
    ],
)
def test_predicted_standard_deviations_are_read(linear, estimator):
    X, y = linear
    model = ForeignRegressor(estimator).fit(X, y)
    mean, std = clone(estimator).fit(X, y).predict(X, return_std=True)
    actual_mean, actual_std = model.predict(X, return_std=True)
    np.testing.assert_allclose(actual_mean, mean)
    np.testing.assert_allclose(actual_std, std, rtol=1e-5)


class WithDistribution(RegressorMixin, BaseEstimator):
    """Predicts normal distributions, as NGBoost does."""

    def fit(self, X, y):
        """Store the mean."""
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        """Return the means."""
        return self.pred_dist(X).mean()

    def pred_dist(self, X):
        """Return a normal distribution for each row."""
        return norm(np.full(len(X), self.mean_), 1 + np.abs(X[:, 0]))


def test_predicted_distributions_are_read(linear):
    X, y = linear
    scaled = make_pipeline(StandardScaler(), WithDistribution())
    for estimator, rows in (
        (WithDistribution(), X),
        (scaled, StandardScaler().fit_transform(X)),
    ):
        _, std = ForeignRegressor(estimator).fit(X, y).predict(X, return_std=True)
        np.testing.assert_allclose(std, 1 + np.abs(rows[:, 0]), rtol=1e-6)


def test_probabilities_are_one_draw(linear):
    X, y = linear
    labels = np.array(["b", "a", "c"])[np.digitize(y, [-1, 1])]
    model = ForeignClassifier(GaussianNB()).fit(X, labels)
    expected = GaussianNB().fit(X, labels)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    mutual_information = model.predict_uncertainty(X, "mutual_information")
    np.testing.assert_allclose(mutual_information, 0, atol=1e-12)


def test_weights_reach_estimators_that_take_them(linear):
    X, y = linear
    weights = np.random.default_rng(0).integers(0, 4, size=ROWS).astype(float)
    for estimator, path in (
        (LinearRegression(), ""),
        (make_pipeline(StandardScaler(), LinearRegression()), "linearregression__"),
    ):
        model = ForeignRegressor(estimator).fit(X, y, weights)
        used = weights > 0
        params = {f"{path}sample_weight": weights[used]}
        expected = clone(estimator).fit(X[used], y[used], **params)
        np.testing.assert_allclose(model.predict(X), expected.predict(X))
    # Others are fitted to the rows with positive weight.
    model = ForeignRegressor(KNeighborsRegressor()).fit(X, y, weights)
    expected = KNeighborsRegressor().fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(model.predict(X), expected.predict(X))


# ---- stacks


def _restored(model):
    """The model of a file whose types are trusted."""
    data = skbayesnn.dumps(model)
    return skbayesnn.loads(data, trusted=skbayesnn.get_untrusted_types(data=data))


def _stack(pool, **params):
    return BayesianStackingRegressor(
        pool, **{"cv": 3, "max_iter": 5, "random_state": 0} | params
    )


def test_default_pool_as_a_list_is_the_default(linear):
    X, y = linear
    as_list, as_default = (
        _stack(pool, cv=2).fit(X, y) for pool in (skbayesnn.default_pool(), "auto")
    )
    np.testing.assert_array_equal(as_list.predict(X), as_default.predict(X))
    assert as_list.weights_.equals(as_default.weights_)
    alone = _stack([("linear", "auto")], cv=2).fit(X, y)
    assert all(name.startswith("linear(") for name in alone.weights_.index)


def test_table_without_encoded_columns_needs_other_candidates(seed):
    generator = np.random.default_rng(seed)
    X, y = generator.integers(2, size=(40, 3)).astype(float), generator.normal(size=40)
    with pytest.raises(ValueError, match="must have other candidates"):
        _stack([("encoded", "auto"), ("forest", "auto")]).fit(X, y)


def test_good_candidate_of_another_library_has_the_weight(linear):
    """The function is linear, and the networks are hardly trained."""
    X, y = linear
    network = MCDropoutRegressor(**QUICK)
    pool = [("network", network), ("least squares", LinearRegression())]
    model = _stack(pool).fit(X, y)
    assert model.weights_["weight"]["least squares"] > 0.9
    # Computed by hand: residuals of three folds.
    index = model.weights_.index[model.weights_["weight"] > 0].tolist()
    [foreign] = [e for e in model.estimators_ if isinstance(e, ForeignRegressor)]
    residual = np.concatenate(
        [
            y[test] - LinearRegression().fit(X[train], y[train]).predict(X[test])
            for train, test in _folds(y)
        ]
    )
    # All bins have the same variance.
    np.testing.assert_allclose(foreign.noise_variances_, np.mean(residual**2))
    assert "least squares" in index
    for fold in model.fold_estimators_:
        [of_fold] = [e for e in fold if isinstance(e, ForeignRegressor)]
        np.testing.assert_array_equal(
            of_fold.noise_variances_, foreign.noise_variances_
        )
    lower, upper = model.predict_interval(X, 0.9).T
    assert 0.7 < np.mean((lower < y) & (y < upper)) <= 1
    lower, upper = model.predict_interval(X, 0.9, method="cv+").T
    assert 0.7 < np.mean((lower < y) & (y < upper)) <= 1


def _folds(y):
    from skbayesnn._stacking.candidates import StackData
    from skbayesnn._stacking.folds import make_folds

    model = _stack("auto")
    data = StackData(np.zeros((len(y), 1)), y, None)
    return make_folds(3, data, None, is_classification=False, seed=model._seed())


def test_predictions_of_single_rows_equal_predictions_of_all(linear):
    X, y = linear
    pool = [
        ("network", MCDropoutRegressor(**QUICK)),
        ("neighbours", KNeighborsRegressor()),
        ("boosting", HistGradientBoostingRegressor(max_iter=5, random_state=0)),
    ]
    model = _stack(pool).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for i in (0, 7):
        alone = model.predict(X[i : i + 1], return_std=True)
        np.testing.assert_allclose(np.ravel(alone), [mean[i], std[i]], rtol=1e-6)


def test_grid_of_a_candidate_of_another_library(linear):
    pool = [("neighbours", KNeighborsRegressor(), {"n_neighbors": [1, 5]})]
    model = _stack(pool).fit(*linear)
    names = {"neighbours(n_neighbors=1)", "neighbours(n_neighbors=5)"}
    assert set(model.weights_.index) == names


def test_several_targets_have_separate_noise(linear):
    X, y = linear
    generator = np.random.default_rng(0)
    Y = np.column_stack([y, 100 * y + 300 * generator.normal(size=ROWS)])
    model = _stack([("least squares", LinearRegression())]).fit(X, Y)
    _, std = model.predict(X, return_std=True)
    assert std.shape == (ROWS, 2)
    # The noise has standard deviations of .5 and 304; 90 rows have an error of 8 %.
    np.testing.assert_allclose(std.mean(0), [0.5, 304], rtol=0.5)


def _mixed(linear):
    X, y = linear
    level = np.digitize(X[:, 0], [-0.5, 0.5])
    frame = pd.DataFrame({"text": np.array(["u", "v", "w"])[level], "x": X[:, 1]})
    frame.loc[3, "x"] = np.nan
    return frame, y + 2 * level


def _on_frame():
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["text"]), remainder="passthrough"
    )
    return make_pipeline(encoder, HistGradientBoostingRegressor(max_iter=9))


def test_pipelines_get_the_frame_and_others_its_encoded_columns(linear):
    frame, y = _mixed(linear)
    pool = [
        ("linear", "auto"),
        ("on frame", _on_frame()),
        ("least squares", LinearRegression()),
    ]
    model = _stack(pool).fit(frame, y)
    weights = model.weights_["weight"]
    assert len(weights) == 5  # three linear models
    names = {c for c in weights.index if weights[c] > 0}
    assert model.on_frame_.count(True) == ("on frame" in names)
    only = _stack([("on frame", _on_frame())]).fit(frame, y)
    assert only.on_frame_ == [True]
    new = frame.iloc[:9].copy()
    new.loc[5, "text"] = "unseen"
    for fitted in (model, only):
        mean, std = fitted.predict(new, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()
        interval = fitted.predict_interval(frame, 0.9, method="cv+")
        assert interval.shape == (ROWS, 2)
        assert np.isfinite(fitted.predict(frame.iloc[[2]])).all()


def test_frames_with_statistics_of_y_and_a_pipeline(seed):
    """A column with many levels is encoded by its means of y, for each fold."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(40, size=160)
    effect = generator.normal(size=40)
    frame = pd.DataFrame(
        {"text": [f"level {code}" for code in codes], "x": generator.normal(size=160)}
    )
    y = effect[codes] + frame["x"].to_numpy()
    pool = [("linear", "auto"), ("on frame", _on_frame()), ("ols", LinearRegression())]
    model = _stack(pool).fit(frame, y, sample_weight=np.ones(160))
    assert np.isfinite(model.predict(frame)).all()
    assert np.isfinite(model.predict_interval(frame, method="cv+")).all()


def test_pipelines_get_a_frame_of_numbers(linear):
    """By the names of its columns, also if nothing has to be encoded."""
    X, y = linear
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = make_pipeline(
        make_column_transformer((StandardScaler(), ["a", "b"])), LinearRegression()
    )
    model = _stack([("named", named), ("ols", LinearRegression())]).fit(frame, y)
    assert set(model.weights_["weight"].keys()) == {"named", "ols"}
    assert np.isfinite(model.predict(frame[:5])).all()


def test_arrays_with_missing_values_and_a_pipeline(linear):
    """Its columns have other scales than the encoded columns of other candidates."""
    X, y = linear
    X = X.copy()
    X[:20, 1] = np.nan
    imputed = make_pipeline(SimpleImputer(), BayesianRidge())
    for pool in ([("p", imputed)], [("p", imputed), ("ridge", BayesianRidge())]):
        model = _stack(pool).fit(X, y)
        assert np.isfinite(model.predict(X)).all()


def test_predicted_standard_deviations_of_a_pipeline_with_routing(linear):
    X, y = linear
    pipeline = make_pipeline(StandardScaler(), BayesianRidge())
    expected = _stack([("p", pipeline)]).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        actual = _stack([("p", pipeline)]).fit(X, y)
        np.testing.assert_array_equal(actual.predict(X), expected.predict(X))


def test_frozen_estimators_are_refused(linear):
    """They were trained on the rows that are held out."""
    X, y = linear
    for fitted in (LinearRegression().fit(X, y), Untyped().fit(X, y)):
        with pytest.raises(ValueError, match="already fitted"):
            _stack([("frozen", FrozenEstimator(fitted))]).fit(X, y)


def test_estimators_that_predict_before_fit_are_not_fitted(linear):
    """scikit-learn's `check_is_fitted` accepts them before ``fit``."""
    process = GaussianProcessRegressor(RBF() + WhiteKernel(), random_state=0)
    for estimator in (process, make_pipeline(StandardScaler(), process)):
        refuse_fitted(estimator)  # as out-of-fold predictions and DriftMonitor do
        assert _stack([("process", estimator)]).fit(*linear).score(*linear) > 0.5
        with pytest.raises(ValueError, match="already fitted"):
            refuse_fitted(FrozenEstimator(estimator.fit(*linear)))


class Untyped(BaseEstimator):
    """A regressor without scikit-learn's tags."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, X, y):
        """Fit a linear model."""
        self.inner_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        """Return the means."""
        return self.inner_.predict(X) + self.shift


class WithoutBase:
    """The methods that scikit-learn's ``clone`` needs, and no class of it."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def get_params(self, deep=True):
        """Return the parameters."""
        return {"shift": self.shift}

    def set_params(self, **params):
        """Change parameters, as BaseEstimator does."""
        vars(self).update(params)
        return self

    fit, predict = Untyped.fit, Untyped.predict


def test_regressors_without_a_type(linear):
    X, y = linear
    expected = _stack([("typed", LinearRegression())]).fit(X, y).predict(X)
    for regressor in (Untyped(), WithoutBase(), make_pipeline(Untyped())):
        model = _stack([("untyped", regressor)]).fit(X, y)
        np.testing.assert_allclose(model.predict(X), expected)
    with pytest.raises(TypeError, match="regressors only; got StandardScaler"):
        _stack([("scaler", StandardScaler())]).fit(X, y)


def test_ngboost(linear):
    """It has no type, and no attributes by which scikit-learn knows a fitted one."""
    ngboost = pytest.importorskip("ngboost")
    X, y = linear
    boosting = ngboost.NGBRegressor(n_estimators=5, verbose=False)
    first, model = (_stack([("boosting", boosting)]).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), model.predict(X))
    [candidate] = model.estimators_
    assert candidate.predicts_variance
    expected = candidate.estimator_.pred_dist(X).mean()
    np.testing.assert_allclose(model.predict(X), expected)
    again = _restored(model)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


@pytest.mark.parametrize("df", [0.5, 1.5])
def test_predicted_distributions_without_variance(linear, df):
    """Their noise is estimated as if no variance were predicted."""

    class Wide(WithDistribution):
        def pred_dist(self, X):
            half = np.arange(len(X)) % 2 == 0
            means = np.full(len(X), self.mean_)
            return SimpleNamespace(
                mean=lambda: means,
                std=lambda: np.where(half, t(df).std(), 1.0),
            )

    X, y = linear
    model = _stack([("wide", Wide())]).fit(X, y)
    assert model.estimators_[0].noise_factor_ == 0
    _, std = model.predict(X, return_std=True)
    assert 0.3 * y.std() < std.min() <= std.max() < 3 * y.std()


def test_which_estimators_get_the_frame():
    categories = HistGradientBoostingRegressor(categorical_features=[0])
    assert takes_frame(categories)
    assert takes_frame(make_pipeline(LinearRegression()))
    assert not takes_frame(HistGradientBoostingRegressor())
    assert not takes_frame(LinearRegression())


def _named_frame(linear):
    """The increasing column "num", text with missing values, dates and categories."""
    X, y = linear
    frame, text = _mixed(linear)[0], np.resize(["u", "v", None], ROWS)
    frame["num"], frame["cat"] = X[:, 0], pd.Categorical(text)
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS), unit="D")
    frame["when"] = dates.where(np.arange(ROWS) != 7)
    return frame, y


@pytest.mark.parametrize(
    "params",
    [
        {"monotonic_cst": {"num": -1}},
        {"categorical_features": ["text", "cat"], "monotonic_cst": {"num": -1}},
    ],
)
@pytest.mark.parametrize("is_mixed", [True, False])
def test_settings_that_refer_to_columns_by_name(linear, params, is_mixed):
    """y increases with "num": with the wrong sign, predictions ignore it."""
    frame, y = _named_frame(linear)
    if not is_mixed:
        params = {k: v for k, v in params.items() if k == "monotonic_cst"}
        frame = pd.DataFrame(linear[0], columns=["num", "b", "c"])
    boosting = HistGradientBoostingRegressor(max_iter=5, **params)
    model = _stack([("boosting", boosting), ("ols", BayesianRidge())]).fit(frame, y)
    assert "boosting" in model.weights_.index
    model = _stack([("boosting", boosting)]).fit(frame, y)
    changed = frame.assign(num=frame["num"] + 9)
    difference = model.predict(changed) - model.predict(frame)
    np.testing.assert_allclose(difference, 0, atol=1e-9)
    pytest.importorskip("skops")
    again = _restored(model)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_settings_by_position_name_the_way_out(linear):
    frame, y = _named_frame(linear)
    boosting = HistGradientBoostingRegressor(monotonic_cst=[1, 0])
    with pytest.warns(match="put it into a Pipeline"):
        _stack([("boosting", boosting), ("ols", LinearRegression())]).fit(frame, y)


def test_classifiers(linear):
    X, y = linear
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-1.0, 1.0])]
    pool = [
        ("linear", "auto"),
        ("bayes", GaussianNB()),
        ("boosting", HistGradientBoostingClassifier(max_iter=5)),
        ("logistic", LogisticRegression(), {"C": [0.1, 10.0]}),
    ]
    model = BayesianStackingClassifier(pool, cv=3, max_iter=5, random_state=0)
    model.fit(X, labels, sample_weight=np.linspace(0.5, 2, ROWS))
    assert model.score(X, labels) > 0.8
    assert "logistic(C=10.0)" in model.weights_.index
    with pytest.raises(TypeError, match=r"predict_proba.*LinearSVC as 'svm'"):
        model.set_params(estimators=[("svm", LinearSVC())]).fit(X, labels)
    with pytest.raises(TypeError, match="classifiers only; got LinearRegression"):
        model.set_params(estimators=[("ols", LinearRegression())]).fit(X, labels)


def test_failing_candidate_is_dropped(linear):
    class Failing(LinearRegression):
        def fit(self, X, y):
            raise ValueError("never")

    pool = [("failing", Failing()), ("ols", LinearRegression())]
    with pytest.warns(match="failing: ValueError: never"):
        model = _stack(pool).fit(*linear)
    assert model.weights_.index.tolist() == ["ols"]


def test_random_states_are_set_without_changing_the_pool(linear):
    boosting = HistGradientBoostingRegressor(max_iter=3, max_features=0.5)
    pool = [("boosting", boosting), ("piped", make_pipeline(boosting))]
    first, second = (_stack(pool).fit(*linear) for _ in range(2))
    np.testing.assert_array_equal(first.predict(linear[0]), second.predict(linear[0]))
    assert boosting.random_state is None


# ---- files


def test_pickle_and_trusted_files(linear):
    X, y = linear
    model = _stack([("ols", LinearRegression()), ("linear", "auto")]).fit(X, y)
    mean = model.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), mean)
    pytest.importorskip("skops")
    data = skbayesnn.dumps(model)
    types = skbayesnn.get_untrusted_types(data=data)
    assert types == ["sklearn.linear_model._base.LinearRegression"]
    with pytest.raises(ValueError, match="LinearRegression"):
        skbayesnn.loads(data)
    again = skbayesnn.loads(data, trusted=types)
    np.testing.assert_array_equal(again.predict(X), mean)


def test_estimators_that_cannot_be_saved_are_named(linear):
    class Local(WithDistribution):
        pass

    model = _stack([("local", Local())]).fit(*linear)
    with pytest.raises(ValueError, match=r"Local.*joblib"):
        skbayesnn.dumps(model)


def test_onnx_names_the_candidate(linear):
    pytest.importorskip("onnx")
    X, y = linear
    model = _stack([("ols", LinearRegression())]).fit(X, y)
    with pytest.raises(TypeError, match="got LinearRegression in a stack"):
        skbayesnn.to_onnx(model)


# ---- CatBoost


def test_catboost(linear):
    catboost = pytest.importorskip("catboost")
    options = {"iterations": 20, "verbose": False, "allow_writing_files": False}
    frame, y = _named_frame(linear)
    pool = [
        ("linear", "auto"),
        ("boosting", catboost.CatBoostRegressor(**options)),
        ("frame", catboost.CatBoostRegressor(cat_features=["text", "cat"], **options)),
        ("signs", catboost.CatBoostRegressor(monotone_constraints="num:1", **options)),
        (
            "uncertainty",
            catboost.CatBoostRegressor(loss_function="RMSEWithUncertainty", **options),
        ),
    ]
    # Its variance is no mean.
    with pytest.warns(ConvergenceWarning, match="must return one mean per row.*got 2"):
        model = _stack(pool).fit(frame, y)
    assert "uncertainty" not in model.weights_.index
    assert {"frame", "signs"} < set(model.weights_.index)
    assert np.isfinite(model.weights_["log_density"]).all()
    assert np.isfinite(model.predict(frame)).all()
    alone = _stack(pool[1:2]).fit(frame, y)
    for again in (_restored(alone), pickle.loads(pickle.dumps(alone))):
        np.testing.assert_array_equal(again.predict(frame), alone.predict(frame))
    labels = np.where(y > np.median(y), "high", "low")
    classifier = BayesianStackingClassifier(
        [("boosting", catboost.CatBoostClassifier(**options))], cv=3, random_state=0
    )
    assert classifier.fit(frame, labels).score(frame, labels) > 0.7


# ---- quantiles

# Fewer than the default, since most libraries have a fit per level.
LEVELS = 0.05, 0.5, 0.95


@pytest.fixture
def pythons_generator():
    """Restores the generator, which ``quantile_forest`` seeds."""
    state = random.getstate()
    yield
    random.setstate(state)


# Class with its module, if this may not be installed, and parameters.
TREES = {"n_estimators": 20}
QUANTILE_REGRESSORS = {
    "sklearn.linear_model.QuantileRegressor": {"alpha": 0.0},
    "sklearn.ensemble.HistGradientBoostingRegressor": {
        **{"loss": "quantile", "quantile": 0.2, "random_state": 0}
    },
    "sklearn.ensemble.GradientBoostingRegressor": {
        **TREES | {"loss": "quantile", "random_state": 0}
    },
    "lightgbm.LGBMRegressor": {
        **TREES | {"objective": "quantile", "min_child_samples": 5},
        **{"n_jobs": 1, "verbose": -1},
    },
    "xgboost.XGBRegressor": TREES | {"objective": "reg:quantileerror"},
    "quantile_forest.RandomForestQuantileRegressor": TREES | {"random_state": 0},
    "catboost.CatBoostRegressor": {
        **{"loss_function": "Quantile", "iterations": 40, "verbose": False},
        **{"allow_writing_files": False},
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", QUANTILE_REGRESSORS)
@pytest.mark.usefixtures("pythons_generator")
def test_quantile_regressors(linear, name, monkeypatch):
    monkeypatch.setattr(foreign, "LEVELS", LEVELS)
    library, _, call = name.rpartition(".")
    kind = getattr(pytest.importorskip(library), call)
    estimator = kind(**QUANTILE_REGRESSORS[name])
    X, y = linear
    scale = StandardScaler(with_mean=False, with_std=False)
    model = ForeignQuantileRegressor(estimator).fit(X, y)
    np.testing.assert_array_equal(model.levels_, LEVELS)
    quantiles = model.quantiles(X)
    assert quantiles.shape == (ROWS, len(LEVELS))
    in_pipeline = ForeignQuantileRegressor(make_pipeline(scale, estimator)).fit(X, y)
    np.testing.assert_allclose(in_pipeline.quantiles(X), quantiles, rtol=1e-6)
    ordered = np.sort(quantiles, axis=1)
    # Equal quantiles are separated, at most by this.
    atol = 1e-3 * y.std()
    for i, level in enumerate(LEVELS):
        actual = model.predict_quantile(X, level)
        np.testing.assert_allclose(actual, ordered[:, i], rtol=1e-5, atol=atol)
    density = model.log_predictive_density(X, y)
    assert np.isfinite(density).all()
    assert density.max() <= np.log(1e3 / y.std()) + 1e-6
    assert not model.predict_uncertainty(X, "epistemic").any()
    stack = _stack([("quantiles", estimator)]).fit(X, y)
    assert np.isfinite(skbayesnn.crps(stack, X, y)).all()
    # Quantiles of rows that were trained on are too narrow; those of new rows cover.
    assert 0.7 < stack.summary_.others["90 % intervals cover"] <= 1
    again = pickle.loads(pickle.dumps(stack))
    np.testing.assert_array_equal(again.predict(X), stack.predict(X))


def test_files_with_quantile_regressors(linear, monkeypatch):
    monkeypatch.setattr(foreign, "LEVELS", LEVELS)
    X, y = linear
    model = _stack([("quantiles", QuantileRegressor(alpha=0.0))]).fit(X, y)
    again = _restored(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_levels_of_the_estimator_are_kept(linear):
    X, y = linear
    xgboost = pytest.importorskip("xgboost")
    estimator = xgboost.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=[0.9, 0.1, 0.5], n_estimators=5
    )
    model = ForeignQuantileRegressor(estimator).fit(X, y)
    np.testing.assert_array_equal(model.levels_, [0.1, 0.5, 0.9])
    assert model.quantiles(X).shape == (ROWS, 3)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        HistGradientBoostingRegressor(),
        BayesianRidge(),
        make_pipeline(StandardScaler(), KNeighborsRegressor()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_other_regressors_predict_no_quantiles(estimator):
    assert quantile_fits(estimator) is None


def test_quantiles_of_several_targets_are_refused(linear):
    X, y = linear
    pool = [("quantiles", QuantileRegressor()), ("line", LinearRegression())]
    with pytest.warns(ConvergenceWarning, match="one target; got 2 targets"):
        model = _stack(pool).fit(X, np.column_stack([y, -y]))
    assert list(model.weights_["weight"].index) == ["line"]


# ---- several kinds of noise


def test_kinds_of_noise_are_mixed(linear, monkeypatch):
    monkeypatch.setattr(foreign, "LEVELS", LEVELS)
    X, y = linear
    pool = [
        (name, MCDropoutRegressor(**QUICK | {"likelihood": name}))
        for name in ("gaussian", "heteroscedastic", "student_t", "mixture")
    ]
    pool += [("line", LinearRegression()), ("quantiles", QuantileRegressor(alpha=0.0))]
    for weights in ("log_density", "crps"):
        model = _stack(pool, weights=weights, n_refits=2).fit(X, y)
        table = model.weights_
        assert np.isfinite(table["log_density"]).all()
        # The mixture of the refits, before the correction of its spread.
        densities = [
            skbayesnn.log_predictive_density(candidate, X, y)
            for candidate in model.estimators_
        ]
        share = np.log(model.n_draws_ / model.n_draws_.sum())
        expected = logsumexp(np.array(densities) + share[:, None], axis=0)
        model.spread_factor_ = np.ones(1)
        actual = model.log_predictive_density(X, y)
        # A candidate with more draws than it has in the mixture loses some of them.
        np.testing.assert_allclose(actual, expected, atol=0.15)
        level = model.predict_quantile(X, 0.75)
        np.testing.assert_allclose(
            skbayesnn.predictive_cdf(model, X, level), 0.75, atol=1e-5
        )
        interval = model.predict_interval(X, 0.9, method="cv+")
        assert (interval[:, 0] < interval[:, 1]).all()


# ---- groups


class NeedsGroups(RegressorMixin, BaseEstimator):
    """A regressor whose ``fit`` takes groups, and stores them."""

    def fit(self, X, y, groups=None):
        self.groups_ = groups
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_candidates_get_the_groups_that_their_fit_takes(linear):
    """Forests and linear regression have no such parameter."""
    X, y = linear
    groups = np.arange(ROWS) // 3
    model = BayesianStackingRegressor(
        [("own", NeedsGroups()), ("line", LinearRegression())], cv=3, random_state=0
    )
    for weights in (None, np.where(groups == 4, 0.0, 1.0)):
        model.fit(X, y, sample_weight=weights, groups=groups)
        own = ForeignRegressor(NeedsGroups()).fit(X, y, weights, groups)
        used = groups if weights is None else groups[groups != 4]
        np.testing.assert_array_equal(own.estimator_.groups_, used)
        assert model.weights_["weight"].sum() == pytest.approx(1)
