"""Scorers, refits and failures of batched searches."""

import warnings

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from tests.helpers.comparison import (
    classifier,
    regressor,
)
from tests.helpers.searches import GRID


@pytest.mark.parametrize("reason", ["parameter", "loss", "rows"])
def test_warning_of_failures_does_not_grow_with_the_members(data, reason):
    bad = {"parameter": {"tau": [-1.0]}, "loss": {"learning_rate_init": [1e200]}}
    grid = [{"tau": [0.5]}, bad.get(reason, {}) | {"dropout": [0.1, 0.2, 0.3, 0.4]}]
    labels = np.where(np.arange(47) < 30, "low", data.labels)
    folds = [np.arange(30), np.arange(30, 47)], [np.arange(17, 47), np.arange(17)]
    lengths = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), grid, cv=2)
        if reason == "rows":
            search.set_params(estimator=classifier(), cv=folds)
        with pytest.warns(FitFailedWarning) as caught, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "One or more of the test scores")
            search.fit(data.X, labels if reason == "rows" else data.y)
        (warning,) = (w for w in caught if issubclass(w.category, FitFailedWarning))
        lengths.append(len(str(warning.message)))
    # One traceback may be a few lines longer than the other.
    assert lengths[1] < 3 * lengths[0]


@pytest.mark.parametrize(
    "search_class", [BatchedGridSearchCV, BatchedRandomizedSearchCV]
)
def test_other_estimators_are_refused(data, search_class):
    inside = TransformedTargetRegressor(regressor(), transformer=StandardScaler())
    for estimator in (Ridge(), inside, make_pipeline(StandardScaler(), Ridge())):
        name = "Transformed" if estimator is inside else "Ridge"
        with pytest.raises(
            TypeError, match=rf"got {name}.*model_selection.GridSearchCV"
        ):
            search_class(estimator, {}).fit(data.X, data.y)


@pytest.mark.parametrize("budget", [0, -1.0, np.nan])
def test_memory_budget_must_be_positive(data, budget):
    search = BatchedGridSearchCV(regressor(), GRID, memory_budget=budget)
    with pytest.raises(ValueError, match=r"`memory_budget` must be .* > 0; got"):
        search.fit(data.X, data.y)
