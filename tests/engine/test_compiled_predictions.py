"""The compiled loop predicts what torch predicts, up to rounding."""

import copy
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy import special
from sklearn import config_context

from skbayesnn import BBBRegressor, MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine import compiled, posterior
from skbayesnn._engine.compiled import ENGINE_VARIABLE, blocks, predict
from skbayesnn._engine.posterior import MIN_COMPILED_ROWS
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.estimators._fitted import open_posterior
from tests.engine.test_compiled import POSTERIORS, exact
from tests.helpers.pairwise import pairwise

# Blocks have 32 rows in double precision; the last one is not full.
ROWS, INPUTS, DRAWS, CLASSES = 75, 5, 13, 3
ROUNDING = {"rtol": 1e-10, "atol": 1e-11}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.normal(size=(ROWS, INPUTS))
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)
    return X, Y + 0.3 * random.normal(size=Y.shape)


def fitted(model, seed, X, y, **params):
    return exact(model, seed, n_draws=DRAWS, **params).fit(X, y)


def results(model, X):
    """Means and all kinds of uncertainty."""
    is_classifier = hasattr(model, "classes_")
    mean = model.predict_proba(X) if is_classifier else model.predict(X)
    return model.predict_uncertainty(X, "all") | {"mean": mean}


def components(model, X):
    """Fields of the components of every draw, by name."""
    opened = open_posterior(model, X).whole()
    arrays = {f.name: getattr(opened, f.name) for f in fields(opened)}
    return {name: values for name, values in arrays.items() if values is not None}


def both(function, model, X, monkeypatch):
    """Results of torch and of the compiled loop, without what a model has cached."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    assert open_posterior(model, X)._compiled is None
    expected = function(copy.deepcopy(model), X)
    monkeypatch.delenv(ENGINE_VARIABLE)
    model = copy.deepcopy(model)
    assert open_posterior(model, X)._compiled is not None
    return expected, function(model, X)


def assert_equal_to_torch(model, X, monkeypatch, **tolerance):
    for function in (results, components):
        expected, actual = both(function, model, X, monkeypatch)
        assert actual.keys() == expected.keys()
        for name, reference in expected.items():
            np.testing.assert_allclose(
                actual[name], reference, **tolerance or ROUNDING, err_msg=name
            )


# ---- every family, likelihood and activation


@pytest.mark.parametrize("name", POSTERIORS)
def test_families(name, table, seed, monkeypatch):
    """Draw by draw; the moments are accumulated."""
    X, Y = table
    model = fitted(POSTERIORS[name], seed, X, Y, activation="silu")
    assert_equal_to_torch(model, X, monkeypatch)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize(
    "likelihood",
    [
        "gaussian",
        "heteroscedastic",
        "student_t",
        "poisson",
        "negative_binomial",
        "mixture",
    ],
)
def test_likelihoods(likelihood, n_targets, table, seed, monkeypatch):
    X, Y = table
    if likelihood in ("poisson", "negative_binomial"):
        Y = np.floor(np.abs(3 * Y))
    model = MCDropoutRegressor(likelihood=likelihood, dropout=0.2)
    y = Y[:, 0] if n_targets == 1 else Y
    # Rows beyond the training rows have a bounded variance.
    model = fitted(model, seed, X, y, max_iter=20)
    assert_equal_to_torch(model, 4 * X, monkeypatch)


@pytest.mark.parametrize("likelihood", ["categorical", "ordinal"])
@pytest.mark.parametrize("weight_of_last", [1.0, 0.0], ids=["all", "one is unknown"])
def test_likelihoods_of_classes(likelihood, weight_of_last, table, seed, monkeypatch):
    """A label whose rows have no weight has probability 0."""
    X, Y = table
    labels = np.digitize(Y[:, 0], [-0.4, 0.4])
    model = MCDropoutClassifier(likelihood=likelihood, dropout=0.2)
    model = exact(model, seed, n_draws=DRAWS)
    model.fit(X, labels, np.where(labels == CLASSES - 1, weight_of_last, 1.0))
    assert model.predict_proba(X).shape == (ROWS, CLASSES)
    assert_equal_to_torch(model, X, monkeypatch)


@pytest.mark.parametrize("activation", predict.ACTIVATIONS)
def test_activations(activation, table, seed, monkeypatch):
    """Also of arguments at which an exponential overflows."""
    X, Y = table
    model = fitted(MCDropoutRegressor(activation=activation), seed, X, Y)
    assert_equal_to_torch(model, X, monkeypatch)
    expected, actual = both(results, model, 1e4 * X, monkeypatch)
    np.testing.assert_allclose(actual["mean"], expected["mean"], rtol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "dropout", "model"),
    pairwise(
        [(), (7,), (6, 7, 8)],
        [0.02, 0.2, [0.0, 0.1, 0.3, 0.2]],
        # Sums of outputs, moments, or probabilities.
        [
            MCDropoutRegressor(),
            MCDropoutRegressor(likelihood="heteroscedastic"),
            MCDropoutClassifier(),
        ],
    ),
    ids=str,
)
def test_layers_and_rates(model, sizes, dropout, table, seed, monkeypatch):
    """Draws share no layers, some, or most of them."""
    X, Y = table
    y = np.digitize(Y[:, 0], [-0.4, 0.4]) if hasattr(model, "class_weight") else Y
    rates = dropout[: len(sizes) + 1] if isinstance(dropout, list) else dropout
    model = exact(model, seed, dropout=rates, n_draws=61, hidden_layer_sizes=sizes)
    assert_equal_to_torch(model.fit(X, y), X, monkeypatch)


def test_single_precision(table, seed, monkeypatch):
    X, Y = table
    for model in (MCDropoutRegressor(dropout=0.1), BBBRegressor()):
        model = fitted(model, seed, X, Y, max_iter=20)
        expected, actual = both(results, model, X.astype(np.float32), monkeypatch)
        for name, reference in expected.items():
            assert actual[name].dtype == np.float32
            # Differences of draws are sums of about ten roundings of values near 1.
            np.testing.assert_allclose(actual[name], reference, rtol=1e-4, atol=1e-5)


# ---- rows


@pytest.fixture
def dropout_model(table, seed):
    X, Y = table
    return fitted(MCDropoutRegressor(dropout=0.1), seed, X, Y)


def test_number_of_threads_changes_no_bit(dropout_model, table, monkeypatch):
    monkeypatch.setattr(predict, "_ROWS", 32)
    X, n_threads = table[0], torch.get_num_threads()
    values = []
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            draws = components(dropout_model, X)
            values.append(results(dropout_model, X) | {"draws": draws["mean"]})
    finally:
        torch.set_num_threads(n_threads)
    for other in values[1:]:
        for name, reference in values[0].items():
            np.testing.assert_array_equal(other[name], reference)


def test_other_rows_change_no_bit(dropout_model, table):
    """Nor does the position of a row, nor the size of the blocks in memory."""
    X = table[0]
    expected, part = results(dropout_model, X), slice(3, 3 + MIN_COMPILED_ROWS)
    for name, values in results(dropout_model, X[part]).items():
        np.testing.assert_array_equal(values, expected[name][part])
    # About ten rows per block.
    row_bytes = 8 * DRAWS * 2 * 2
    with config_context(working_memory=4 * 10 * row_bytes / 2**20):
        opened = open_posterior(dropout_model, X)
        assert opened._compiled is not None and len(list(opened.chunks())) > 5
        blocks = components(dropout_model, X)
    for name, values in components(dropout_model, X).items():
        np.testing.assert_array_equal(blocks[name], values)


def test_few_rows_agree_with_many(dropout_model, table):
    """Torch predicts few rows."""
    X = table[0]
    expected = results(dropout_model, X)
    few = X[: (MIN_COMPILED_ROWS - 1) // dropout_model.n_estimators]
    assert open_posterior(dropout_model, few)._compiled is None
    for name, values in results(dropout_model, few).items():
        np.testing.assert_allclose(values, expected[name][: len(few)], **ROUNDING)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_inputs_do_not_lose_precision(dtype, dropout_model, table, monkeypatch):
    """Nor do they change the other rows."""
    X = table[0].astype(dtype)
    huge = X.copy()
    huge[[4, 40]] *= 100 * predict.MAX_SHARED_INPUT[torch.as_tensor(X).dtype]
    opened = open_posterior(dropout_model, X)
    assert opened._compiled._shares
    expected, actual = both(components, dropout_model, huge, monkeypatch)
    relative = 1e-3 if dtype is np.float32 else 1e-9
    for name, reference in expected.items():
        scale = np.abs(reference).max(axis=(0, 2), keepdims=True)
        error = np.abs(actual[name] - reference) / scale
        assert error.max() < relative, name
    plain, mixed = results(dropout_model, X), results(dropout_model, huge)
    others = np.delete(np.arange(ROWS), [4, 40])
    for name, reference in plain.items():
        np.testing.assert_array_equal(mixed[name][others], reference[others])


def test_draws_from_any_number(dropout_model, table, monkeypatch):
    X = table[0]

    def some_draws(model, X):
        opened = open_posterior(model, X, n_draws=4, first_draw=5)
        return opened.whole().mean

    expected, actual = both(some_draws, dropout_model, X, monkeypatch)
    np.testing.assert_allclose(actual, expected, **ROUNDING)
    of_all = components(dropout_model, X)["mean"].reshape(DRAWS, -1, ROWS, 2)[5:9]
    np.testing.assert_allclose(actual, of_all.reshape(actual.shape), **ROUNDING)


# ---- what is left to torch


def test_tables_are_covered():
    """What is left to torch is listed here."""
    assert ACTIVATIONS.keys() - predict.ACTIVATIONS == {"erf"}


def test_other_predictions_are_left_to_torch(table, seed):
    X, Y = table
    params = {"dropout": 0.1, "random_state": seed, "max_iter": 1}
    erf = MCDropoutRegressor((4,), activation="erf", **params).fit(X, Y)
    assert open_posterior(erf, X)._compiled is None
    wide = MCDropoutRegressor((predict._MAX_WIDTH + 1,), **params).fit(X, Y)
    assert open_posterior(wide, X)._compiled is None
    model = MCDropoutRegressor((4,), **params).fit(X, Y)
    assert open_posterior(model, X)._compiled is not None
    with config_context(working_memory=1e-4):
        assert open_posterior(model, X)._compiled is None


def test_torch_predicts_if_numba_cannot_be_imported(dropout_model, table, monkeypatch):
    expected = dropout_model.predict(table[0])
    monkeypatch.setitem(sys.modules, "skbayesnn._engine.compiled.predict", None)
    monkeypatch.delattr(compiled, "predict")
    posterior._compiled_draws.cache_clear()
    try:
        assert open_posterior(dropout_model, table[0])._compiled is None
        actual = copy.deepcopy(dropout_model).predict(table[0])
    finally:
        posterior._compiled_draws.cache_clear()
    np.testing.assert_allclose(actual, expected, **ROUNDING)


# ---- elementary functions


@pytest.mark.parametrize(
    ("name", "reference"),
    [("exp", np.exp), ("tanh", np.tanh), ("softplus", special.softplus)],
)
def test_elementary_functions(name, reference):
    """In double precision: a few units in the last place; of 1 for tanh."""
    numba = pytest.importorskip("numba")
    function = getattr(blocks, name)

    @numba.njit(error_model="numpy")
    def mapped(x, out):
        for i in range(x.size):
            out[i] = function(x[i])
        return out

    x = np.concatenate([np.linspace(-700, 700, 20_001), np.linspace(-2, 2, 2001)])
    absolute = 1e-15 if name == "tanh" else 0
    actual = mapped(x, np.empty_like(x))
    np.testing.assert_allclose(actual, reference(x), rtol=2e-15, atol=absolute)
    special_values = np.array([np.nan, np.inf, -np.inf])
    actual = mapped(special_values, np.empty(3))
    assert np.isnan(actual[0]) and not np.isnan(actual[1:]).any()
