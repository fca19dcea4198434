"""The fused kernel trains the networks that torch trains, up to rounding.

Without a GPU, Triton's interpreter runs it, which takes about a second per case.
"""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn._engine.training import ENGINE_VARIABLE
from skbayesnn.model_selection import BatchedGridSearchCV

pytest.importorskip("triton")

ROWS, INPUTS, TARGETS = 43, 5, 2
BASE = {
    "hidden_layer_sizes": (7, 6),
    "dtype": "float32",
    "device": "cuda" if torch.cuda.is_available() else "cpu",
    "batch_size": 22,
    "max_iter": 2,
    "n_estimators": 2,
    "early_stopping": False,
    "length_scale": 1.5,
}
DROPOUT = MCDropoutRegressor(dropout=0.2, tau="auto")
# Four steps of float32; tensor cores split a number into three parts of 11 bits.
ROUNDING = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.normal(size=(ROWS, INPUTS))
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)
    return X, Y + 0.3 * random.normal(size=Y.shape), random.uniform(0.3, 2, size=ROWS)


def small(model, seed, **params):
    accepted = model.get_params(deep=False)
    fixed = {name: value for name, value in BASE.items() if name in accepted}
    return clone(model).set_params(**fixed | {"random_state": seed} | params)


def assert_same_training(model, *args, monkeypatch):
    """Parameters, moments of Adam and losses equal those of torch."""
    results = []
    for engine in ("torch", "fused"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        results.append(clone(model).fit(*args))
        assert results[-1].engine_ == engine
    for name in ("parameters_", "optimizer_", "history_"):
        expected, actual = (getattr(trained, name) for trained in results)
        for key, values in expected.items():
            np.testing.assert_allclose(
                actual[key], values, **ROUNDING, err_msg=f"{name}[{key!r}]"
            )


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (DROPOUT, {}),
        (DROPOUT, {"noise": "gaussian", "activation": "silu"}),
        (DROPOUT, {"dropout": 0.0, "activation": "erf", "tau": 2.0}),
        (DROPOUT, {"hidden_layer_sizes": (4,), "activation": "tanh"}),
        (DROPOUT, {"hidden_layer_sizes": (4, 6, 3), "activation": "logistic"}),
        (DROPOUT, {"hidden_layer_sizes": (40,), "batch_size": "auto"}),
        (BBBRegressor(tau="auto"), {"activation": "identity"}),
        (VariationalGPRegressor(tau=2.0), {}),
        (AnchoredEnsembleRegressor(tau=2.0), {}),
    ],
    ids=str,
)
def test_regression(model, params, table, seed, monkeypatch):
    assert_same_training(small(model, seed, **params), *table, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    "model",
    [
        MCDropoutClassifier(dropout=0.2, tau=1.7),
        AnchoredEnsembleClassifier(),
    ],
    ids=str,
)
def test_classification(model, table, seed, monkeypatch):
    X, Y, weights = table
    labels = np.digitize(Y[:, 0], [-0.4, 0.4])
    model = small(model, seed)
    assert_same_training(model, X, labels, weights, monkeypatch=monkeypatch)


def test_noise_that_depends_on_the_row(table, seed, monkeypatch):
    """The gain of the noise rises from the second quarter of the training on."""
    X, Y, weights = table
    model = small(DROPOUT, seed, likelihood="heteroscedastic", max_iter=4)
    assert_same_training(model, X, Y[:, 0], weights, monkeypatch=monkeypatch)


def test_inputs_in_several_tiles(seed, monkeypatch):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, 70))
    for model in (DROPOUT, BBBRegressor(tau=2.0)):
        model = small(model, seed, max_iter=1)
        assert_same_training(model, X, X[:, 0], monkeypatch=monkeypatch)


def test_early_stopping(table, seed, monkeypatch):
    X, Y, _ = table
    model = small(DROPOUT, seed, early_stopping=True, max_iter=4)
    assert_same_training(model, X, Y, monkeypatch=monkeypatch)


def test_members_with_other_rows_and_epochs(table, seed, monkeypatch):
    """In a search: folds of unequal sizes, and numbers of epochs."""
    X, Y, weights = table
    grid = [{"tau": [1.0], "max_iter": [1]}, {"tau": [3.0], "max_iter": [2]}]
    results = []
    for engine in ("torch", "fused"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        search = BatchedGridSearchCV(small(DROPOUT, seed), grid, cv=KFold(2))
        search.fit(X[:21], Y[:21], sample_weight=weights[:21])
        assert search.best_estimator_.engine_ == engine
        results.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4)


def test_continued_training(table, seed, monkeypatch):
    X, Y, _ = table
    results = []
    for engine in ("torch", "fused"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        trained = small(BBBRegressor(), seed)
        for _ in range(2):
            trained.partial_fit(X, Y, n_epochs=1)
        results.append(trained)
    for key, values in results[0].parameters_.items():
        np.testing.assert_allclose(
            results[1].parameters_[key], values, **ROUNDING, err_msg=key
        )


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (DROPOUT, {"dtype": "float64"}),
        (DROPOUT, {"hidden_layer_sizes": (129,)}),
        (DROPOUT, {"likelihood": "student_t"}),
        (DROPOUT, {"n_training_draws": 2}),
    ],
    ids=str,
)
def test_other_programs_are_left_to_torch(model, params, table, seed, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "fused")
    X, Y, _ = table
    model = small(model, seed, max_iter=1).set_params(**params)
    assert model.fit(X, Y[:, 0]).engine_ == "torch"
