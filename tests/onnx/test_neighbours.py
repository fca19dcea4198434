"""Soft nearest neighbours in a graph."""

import numpy as np
import pytest

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourClassifier,
    NeighbourRegressor,
    to_onnx,
)
from skbayesnn._onnx import neighbours as graphs
from skbayesnn._onnx import predictive
from skbayesnn._stacking import weights
from skbayesnn.estimators import neighbours
from tests.helpers.onnx_running import (
    assert_close,
    assert_same_classification,
    assert_same_regression,
    expected_regression,
    outputs,
)

SHORT = {"hidden_size": 6, "embedding_size": 3, "max_iter": 20, "n_estimators": 2}


@pytest.fixture
def unmerged(monkeypatch):
    """Each neighbour is a component, as in a graph with few training rows."""
    monkeypatch.setattr(neighbours, "N_GROUPS", 100)
    monkeypatch.setattr(neighbours, "MERGED", 0.0)


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("target", ["y", "Y"])
@pytest.mark.parametrize(
    "parameters", [{}, {"dropout": 0.0, "n_bins": 0, "dtype": "float64"}]
)
def test_regression(data, target, parameters, seed):
    y = getattr(data, target)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 41)
    model = NeighbourRegressor(**SHORT, **parameters, random_state=seed)
    assert_same_regression(model.fit(data.X, y, weight), data.X_new, y)


@pytest.mark.parametrize("target", ["y", "Y"])
def test_groups_keep_mean_and_std(data, target, seed, monkeypatch):
    """Quantiles differ, because the estimator has other groups."""
    y = getattr(data, target)
    model = NeighbourRegressor(**SHORT, random_state=seed).fit(data.X, y)
    monkeypatch.setattr(graphs, "N_GROUPS", 9)
    actual = outputs(to_onnx(model), data.X_new)
    expected = expected_regression(model, data.X_new)
    quantiles = actual.pop("quantiles"), expected.pop("quantiles")
    assert_close(actual, expected, y)
    std = expected["std"][..., None]
    assert (np.abs(quantiles[0] - quantiles[1]) < 0.5 * std).all()


def test_classes(data, seed):
    model = NeighbourClassifier(**SHORT, random_state=seed)
    assert_same_classification(model.fit(data.X, data.labels), data.X_new)


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("target", ["y", "Y"])
def test_stack(data, small, target, seed, monkeypatch):
    """A correction moves a draw, with all of its components, by a bounded distance."""
    y = getattr(data, target)
    pool = [
        ("network", MCDropoutRegressor(**small)),
        ("mixture", MCDropoutRegressor(**small, likelihood="mixture")),
        ("neighbours", NeighbourRegressor(**SHORT, random_state=seed)),
    ]
    model = BayesianStackingRegressor(pool, cv=2, random_state=0).fit(data.X, y)
    # Some weights may be zero.
    model.estimators_ = [member.fit(data.X, y) for _, member in pool]
    model.n_draws_ = np.array([7, 5, 9])
    for bound in (np.inf, 0.1):
        model.spread_factor_ = np.full(len(model.spread_factor_), 1.6)
        monkeypatch.setattr(weights, "BOUND", bound)
        monkeypatch.setattr(predictive, "BOUND", bound)
        assert_same_regression(model, data.X_new, y)


def test_stack_of_classifiers(data, small, seed):
    pool = [
        ("network", MCDropoutClassifier(**small)),
        ("neighbours", NeighbourClassifier(**SHORT, random_state=seed)),
    ]
    model = BayesianStackingClassifier(pool, cv=2, random_state=0)
    model.fit(data.X, data.labels)
    model.estimators_ = [member.fit(data.X, data.labels) for _, member in pool]
    model.n_draws_ = np.array([7, 9])
    assert_same_classification(model, data.X_new)


def test_too_many_rows(data, seed):
    model = NeighbourRegressor(**SHORT, random_state=seed).fit(data.X, data.y)
    model.X_train_ = np.broadcast_to(model.X_train_[:1], (50_000_000, 4))
    # Two networks with two draws of 4 float32.
    with pytest.raises(ValueError, match=r"3\.2 GB: 4 draws of 50000000 rows"):
        to_onnx(model)
