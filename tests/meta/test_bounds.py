"""CV+ and conformal intervals through pipelines, searches and target transforms."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skbayesnn import (
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutRegressor,
    predict_interval,
)
from skbayesnn._meta.bounds import bounds
from tests.helpers.seed import SEED

ROWS, NEW = 43, 7
SMALL = {
    "hidden_layer_sizes": (4,),
    "max_iter": 10,
    "n_draws": 5,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}


def stack(**params):
    pool = [("network", MCDropoutRegressor(**SMALL))]
    return BayesianStackingRegressor(
        pool, cv=3, n_refits=1, random_state=SEED, **params
    )


def fitted(model, *rows):
    with warnings.catch_warnings():
        # With so few epochs the networks explain little.
        warnings.simplefilter("ignore")
        return model.fit(*rows)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 5])
    X = random.standard_normal((ROWS, 3))
    y = X[:, 0] + 0.3 * random.standard_normal(ROWS)
    return SimpleNamespace(
        X=X, y=y, Y=np.stack([y, -2 * y], 1), X_new=random.standard_normal((NEW, 3))
    )


@pytest.fixture(scope="module")
def stack_and_intervals(data):
    """A stack, and its CV+ intervals for two coverages."""
    model = fitted(stack(), data.X, data.y)
    return model, model.predict_interval(data.X_new, [0.5, 0.8], method="cv+")


def test_cv_plus_through_estimators_that_pass_x(data, stack_and_intervals):
    model, expected = stack_and_intervals
    frozen = FrozenEstimator(model)
    for outer in (model, frozen, make_pipeline(FunctionTransformer(), frozen)):
        actual = predict_interval(outer, data.X_new, [0.5, 0.8], method="cv+")
        np.testing.assert_array_equal(actual, expected)
        interval = predict_interval(outer, data.X_new, 0.8, "equal_tailed", "cv+")
        np.testing.assert_array_equal(interval, expected[:, 1])
    pipeline = make_pipeline(StandardScaler(), stack())
    search = fitted(GridSearchCV(pipeline, {}, cv=2), data.X, data.y)
    scaler, inner = search.best_estimator_
    np.testing.assert_array_equal(
        predict_interval(search, data.X_new, method="cv+"),
        inner.predict_interval(scaler.transform(data.X_new), method="cv+"),
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_cv_plus_through_a_target_transform(data, sign):
    """The bounds are transformed back; the lower bound stays first."""
    model = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), stack()),
        func=lambda y: sign * np.log(y),
        inverse_func=lambda z: np.exp(sign * z),
    )
    fitted(model, data.X, np.exp(data.y))
    scaler, inner = model.regressor_
    log_interval = inner.predict_interval(
        scaler.transform(data.X_new), [0.5, 0.8], method="cv+"
    )
    actual = predict_interval(model, data.X_new, [0.5, 0.8], method="cv+")
    np.testing.assert_allclose(
        actual, np.exp(sign * log_interval)[..., ::sign], rtol=1e-12
    )
    assert (actual[..., 0] < actual[..., 1]).all()


def test_cv_plus_of_several_targets_through_a_transform(data):
    model = TransformedTargetRegressor(stack(), transformer=StandardScaler())
    fitted(model, data.X, data.Y)
    inner = model.regressor_.predict_interval(data.X_new, 0.8, method="cv+")
    actual = predict_interval(model, data.X_new, 0.8, method="cv+")
    assert actual.shape == (NEW, 2, 2)
    scale, mean = model.transformer_.scale_, model.transformer_.mean_
    expected = inner * scale[:, None] + mean[:, None]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


class Fixed(RegressorMixin, BaseEstimator):
    """An estimator with given intervals."""

    def __init__(self, interval):
        self.interval = interval

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        return np.asarray(self.interval).mean(-1)[: len(X)]

    def predict_interval(self, X, coverage, kind, method):
        return np.asarray(self.interval)[: len(X), None]


def test_bounds_outside_of_the_domain_of_a_transform(data):
    """The root has no inverse below 0: there y is the limit, 0."""
    inner = Fixed([[-1.0, 2.0], [1.0, 3.0], [-np.inf, np.inf]])
    model = TransformedTargetRegressor(
        inner, func=np.sqrt, inverse_func=lambda z: np.where(z < 0, np.nan, z) ** 2
    ).fit(data.X, data.y**2)
    actual = bounds(model, data.X[:3], [0.9], "equal_tailed", "cv+")
    expected = [[[0, 4]], [[1, 9]], [[-np.inf, np.inf]]]
    np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_transform_that_is_not_monotone(data):
    """The square falls and rises within the first of the two intervals."""
    inner = Fixed([[-1.0, 2.0], [1.0, 3.0]])
    model = TransformedTargetRegressor(
        inner, func=np.sqrt, inverse_func=np.square, check_inverse=False
    ).fit(data.X, data.y**2)
    with pytest.raises(ValueError, match="rises and falls in the intervals of 1 of 2"):
        bounds(model, data.X[:2], [0.9], "equal_tailed", "cv+")
    model.regressor_.interval = [[0.0, 2.0], [1.0, 3.0]]
    actual = bounds(model, data.X[:2], [0.9], "equal_tailed", "cv+")
    np.testing.assert_allclose(actual, [[[0, 4]], [[1, 9]]])


def test_conformal_intervals(data):
    """They have no distribution, but pass through a target transform."""
    conformal = ConformalRegressor(MCDropoutRegressor(**SMALL), method="cv+", cv=3)
    model = TransformedTargetRegressor(conformal, func=np.log, inverse_func=np.exp)
    fitted(model, data.X, np.exp(data.y))
    actual = predict_interval(model, data.X_new, 0.8)
    expected = np.exp(model.regressor_.predict_interval(data.X_new, 0.8))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    multi_output = fitted(MultiOutputRegressor(conformal), data.X, data.Y)
    actual = predict_interval(multi_output, data.X_new, [0.5, 0.8])
    for j, member in enumerate(multi_output.estimators_):
        expected = member.predict_interval(data.X_new, [0.5, 0.8])
        np.testing.assert_array_equal(actual[:, j], expected)


def test_too_few_rows_give_infinite_bounds(data):
    conformal = ConformalRegressor(MCDropoutRegressor(**SMALL), method="cv+", cv=3)
    model = TransformedTargetRegressor(conformal, func=np.log, inverse_func=np.exp)
    fitted(model, data.X, np.exp(data.y))
    with pytest.warns(UserWarning, match="needs at least 99 calib"):
        interval = predict_interval(model, data.X_new, 0.99)
    np.testing.assert_array_equal(interval, [[-np.inf, np.inf]] * NEW)


def test_estimators_without_cv_plus_are_refused(data, stack_and_intervals):
    """The message names the estimator and the way out."""
    network = MCDropoutRegressor(**SMALL)
    for model, name in (
        (network, "MCDropoutRegressor"),
        (CalibratedUncertaintyRegressor(network, cv=2), "CalibratedUncertaintyReg"),
        (
            BaggingRegressor(network, n_estimators=2, random_state=SEED),
            "BaggingRegressor",
        ),
        (make_pipeline(Ridge()), "Ridge"),
    ):
        fitted(model, data.X, data.y)
        with pytest.raises(TypeError, match=rf"got {name}.*ConformalRegressor\("):
            predict_interval(model, data.X_new, method="cv+")
    with pytest.raises(ValueError, match="`method` must be one of 'mixture', 'cv\\+'"):
        predict_interval(stack_and_intervals[0], data.X_new, method="jackknife")
    with pytest.raises(ValueError, match="`kind` must be 'equal_tailed' with"):
        predict_interval(
            stack_and_intervals[0], data.X_new, kind="highest_density", method="cv+"
        )
