"""Fits with a time limit, on a clock that moves only while a network is trained."""

import numpy as np
import pytest
from sklearn.base import clone

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._stacking import base
from skbayesnn.estimators import _progress
from skbayesnn.model_selection import BatchedGridSearchCV

POOL = [
    ("linear", MCDropoutRegressor((), dropout=0.0)),
    ("network", MCDropoutRegressor((4,)), {"dropout": [0.05, 0.1, 0.2]}),
]
SETTINGS = {"max_iter": 3, "early_stopping": False, "random_state": 0}
# Seconds of each fit of one network, on the clock below.
SECONDS = 2.0


class Clock:
    """Time passes only while a network is trained."""

    def __init__(self):
        self.now, self.trained = 0.0, []

    def perf_counter(self):
        return self.now

    def timed(self, function):
        """A training of candidates, and the seconds that it takes."""

        def training(candidates, settings, *arguments):
            results = list(function(candidates, settings, *arguments))
            for name, fold in {key for r in results for key in r.outcomes}:
                self.trained.append((name, fold))
                starts = settings[name]["n_estimators"] if fold < 0 else 1
                self.now += SECONDS * starts
            return iter(results)

        return training


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    for name in ("predict_held_out", "refit_to_all_rows"):
        monkeypatch.setattr(base, name, clock.timed(getattr(base, name)))
    return clock


def stack(time_limit=None):
    pool = [(n, clone(e).set_params(**SETTINGS), *grid) for n, e, *grid in POOL]
    return BayesianStackingRegressor(pool, time_limit=time_limit, random_state=0)


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, 3))
    return X, X[:, 0] + random.normal(size=60) / 3


def test_one_candidate_is_always_fitted(table, clock):
    """Each takes longer than the limit."""
    model = stack(1.0).fit(*table)
    weights = model.weights_["weight"]
    assert len(model.estimators_) == 1
    assert dict(weights) == {"linear": 1}
    assert model.predict(table[0]).shape == (60,)


@pytest.mark.parametrize("limit", [25.0, 35.0, 80.0])
def test_the_limit_is_kept(table, clock, limit):
    """The limits suffice for one candidate, two, and all."""
    model = stack(limit).fit(*table)
    assert clock.now <= limit
    assert len(model.weights_["weight"]) == {25.0: 1, 35.0: 2, 80.0: 4}[limit]


def test_a_later_fit_continues(table, clock):
    """It trains what is missing, and equals a fit without a limit."""
    model = stack(35.0).fit(*table)
    first = {(name, fold) for name, fold in clock.trained if fold >= 0}
    clock.trained.clear()
    model.set_params(time_limit=None).fit(*table)
    second = {(name, fold) for name, fold in clock.trained if fold >= 0}
    assert first and second and not first & second
    assert len(first | second) == 4 * 5
    expected = stack().fit(*table)
    # Programs with other members round float32 differently.
    np.testing.assert_allclose(
        model.predict(table[0]), expected.predict(table[0]), rtol=1e-3, atol=1e-3
    )


def test_a_search_with_a_limit(table):
    """It contains the first candidates, and the best is refitted."""
    network = MCDropoutRegressor((4,), **SETTINGS)
    search = BatchedGridSearchCV(
        network, {"tau": [0.5, 1.0, 2.0, 4.0]}, cv=2, time_limit=1e-6
    ).fit(*table)
    assert search.cv_results_["params"] == [{"tau": 0.5}]
    assert search.best_estimator_.predict(table[0]).shape == (60,)
    search.set_params(time_limit=None).fit(*table)
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.parametrize("limit, error", [(0, ValueError), ("1", TypeError)])
def test_wrong_limits(table, limit, error):
    for model in (
        stack(limit),
        BatchedGridSearchCV(MCDropoutRegressor(), {"tau": [1.0]}, time_limit=limit),
    ):
        with pytest.raises(error, match="`time_limit` must be"):
            model.fit(*table)
