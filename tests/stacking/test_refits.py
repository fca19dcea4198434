"""Fits of the candidates to all rows, and candidates that fail."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from tests.helpers.stacks import GRID, NETWORK, QUICK, ROWS


def test_candidate_that_fails_is_left_out(table):
    X, y = table
    pool = [("network", MCDropoutRegressor(**QUICK), {"dropout": [0.1, 7.0]})]
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 candidates.*dropout=7.0"):
        model = BayesianStackingRegressor(pool, cv=2).fit(X, y)
    assert model.weights_.index.tolist() == ["network(dropout=0.1)"]
    pool = [("network", MCDropoutRegressor(**QUICK), {"dropout": [3.0, 7.0]})]
    with pytest.raises(ValueError, match=r"`dropout` must be in \[0, 1\)"):
        BayesianStackingRegressor(pool, cv=2).fit(X, y)


def test_candidate_that_cannot_predict_is_left_out(table):
    """A row of one fold has a category that the other folds do not contain."""
    X, y = table
    X = np.column_stack([X, np.append(np.ones(ROWS - 1), 2.0)])
    encoded = make_pipeline(
        ColumnTransformer([("one", OneHotEncoder(), [3])], remainder="passthrough"),
        NETWORK,
    )
    pool = [("plain", NETWORK), ("encoded", encoded)]
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 .*encoded.*unknown categor"):
        model = BayesianStackingRegressor(pool, cv=3, random_state=0).fit(X, y)
    assert model.weights_.index.tolist() == ["plain"]


def _refuse_all_rows(X):
    if len(X) == ROWS:
        raise ValueError("too many rows")
    return X


def test_weights_are_recomputed_if_a_refit_fails(table):
    """As if the pool had no such candidate, and with all draws of the mixture."""
    X, y = table
    failing = make_pipeline(FunctionTransformer(_refuse_all_rows), NETWORK)
    # Better than all other candidates out of fold.
    long = {"mcdropoutregressor__max_iter": [200], "mcdropoutregressor__dropout": [0]}
    pool = [("plain", NETWORK, GRID)]
    options = {"cv": 3, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="too many rows"):
        model = BayesianStackingRegressor(
            [*pool, ("moody", failing, long)], **options
        ).fit(X, y)
    without = BayesianStackingRegressor(pool, **options).fit(X, y)
    assert model.weights_.index.tolist() == without.weights_.index.tolist()
    np.testing.assert_allclose(
        model.weights_["weight"], without.weights_["weight"], rtol=1e-5
    )
    assert [estimator.n_draws for estimator in model.estimators_] == [
        estimator.n_draws for estimator in without.estimators_
    ]
    np.testing.assert_allclose(model.predict(X), without.predict(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "n_networks"), [({"n_refits": 3}, [3, 6]), ({}, [4, 6])]
)
def test_number_of_refitted_networks(table, params, n_networks):
    """At least `n_refits` networks per candidate, with different seeds."""
    # Both candidates must be better than a constant.
    network = clone(NETWORK).set_params(max_iter=100)
    pool = [("network", network, {"n_estimators": [2, 6]})]
    model = BayesianStackingRegressor(pool, cv=3, random_state=0, **params).fit(*table)
    seeds = [estimator.seeds_ for estimator in model.estimators_]
    assert sorted(map(len, seeds)) == n_networks
    assert all(
        len(set(seeds_of_model)) == len(seeds_of_model) for seeds_of_model in seeds
    )


def test_default_number_of_refits(labelled):
    X, labels = labelled
    pool = [("network", MCDropoutClassifier(**QUICK))]
    [model] = BayesianStackingClassifier(pool, cv=2).fit(X, labels).estimators_
    assert len(model.seeds_) == 2


@pytest.mark.parametrize(("wide_from", "n_networks"), [(1_000, 4), (20, 2)])
def test_fewer_networks_by_evidence_are_fitted_to_many_rows(
    table, monkeypatch, wide_from, n_networks
):
    monkeypatch.setattr("skbayesnn._stacking.base.WIDE_FROM", wide_from)
    pool = [("laplace", LaplaceRegressor(n_estimators=1, max_iter=3))]
    [model] = BayesianStackingRegressor(pool, cv=2).fit(*table).estimators_
    assert model.n_estimators == n_networks
