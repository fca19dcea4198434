"""Wide sparse tables: predictions equal those of dense rows, which are never made."""

import copy

import numpy as np
import pytest
import sklearn
import torch
from scipy import sparse

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
)
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.sparse_rows import SparseRows, suits_sparse_rows
from skbayesnn._engine import posterior
from tests.helpers.memory import memory_of

ROWS, COLUMNS, DRAWS, MEMBERS, UNITS = 37, 611, 5, 2, 3
SMALL = {"hidden_layer_sizes": (4, 3), "max_iter": 2, "n_draws": 13, "random_state": 0}
MODELS = {
    "masks": MCDropoutRegressor(dropout=0.2, n_estimators=3, **SMALL),
    "masks of a low rate": MCDropoutRegressor(dropout=0.01, **SMALL),
    "learned masks": MCDropoutClassifier(dropout="auto", **SMALL),
    "scaled units": MCDropoutClassifier(noise="gaussian", dropout=0.2, **SMALL),
    "masks of weights": MCDropoutClassifier(noise="dropconnect", dropout=0.2, **SMALL),
    "normal weights": BBBRegressor(**SMALL),
    "no noise": AnchoredEnsembleRegressor(n_estimators=2, **SMALL),
    "a linear model": VariationalDropoutClassifier(
        **SMALL | {"hidden_layer_sizes": ()}
    ),
}


def table(seed, n_rows=ROWS, n_columns=COLUMNS, density=0.02):
    """Rows with few nonzero values, some of them in full columns."""
    random = np.random.default_rng(seed)
    X = random.normal(1, 2, size=(n_rows, n_columns))
    X[random.random(X.shape) > density] = 0
    X[:, :3] = random.normal(5, 2, size=(n_rows, 3))
    return sparse.csr_array(X)


def labels(model, X):
    y = X[:, [0, 1]].sum(1)
    return y > np.median(y) if isinstance(model, sklearn.base.ClassifierMixin) else y


@pytest.mark.filterwarnings("ignore")  # fits of two epochs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_equal_those_of_dense_rows(seed, dtype):
    """For all rows, for some of them, and in small chunks; for mean weights too."""
    X = table(seed).astype(dtype)
    # Sums of some hundred terms in another order.
    within = {np.float32: 1e-4, np.float64: 1e-10}[dtype]
    for name, model in MODELS.items():
        model = sklearn.base.clone(model).fit(X, labels(model, X))
        method = "predict_uncertainty"
        if name == "no noise":
            method = "predict"
        expected = getattr(model, method)(X.toarray())
        actual = getattr(copy.deepcopy(model), method)(X)
        with sklearn.config_context(working_memory=0.05):
            in_chunks = getattr(copy.deepcopy(model), method)(X)
        some = getattr(model, method)(X[[7, 3]])
        scale = within * np.abs(expected).max()
        for predictions in (actual, in_chunks):
            np.testing.assert_allclose(
                predictions, expected, within, scale, err_msg=name
            )
        np.testing.assert_allclose(some, expected[[7, 3]], within, scale, err_msg=name)
        ask = model.predict_proba if hasattr(model, "classes_") else model.predict
        mean, expected = (ask(x, method="mean_weights") for x in (X, X.toarray()))
        scale = within * np.abs(expected).max()
        np.testing.assert_allclose(mean, expected, within, scale, err_msg=name)


def test_products_equal_those_of_standardised_rows(seed):
    """For each draw and member, in the precision of the table."""
    random, X = np.random.default_rng(seed), table(seed)
    scaling = Scaling.of(
        X, np.zeros((ROWS, 1)), np.ones(ROWS), inputs=True, targets=False
    )
    weight = random.normal(size=(DRAWS, MEMBERS, COLUMNS, UNITS))
    expected = np.einsum("ri,dmio->dmro", scaling.x_to_network(X.toarray()), weight)
    rows = SparseRows.of(X, scaling)
    actual = rows.times(torch.as_tensor(weight))
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)
    parts = rows.split(10, dim=1)
    assert [part.shape for part in parts] == [(1, n, COLUMNS) for n in (10, 10, 10, 7)]
    again = torch.cat([part.times(torch.as_tensor(weight)) for part in parts], dim=2)
    torch.testing.assert_close(again, actual)
    single = SparseRows.of(X.astype(np.float32), scaling)
    assert single.times(torch.as_tensor(weight).float()).dtype == torch.float32


@pytest.mark.parametrize(
    "kind", ["dense", "narrow", "full", "far from zero", "sparse and wide"]
)
def test_which_rows_stay_sparse(seed, kind):
    X = table(seed)
    scaling = Scaling.of(
        X, np.zeros((ROWS, 1)), np.ones(ROWS), inputs=True, targets=False
    )
    if kind == "dense":
        X = X.toarray()
    elif kind == "narrow":
        X, scaling = X[:, :400], Scaling.none(400, 1)
    elif kind == "full":
        X = table(seed, density=0.2)
    elif kind == "far from zero":
        # The two products of a column with mean 1000 and std 1 would nearly cancel.
        scaling.x_mean[2], scaling.x_scale[2] = 1000.0, 1.0
    assert suits_sparse_rows(X, scaling) == (kind == "sparse and wide")


@pytest.mark.filterwarnings("ignore")  # a fit of one epoch
@pytest.mark.parametrize("method", ["predict_uncertainty", "log_predictive_density"])
def test_neither_rows_nor_weights_are_all_dense(seed, monkeypatch, method):
    """A fraction of the memory of all drawn weights, or of the dense rows."""
    n_rows, n_columns, n_units, n_draws = 1200, 10_000, 10, 120
    X = sparse.random_array(
        (n_rows, n_columns), density=0.001, format="csr", rng=seed, dtype=float
    )
    y = np.arange(n_rows) % 2
    model = MCDropoutClassifier((n_units,), max_iter=1, n_draws=n_draws, length_scale=1)
    model.fit(X[:50], y[:50])
    # It allocates a large block and frees it at once without writing to it.
    monkeypatch.setattr(posterior, "keep_freed_memory", lambda: None)
    arguments = (X, y) if method == "log_predictive_density" else (X,)
    dense = 8 * n_columns * min(n_draws * n_units, n_rows)
    tensor_bytes, array_bytes = memory_of(lambda: getattr(model, method)(*arguments))
    assert 0 < tensor_bytes < dense / 4
    assert array_bytes < dense / 3
