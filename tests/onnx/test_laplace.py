"""Networks by evidence in a graph."""

import numpy as np
import pytest

from skbayesnn import (
    BayesianStackingRegressor,
    LaplaceClassifier,
    LaplaceRegressor,
    to_onnx,
)
from tests.helpers.onnx_running import (
    assert_same_classification,
    assert_same_regression,
)

SHORT = {"n_draws": 6, "n_estimators": 2, "max_iter": 20}


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
@pytest.mark.parametrize("target", ["y", "Y"])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_regression(data, target, likelihood, activation, seed):
    y = getattr(data, target)
    model = LaplaceRegressor(
        (4, 3), activation, likelihood=likelihood, **SHORT, random_state=seed
    )
    assert_same_regression(model.fit(data.X, y), data.X_new, y)


@pytest.mark.parametrize("target", ["y", "Y"])
@pytest.mark.parametrize("posterior", ["full", "last_layer"])
def test_counts_have_moments_only(data, target, posterior, seed):
    y = np.floor(3 + np.tanh(getattr(data, target) - getattr(data, target).mean(0)))
    model = LaplaceRegressor(
        (4, 3), likelihood="poisson", posterior=posterior, **SHORT, random_state=seed
    )
    assert_same_regression(model.fit(data.X, y), data.X_new, y, q=())
    with pytest.raises(TypeError, match=r"`q` must be \(\).*poisson"):
        to_onnx(model)


@pytest.mark.parametrize("posterior", ["full", "last_layer"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(data, n_classes, posterior, seed):
    model = LaplaceClassifier((4,), posterior=posterior, **SHORT, random_state=seed)
    model.fit(data.X, data.labels % n_classes)
    assert_same_classification(model, data.X_new)


def test_stack(data, seed):
    """With another number of draws than the model has."""
    model = LaplaceRegressor((3,), **SHORT, random_state=seed)
    stack = BayesianStackingRegressor(
        [("one", model, {"prior": ["ard", "layer"]})], random_state=seed
    )
    assert_same_regression(stack.fit(data.X, data.y), data.X_new, data.y)
