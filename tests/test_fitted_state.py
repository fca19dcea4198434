"""Predictions during a fit in another thread use the fit before or the fit after."""

import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn.estimators import _base, _fitted
from skbayesnn.inspection import DriftMonitor
from skbayesnn.model_selection import BatchedGridSearchCV

ROWS, NEW = 24, 5
SMALL = {"hidden_layer_sizes": (4,), "max_iter": 2, "n_draws": 3, "random_state": 0}
REGRESSOR, CLASSIFIER = MCDropoutRegressor(**SMALL), MCDropoutClassifier(**SMALL)
POOL = [("network", REGRESSOR)]
CASES = {
    "regressor": (REGRESSOR, "predict_interval"),
    "classifier": (CLASSIFIER, "predict"),
    "search": (BatchedGridSearchCV(REGRESSOR, {"tau": [1.0, 3.0]}), "predict"),
    "stack": (BayesianStackingRegressor(POOL, cv=2, random_state=0), "predict"),
    "stack, CV+": (
        BayesianStackingRegressor(POOL, cv=2, random_state=0),
        lambda model, X: model.predict_interval(X, 0.5, method="cv+"),
    ),
    "stack of classes": (
        BayesianStackingClassifier([("network", CLASSIFIER)], cv=2, random_state=0),
        "predict",
    ),
    "calibrated": (CalibratedUncertaintyRegressor(REGRESSOR, cv=2), "predict_interval"),
    "conformal": (
        ConformalRegressor(REGRESSOR, method="cv+", cv=2),
        "predict_interval",
    ),
    "label sets": (
        ConformalClassifier(CLASSIFIER, random_state=0),
        lambda model, X: model.predict_set(X, np.linspace(0.1, 0.8, 8)),
    ),
    "abstainer": (Abstainer(REGRESSOR, threshold=1.0), "predict"),
    "drift": (DriftMonitor(REGRESSOR, cv=2, false_alarm_rate=0.5), "p_value"),
}


@pytest.fixture
def tables(seed):
    """Two tables with different columns and labels, and new rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(2, ROWS, 3))
    labels = np.array([["a", "b"], ["c", "d"]])
    return X, X[..., 0] * [[1.0], [-100.0]], labels, random.normal(size=(NEW, 3))


def targets_of(model, y, labels):
    is_label = "Classif" in type(model).__name__
    return labels[(y > 0).astype(int)] if is_label else y


def predicted(model, how, X):
    return np.asarray(getattr(model, how)(X) if isinstance(how, str) else how(model, X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_prediction_uses_one_fit(monkeypatch, case, tables):
    """A fit between the steps of a prediction does not change the prediction."""
    model, how = clone(CASES[case][0]), CASES[case][1]
    X, y, labels, new = tables
    first, second = (targets_of(model, y[i], labels[i]) for i in range(2))
    model.fit(X[0], first)
    expected = predicted(model, how, new)
    plain, under_way = _fitted.open_posterior, []

    def with_a_fit_before(*args, **kwargs):
        if not under_way:
            under_way.append(True)
            model.fit(X[1], second)
        return plain(*args, **kwargs)

    monkeypatch.setattr(_fitted, "open_posterior", with_a_fit_before)
    actual = predicted(model, how, new)
    assert under_way
    np.testing.assert_array_equal(actual, expected)
    changed = predicted(model, how, new)
    assert changed.dtype != expected.dtype or not np.array_equal(changed, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["fit", "partial_fit", "warm_start"])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_fit_takes_effect_when_it_ends(monkeypatch, kind, how, tables):
    """Predictions and pickles during a fit use the fit before."""
    model, ask = kind(**SMALL), "sample_f"
    X, y, labels, new = tables
    target = targets_of(model, y[0], labels[0])
    model.fit(X[0], target)
    expected, seen = predicted(model, ask, new), []
    plain = _base.BayesianNetwork._store_fitted

    def store_and_predict(twin, *args, **kwargs):
        plain(twin, *args, **kwargs)
        seen.append(predicted(model, ask, new))
        seen.append(predicted(pickle.loads(pickle.dumps(model)), ask, new))

    monkeypatch.setattr(_base.BayesianNetwork, "_store_fitted", store_and_predict)
    if how == "warm_start":
        model.set_params(warm_start=True)
    (model.partial_fit if how == "partial_fit" else model.fit)(X[1], target)
    model.set_params(warm_start=False)
    for values in seen:
        np.testing.assert_array_equal(values, expected)
    assert len(seen) == 2 and not np.array_equal(predicted(model, ask, new), expected)


@pytest.mark.filterwarnings("ignore")
def test_threads_predict_with_one_of_two_fits(tables):
    model = MCDropoutRegressor(**SMALL)
    X, y, _, new = tables
    predictions_of_fits = [
        model.fit(X[i], y[i]).predict_interval(new) for i in range(2)
    ]
    done, results = threading.Event(), []

    def predict():
        while not done.is_set():
            results.append(model.predict_interval(new))
            again = pickle.loads(pickle.dumps(model))
            results.append(again.predict_interval(new))

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(6):
        model.fit(X[i % 2], y[i % 2])
    done.set()
    for thread in threads:
        thread.join()
    assert results
    assert all(
        any(np.array_equal(interval, fit) for fit in predictions_of_fits)
        for interval in results
    )


def test_fitted_arrays_are_read_only_after_a_prediction(tables):
    """Arrays that a user assigned are read-only too."""
    X, y, _, new = tables
    model = MCDropoutRegressor(**SMALL).fit(X[0], y[0])
    model.parameters_["layers/0/mean"] = 2 * model.parameters_["layers/0/mean"]
    changed = model.predict(new)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), changed)
    for fitted in (model, again):
        for array in (*fitted.parameters_.values(), fitted.seeds_):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_after_a_fit_use_the_trained_posterior(tables, dtype, monkeypatch):
    """The fitted attributes are read only if they are new or were replaced."""
    X, y, _, new = tables
    X, new = X.astype(dtype), new.astype(dtype)
    with monkeypatch.context() as patch:
        patch.delattr(_fitted, "restore_posterior")
        model = MCDropoutRegressor(**SMALL).fit(X[0], y[0])
        predictions = model.predict(new)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(new), predictions)


def test_replaced_attributes_are_used_by_the_first_prediction(tables):
    X, y, _, new = tables
    model = MCDropoutRegressor(**SMALL).partial_fit(X[0], y[0])
    expected = model.seeds_ + 1
    model.seeds_ = expected
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(new), loaded.predict(new))
    np.testing.assert_array_equal(loaded.seeds_, expected)
