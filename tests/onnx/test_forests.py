"""Forests and gradient boosting in a graph."""

import numpy as np
import pytest

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._stacking.boosting import BoostingClassifier
from skbayesnn._stacking.forest import ForestClassifier, ForestRegressor
from tests.helpers.onnx_running import (
    assert_close,
    assert_same_classification,
    expected_regression,
    outputs,
)


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


@pytest.mark.parametrize("n_draws", [4, 9])
def test_trees_are_draws_of_classes(data, small, n_draws):
    """Also at thresholds; fewer draws are about the mean of all trees."""
    pool = [
        ("forest", ForestClassifier(n_trees=9), {"kind": ["extra_trees", "bagging"]}),
        ("network", MCDropoutClassifier(**small)),
    ]
    model = BayesianStackingClassifier(pool, cv=2, random_state=0)
    model.fit(data.X, data.labels)
    assert any(isinstance(e, ForestClassifier) for e in model.estimators_)
    assert_same_classification(model, data.X_new)
    alone = ForestClassifier("bagging", 9, n_draws).fit(data.X, data.labels)
    points = data.X.copy()
    points[:, 1] = np.resize(alone.threshold_[alone.feature_ == 1], len(points))
    assert_same_classification(alone, points)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_boosting_is_a_candidate(data, small, n_classes):
    labels = np.minimum(data.labels, n_classes - 1)
    pool = [
        ("boosting", BoostingClassifier(max_iter=20)),
        ("network", MCDropoutClassifier(**small)),
    ]
    model = BayesianStackingClassifier(pool, cv=2, random_state=0)
    model.fit(data.X, labels)
    assert_same_classification(model, data.X_new)
    alone = BoostingClassifier(max_iter=20).fit(data.X, labels)
    thresholds = np.resize(alone.threshold_[alone.feature_ == 1], 41)
    points = data.X.copy()
    # Thresholds in float64 are between values in float32.
    points[:, 1] = thresholds
    assert_same_classification(alone, points)
