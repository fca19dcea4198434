"""The methods of all estimators with a predictive distribution."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import ClassificationPredictiveMixin, PredictiveMixin
from tests.helpers.linear_gaussian import LinearGaussian

SMALL = {"hidden_layer_sizes": (7,), "dropout": 0.2, "max_iter": 2, "random_state": 0}
METHODS = "predict_uncertainty", "log_predictive_density", "sample_f", "sample_y"


@pytest.fixture
def table(seed):
    """X (50, 3), two targets, and labels of three classes."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(50, 3))
    labels = np.array(["c", "a", "b"])[random.permutation(50) % 3]
    return X, 5 + 3 * X[:, :2] + random.normal(size=(50, 2)), labels


class Shares(ClassificationPredictiveMixin, ClassifierMixin, BaseEstimator):
    """The same two draws in all rows."""

    classes_ = np.array(["a", "b", "c"])
    draws = np.array([[0.5, 0.25, 0.25], [0.0, 0.75, 0.25]])

    def _open_predictive(self, X):
        def predictive(rows):
            n_rows = rows.stop - rows.start
            return ClassPredictive(
                np.repeat(self.draws[:, None], n_rows, axis=1), self.classes_
            )

        return PredictiveBlocks(len(X), predictive, block=4)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "kind",
    [
        MCDropoutRegressor,
        MCDropoutClassifier,
        BayesianStackingRegressor,
        BayesianStackingClassifier,
        CalibratedUncertaintyRegressor,
    ],
)
def test_a_method_is_defined_once(kind, name):
    assert getattr(kind, name) is getattr(PredictiveMixin, name)


def test_networks_by_draws_equal_all_draws_at_once(table):
    """Up to the order of the sums over the draws, in float64."""
    X, Y, labels = table
    for kind, y in ((MCDropoutRegressor, Y), (MCDropoutClassifier, labels)):
        model = kind(n_draws=11, n_estimators=2, **SMALL).fit(X, y)
        whole = model._open_predictive(X).whole()
        # The variation ratio samples labels by other random numbers.
        kinds = [name for name in whole.kinds if name != "variation_ratio"]
        expected = whole.uncertainty(kinds)
        for name, values in model.predict_uncertainty(X, kinds).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-9, atol=1e-12)
        density = model.log_predictive_density(X, y)
        np.testing.assert_allclose(density, whole.log_density(y), rtol=1e-9, atol=1e-9)
        # Every sample is one of the 22 draws.
        functions = whole.sample_f(np.arange(22))
        for n_samples in (1, 30):  # few draws are computed one by one
            for sample in np.moveaxis(model.sample_f(X, n_samples), -1, 0):
                distance = np.abs(functions - sample[..., None])
                assert distance.reshape(-1, 22).max(0).min() < 1e-12


def test_classes_of_the_mean_probability():
    X, model = np.zeros((9, 1)), Shares()
    # The mean over both draws is (1/4, 1/2, 1/4).
    np.testing.assert_array_equal(model.predict(X), ["b"] * 9)
    np.testing.assert_allclose(model.predict_proba(X), [[0.25, 0.5, 0.25]] * 9)
    np.testing.assert_allclose(
        model.predict_log_proba(X), np.log([[0.25, 0.5, 0.25]] * 9)
    )


def test_labels_may_be_a_column():
    X, model = np.zeros((9, 1)), Shares()
    y = np.array(list("abcabcabc"))
    density = model.log_predictive_density(X, y[:, None])
    np.testing.assert_array_equal(density, model.log_predictive_density(X, y))
    np.testing.assert_allclose(density[:3], np.log([0.25, 0.5, 0.25]))
    with pytest.raises(ValueError, match="1d array"):
        model.log_predictive_density(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize("name", ["sample_f", "sample_y"])
def test_n_samples_is_checked_for_every_model(table, name):
    X, Y, _ = table
    model = LinearGaussian().fit(X, Y)
    with pytest.raises(ValueError, match="`n_samples` must be finite and >= 1; got 0"):
        getattr(model, name)(X, 0)
    with pytest.raises(TypeError, match="`n_samples` must be an integer"):
        getattr(skbayesnn, name)(model, X, 1.5)
