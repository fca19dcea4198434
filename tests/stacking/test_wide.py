"""The default stacks with many columns or few rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, ParameterGrid

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutRegressor,
)
from skbayesnn._data.validation import Table
from skbayesnn._stacking import candidates
from skbayesnn._stacking import pool as pools
from skbayesnn._stacking.candidates import Candidate
from skbayesnn._stacking.linear import ShrunkLinearModel
from skbayesnn._stacking.weights import OutOfFold

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS, NEW = 40, 61, 500


@pytest.fixture
def table(seed):
    """y is a function of one column, with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS + NEW, COLUMNS))
    return X, X[:, 4] + 0.1 * random.normal(size=len(X))


def regressor(**params):
    return BayesianStackingRegressor(**{"max_iter": 2, "random_state": 0} | params)


def classifier(**params):
    return BayesianStackingClassifier(**{"max_iter": 2, "random_state": 0} | params)


# ---- accuracy


def test_as_good_as_ridge_and_lasso(table):
    """Three standard errors of the mean squared error are 20 %."""
    X, y = table
    train, new = slice(ROWS), slice(ROWS, None)
    model = regressor().fit(X[train], y[train])
    best = min(
        np.mean(np.square(reference.fit(X[train], y[train]).predict(X[new]) - y[new]))
        for reference in (RidgeCV(np.logspace(-2, 4, 13)), LassoCV(random_state=0))
    )
    assert np.mean(np.square(model.predict(X[new]) - y[new])) < 1.2 * best
    lower, upper = model.predict_interval(X[new]).T
    assert 0.8 < np.mean((lower <= y[new]) & (y[new] <= upper)) < 0.99
    parts = model.predict_uncertainty(X[new], "all")
    assert (parts["epistemic"] > 0).all()
    np.testing.assert_allclose(
        np.hypot(parts["epistemic"], parts["aleatoric"]), parts["total"]
    )


def test_better_than_the_shares_of_classes(table):
    X, y = table
    train, new = slice(ROWS), slice(ROWS, None)
    for labels in (y > 0, np.digitize(y, [-0.5, 0.5])):
        model = classifier().fit(X[train], labels[train])
        shares = np.bincount(labels[train]) / ROWS
        constant = np.tile(shares, (NEW, 1))
        loss = log_loss(labels[new], model.predict_proba(X[new]))
        assert loss < 0.8 * log_loss(labels[new], constant)


# ---- promises of all candidates


def _assert_same_predictions(actual, desired, X):
    np.testing.assert_array_equal(actual.predict(X), desired.predict(X))


def test_cross_intervals_groups_and_weights(table):
    X, y = table[0][:ROWS], table[1][:ROWS]
    groups = np.arange(ROWS) % 7
    weights = np.repeat([0.0, 2.0, 1.0], [5, 10, ROWS - 15])
    model = regressor(cv=GroupKFold(3))
    model.fit(X, y, sample_weight=weights, groups=groups)
    lower, upper = model.predict_interval(X, 0.8, method="cv+").T
    assert (lower < upper).all()
    X_outliers = X.copy()
    X_outliers[:5] = 1e6
    expected = model.predict(X)
    model.fit(X_outliers, y, sample_weight=weights, groups=groups)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6)


def test_n_jobs_does_not_change_the_result(table):
    X, y = table[0][:ROWS], table[1][:ROWS]
    single, parallel = regressor(cv=2).fit(X, y), regressor(cv=2, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(parallel.predict(X), single.predict(X), rtol=1e-6)


def test_interrupted_fit_continues(table, monkeypatch):
    """Fitted models are kept; the result equals an uninterrupted fit."""
    X, y = table[0][:ROWS], table[1][:ROWS]
    expected = regressor().fit(X, y)
    fitted, fit = [], candidates._outcomes_alone

    def interrupted(models, *arguments):
        if len(fitted) == 7:
            raise KeyboardInterrupt
        fitted.extend(models)
        return fit(models, *arguments)

    monkeypatch.setattr(candidates, "_outcomes_alone", interrupted)
    model = regressor()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    before, fitted[:] = list(fitted), []

    def counted(models, *arguments):
        fitted.extend(models)
        return fit(models, *arguments)

    monkeypatch.setattr(candidates, "_outcomes_alone", counted)
    model.fit(X, y)
    assert len(before) == 7
    assert not set(before) & {key for key in fitted if key[1] or key not in before}
    _assert_same_predictions(model, expected, X)


# ---- the default pool


def _candidates_by_name(
    n_rows, n_columns, *, is_classification=False, sparse_x=False, weights=None
):
    X = np.random.default_rng(0).normal(size=(n_rows, n_columns))
    X = sparse.csr_array(X) if sparse_x else X
    weights = np.ones(n_rows) if weights is None else weights
    pool = pools.default_specs(
        X, weights, is_classification=is_classification, max_iter=1, random_state=0
    )
    return {
        entry.name: [Candidate("", entry, grid) for grid in ParameterGrid(entry.grid)]
        for entry in pool
    }


def test_default_pool_depends_on_rows_and_columns():
    """Linear models are penalised with few rows or many columns."""
    kinds = {
        (60, 5): (True, True, 6),
        (60, 70): (True, False, 2),
        (60, 60): (True, False, 2),
        (60, 59): (True, True, 6),
        (699, 5): (True, True, 6),
        (701, 5): (False, True, 6),
        (701, 300): (True, False, 6),
        (1001, 1200): (False, False, 6),
        (9, 3): (False, True, 6),
        (9, 12): (False, False, 6),
    }
    wrong = []
    for shape, (shrunk, encoded, n_networks) in kinds.items():
        pool = _candidates_by_name(*shape)
        models = [candidate.model for candidate in pool["linear"]]
        actual = (
            isinstance(models[0], ShrunkLinearModel),
            "encoded" in pool,
            len(pool["network"]),
        )
        if actual != (shrunk, encoded, n_networks):
            wrong.append((shape, actual))
    assert not wrong
    # Rows of weight zero do not count.
    weights = np.repeat([1.0, 0.0], [60, 641])
    [first, *_] = _candidates_by_name(701, 5, weights=weights)["linear"]
    assert isinstance(first.model, ShrunkLinearModel)


def test_pool_of_classifiers_keeps_all_networks():
    pool = _candidates_by_name(60, 70, is_classification=True)
    assert len(pool["network"]) == 6
    assert len(pool["linear"]) == 8


def test_large_sparse_tables_are_not_made_dense(monkeypatch):
    monkeypatch.setattr(pools, "SHRUNK_ENTRIES", 60 * 300)
    for n_columns, shrunk in ((300, True), (301, False)):
        [first, *_] = _candidates_by_name(60, n_columns, sparse_x=True)["linear"]
        assert isinstance(first.model, ShrunkLinearModel) == shrunk


# ---- constant and hopeless candidates


class Mean:
    """A predictive distribution with a mean alone."""

    is_classification = False

    def __init__(self, mean):
        self.values = np.asarray(mean, dtype=float)

    def mean(self):
        """Return the given mean."""
        return self.values


def test_spread_is_within_folds_and_errors_are_relative(seed):
    """Computed by hand with weights."""
    random = np.random.default_rng(seed)
    n, fold = 12, np.repeat([0, 1, 2], [3, 4, 5])
    y, weights = random.normal(size=(n, 2)) * [1, 50], random.uniform(0, 2, size=n)
    weights[4] = 0
    by_fold = np.array([[1.0, 2.0], [5.0, -7.0], [0.0, 3.0]])[fold]
    means = [random.normal(size=(n, 2)), by_fold, 3 * y]
    test_rows = random.permutation(n)
    table = Table(np.zeros((n, 1)), np.empty_like(y), None)
    table.y[test_rows] = y
    oof = OutOfFold([Mean(m) for m in means], test_rows, table, weights, fold)
    spread, error = oof.spread_and_error()
    centre = weights @ y / weights.sum()
    variance = weights @ np.square(y - centre) / weights.sum()
    expected = []
    for mean in means:
        total = np.zeros(2)
        for k in range(3):
            rows = fold == k
            share = weights[rows] / weights[rows].sum()
            total += weights[rows] @ np.square(mean[rows] - share @ mean[rows])
        expected.append(np.sqrt(total / weights.sum() / variance).max())
    np.testing.assert_allclose(spread, expected, atol=1e-12)
    assert spread[1] == pytest.approx(0, abs=1e-12)
    squares = [weights @ np.square(m - y) / weights.sum() / variance for m in means]
    np.testing.assert_allclose(error, np.mean(squares, axis=1))


def test_constants_have_no_weight(seed):
    """Such as networks with a very narrow prior; if all are constant, one stays."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, 2))
    network = MCDropoutRegressor((5,), max_iter=60, random_state=0)
    pool = [
        ("network", network, {"length_scale": [1.0]}),
        ("constant", network, {"length_scale": [1e4, 2e4]}),
    ]
    stack = BayesianStackingRegressor(pool, cv=3, random_state=0)
    y = 3 * X[:, 0] + 0.1 * random.normal(size=60)
    weights = stack.fit(X, y).weights_["weight"]
    kept = [name for name in weights.index if weights[name]]
    assert kept == ["network(length_scale=1.0)"]
    stack.set_params(estimators=pool[1:]).fit(X, y)
    assert np.count_nonzero(stack.weights_["weight"]) == 1
    assert np.isfinite(stack.log_predictive_density(X, y)).all()
