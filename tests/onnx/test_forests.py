"""Forests in a graph."""

import numpy as np
import pytest

import skbayesnn
from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._stacking.forest import ForestRegressor
from tests.helpers.onnx_running import assert_close, expected_regression, outputs


@pytest.mark.parametrize("target", ["y", "Y"])
def test_trees_are_components(data, small, target):
    """All widths together with a network; at thresholds, too."""
    y = getattr(data, target)
    pool = [
        ("forest", ForestRegressor(n_trees=9), {"width": [0.1, 0.3, None]}),
        ("network", MCDropoutRegressor(**small)),
    ]
    model = BayesianStackingRegressor(pool, cv=2, random_state=0).fit(data.X, y)
    kept = [e for e in model.estimators_ if isinstance(e, ForestRegressor)]
    assert kept
    thresholds = kept[0].threshold_[kept[0].feature_ == 1]
    X = np.concatenate([data.X_new, np.resize(data.X, (len(thresholds), 4))])
    X[len(data.X_new) :, 1] = thresholds
    actual = outputs(skbayesnn.to_onnx(model), X)
    # The graph has float32 values of leaves, and float64 moments.
    assert_close(actual, expected_regression(model, X), y)


@pytest.mark.parametrize("width", [0.2, None])
def test_forest_alone(data, width):
    model = ForestRegressor(width, n_trees=5).fit(data.X, data.y)
    actual = outputs(skbayesnn.to_onnx(model), data.X_new)
    assert_close(actual, expected_regression(model, data.X_new), data.y)
