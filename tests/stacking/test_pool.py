"""Pools of candidates: the default pool, and pools of users."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import QuantileRegressor
from sklearn.model_selection import (
    ParameterGrid,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
)
from skbayesnn._batch.jobs import network_of
from skbayesnn._stacking import pool as pools
from skbayesnn._stacking.candidates import expand_pool, n_networks
from tests.helpers.stacks import (
    NETWORK,
    ROWS,
    regressor,
)


def test_names_of_candidates_are_short(seed):
    """They have no parameter that others determine; pandas shows 50 characters."""
    X = np.random.default_rng(seed).normal(size=(8000, 3))
    for is_classification in (False, True):
        options = {"is_classification": is_classification, "max_iter": "auto"}
        specs = pools.default_specs(X, np.ones(len(X)), **options)
        names = [candidate.name for candidate in expand_pool(specs)]
        assert len(set(names)) == len(names) > 15
        assert max(map(len, names)) < 50
    grid = [{"a": [1], "bcd": [2]}, {"a": [2], "bcd": [3], "size": [7, 8]}]
    [*given] = expand_pool([pools.CandidateSpec("net", MCDropoutClassifier(), grid)])
    expected = ["net", "net(size=7)", "net(size=8)"]
    assert [candidate.name for candidate in given] == expected


def test_default_pool_depends_on_the_rows_with_weight(monkeypatch):
    monkeypatch.setattr(pools, "WIDE_FROM", 50)
    options = {"is_classification": False, "max_iter": 1}
    X = np.random.default_rng(0).random((90, 2))
    for n_used, width in ((49, pools.WIDTH), (50, pools.LARGE_WIDTH)):
        weights = np.repeat([2.0, 0.0], [n_used, 90 - n_used])
        network = pools.default_specs(X, weights, **options)[1].estimator
        assert network.hidden_layer_sizes == (width, width)


def test_default_pool_has_four_kinds_of_networks(table):
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, cv=2, random_state=0).fit(X, y)
    names = {name.split("(")[0] for name in model.weights_.index}
    assert names == {"network", "encoded", "linear", "laplace"}


def test_sparse_tables_with_few_columns_are_made_dense(table):
    """Such as one-hot encoded categories; with many columns they stay sparse."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=1, cv=2, random_state=0)
    csr = sparse.csr_array(X)
    from_sparse, from_dense = clone(model).fit(csr, y), clone(model).fit(X, y)
    for rows in (X, csr):
        np.testing.assert_array_equal(from_sparse.predict(rows), from_dense.predict(X))
    wide = sparse.hstack([csr, sparse.csr_array((ROWS, 300))], format="csr")
    model.fit(wide, y)
    names = {name.split("(")[0] for name in model.weights_.index}
    assert names == {"network", "linear"}


@pytest.mark.parametrize("is_classification", [False, True])
def test_many_rows_train_fewer_epochs_at_the_higher_dropout(
    monkeypatch, is_classification
):
    X, weights = np.random.default_rng(0).random((50, 3)), np.ones(50)
    options = {"is_classification": is_classification, "max_iter": "auto"}
    few = pools.default_specs(X, weights, **options)
    monkeypatch.setattr(pools, "MANY_ROWS", 50)
    many = pools.default_specs(X, weights, **options)
    fixed = pools.default_specs(X, weights, **options | {"max_iter": 10})
    for candidate, expected in zip(fixed, few, strict=True):
        assert candidate.grid == expected.grid
    for before, after in zip(few, many, strict=True):
        assert len(ParameterGrid(before.grid)) == len(ParameterGrid(after.grid))
        if before.name in ("linear", "laplace"):
            assert before.grid == after.grid
            continue
        if before.name == "encoded":
            widths = [
                candidate.estimator[0].estimator.n_bins for candidate in (before, after)
            ]
            assert widths == [pools.MAX_BINS, pools.MAX_BINS_OF_MANY_ROWS]
        lower, higher = after.grid
        assert lower == before.grid[0]
        [n_epochs] = (higher[key] for key in higher if key.endswith("max_iter"))
        all_epochs = network_of(before.estimator).max_iter
        assert n_epochs == [math.ceil(pools.SHARE_OF_STEPS * all_epochs)]
        rates = (
            [grid[k] for k in grid if k.endswith("dropout")] for grid in after.grid
        )
        assert next(rates) < next(rates)


# ---- sizes


@pytest.mark.parametrize("is_classification", [False, True])
def test_larger_pools_contain_the_smaller_ones(is_classification):
    """The settings of the fast pool are among the default ones, and so on."""
    X, weights = np.random.default_rng(0).random((250, 3)), np.ones(250)
    settings = []
    for size in pools.SIZES:
        specs = pools.default_specs(
            X,
            weights,
            is_classification=is_classification,
            max_iter="auto",
            size=size,
        )
        settings.append(
            {
                (spec.name, tuple(sorted((k, str(v)) for k, v in params.items())))
                for spec in specs
                for params in ParameterGrid(spec.grid)
            }
        )
    fast, auto, best = settings
    assert fast < auto < best
    groups = [{name for name, _ in names} for names in settings]
    assert groups[0] | ({"boosted_trees"} & groups[1]) == groups[1] == groups[2]


def test_fast_pool_has_fewer_steps_and_trees():
    X, weights = np.random.default_rng(0).random((5000, 3)), np.ones(5000)
    options = {"is_classification": False, "max_iter": "auto"}
    fast, auto = (
        {spec.name: spec.estimator for spec in pools.default_specs(*arguments, **more)}
        for arguments, more in (
            ((X, weights), options | {"size": "fast"}),
            ((X, weights), options),
        )
    )
    n_batches = math.ceil(5000 / fast["network"].batch_size)
    assert fast["network"].max_iter == math.ceil(pools.MAX_FAST_STEPS / n_batches)
    assert auto["network"].max_iter == math.ceil(pools.MAX_STEPS / n_batches)
    assert fast["forest"].n_trees < auto["forest"].n_trees


@pytest.mark.parametrize(
    ("size", "n_refits", "n_folds"), [("fast", 2, 1), ("auto", 4, 1), ("best", 6, 5)]
)
def test_size_sets_starts_and_folds(table, monkeypatch, size, n_refits, n_folds):
    """By default; a list has the largest size of its items."""
    X, y = table
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    smaller = [("encoded", "fast"), ("network", size)]
    for estimators in (size, skbayesnn.default_pool(size), smaller):
        model = BayesianStackingRegressor(estimators, max_iter=1, random_state=0)
        model.fit(X, y)
        assert len(model.fold_estimators_) == n_folds
        # Linear models of few rows are not networks.
        assert set(map(n_networks, model.estimators_)) <= set(range(1, n_refits + 1))
    given = BayesianStackingRegressor(size, max_iter=1, n_refits=3, cv=2)
    given.fit(X, y)
    assert len(given.fold_estimators_) == 2


def test_sizes_of_classifiers(labelled):
    X, y = labelled
    for size, n_refits in (("fast", 1), ("auto", 2), ("best", 4)):
        model = BayesianStackingClassifier(size, max_iter=1, cv=2, random_state=0)
        model.fit(X, y)
        assert set(map(n_networks, model.estimators_)) <= set(range(1, n_refits + 1))


def test_unknown_sizes_are_refused(table):
    with pytest.raises(ValueError, match="one of 'fast', 'auto', 'best'; got 'quick'"):
        BayesianStackingRegressor("quick").fit(*table)
    with pytest.raises(ValueError, match="`size` must be one of 'fast'"):
        skbayesnn.default_pool("quick")


def test_trees_are_candidates_with_many_rows(seed):
    random = np.random.default_rng(seed)
    few = pools.TREES_FROM
    for n_rows, n_columns, size, is_classification, expected in [
        (few, 3, "auto", False, ["forest"]),
        (few - 1, 3, "auto", False, []),
        (few, few, "auto", False, []),
        (few, 3, "auto", True, ["forest", "boosted_trees"]),
        (few, 3, "fast", True, ["forest"]),
        (few - 1, 3, "auto", True, []),
        (few, few, "auto", True, []),
    ]:
        X = random.normal(size=(n_rows, n_columns))
        pool = pools.default_specs(
            X,
            np.ones(n_rows),
            is_classification=is_classification,
            max_iter=1,
            size=size,
        )
        names = [spec.name for spec in pool]
        trees = [name for name in names if name in ("forest", "boosted_trees")]
        assert trees == expected


def test_stack_with_default_forests(seed):
    """A step in each row, which networks of one epoch do not find."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(300, 3))
    y = np.where(X[:, 0] > 0, 5.0, 0) + 0.3 * random.normal(size=300)
    pool = [item for item in skbayesnn.default_pool() if item[0] != "laplace"]
    model = BayesianStackingRegressor(pool, max_iter=1, cv=2, random_state=0).fit(X, y)
    weights = model.weights_["weight"]
    assert sum(w for name, w in weights.items() if name.startswith("forest(")) > 0.5
    again = skbayesnn.loads(skbayesnn.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_columns_of_few_values_take_no_bins():
    """With ninety binary columns all bins go to the two numeric columns."""
    random = np.random.default_rng(0)
    X = random.integers(2, size=(100, 92)).astype(float)
    X[:, 90:] = random.random((100, 2))
    options = {"is_classification": False, "max_iter": 1}
    pool = pools.default_specs(X, np.ones(100), **options)
    [encoded] = (entry.estimator for entry in pool if entry.name == "encoded")
    n_bins = encoded[0].estimator.n_bins_
    assert n_bins.tolist() == [0] * 90 + [pools.MAX_BINS] * 2
    names = [
        entry.name for entry in pools.default_specs(X[:, :90], np.ones(50), **options)
    ]
    assert names == ["network", "linear"]


def test_repeated_values_get_features():
    """Columns share a limit, and the unit of the weights does not matter."""
    random = np.random.default_rng(0)
    amounts = np.append(100.0 * np.arange(1, 100) ** 2, 101.0)
    codes = np.append(np.zeros(2800), np.resize(amounts, 200))
    X = random.random((3000, 5))
    X[:, 1], X[:, 3] = random.permutation(codes), random.permutation(codes)
    options = {"is_classification": True, "max_iter": 1}
    half = pools.MAX_VALUES // 2
    for n_columns, expected in [(3, [0, 100, 0]), (5, [0, half, 0, half, 0])]:
        for unit in (1.0, 1e-6, 30.0, 1 / 3):
            weights = np.full(3000, unit)
            entry, *_ = pools.default_specs(X[:, :n_columns], weights, **options)
            values = entry.estimator[0].estimator.values_
            assert [len(values_of_column) for values_of_column in values] == expected


def test_weights_reach_pipelines_with_and_without_metadata_routing(table):
    X, y = table
    weights = np.linspace(0.5, 2, ROWS)
    expected = regressor().fit(X, y, sample_weight=weights).predict(X)
    with config_context(enable_metadata_routing=True):
        model = regressor().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_random_state_is_passed_to_candidates_without_one(table):
    X, y = table
    network = clone(NETWORK).set_params(random_state=None)
    first, second = (
        BayesianStackingRegressor([("only", network)], cv=2, random_state=3).fit(X, y)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert network.random_state is None


def test_candidates_that_cannot_be_pickled_are_fitted(table):
    X, y = table
    plain = make_pipeline(FunctionTransformer(lambda X: X), NETWORK)
    model = BayesianStackingRegressor([("plain", plain)], cv=3).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        ([], TypeError, r"`estimators` must be 'fast', 'auto', 'best' or .* got \[\]"),
        ([NETWORK], TypeError, r"or a list of \(name, estimator\)"),
        ([(3, NETWORK)], TypeError, "got the name 3"),
        ([("a", NETWORK), ("a", NETWORK)], ValueError, "must differ; got a more"),
        ([("a", NETWORK, {"tau": [2.0, 2.0]})], ValueError, r"got a\(tau=2.0\) more"),
        ([("a", KMeans())], TypeError, "regressors only; got KMeans"),
        ([("tree", "auto")], ValueError, r"default candidate.*got \('tree', 'auto'\)"),
        ([("linear", "good")], ValueError, r"sizes fast, auto.*\('linear', 'good'\)"),
        ([("linear", "auto", {"length_scale": [1.0]})], TypeError, "left out"),
        ([("a", MCDropoutClassifier())], TypeError, "regressors only; got MCDropoutC"),
        ([("a", NETWORK, {"likelihood": [["gaussian"]]})], ValueError, "`likelihood`"),
        (
            [("a", NETWORK), ("b", NETWORK, {"likelihood": ["poisson"]})],
            TypeError,
            "counts from 'b' and real numbers from 'a'",
        ),
        (
            [
                ("a", NETWORK, {"likelihood": ["poisson"]}),
                ("b", QuantileRegressor()),
            ],
            TypeError,
            "counts from 'a' and real numbers from 'b'",
        ),
    ],
)
def test_invalid_pools_are_refused_before_training(table, pool, error, message):
    model = BayesianStackingRegressor(pool, verbose=True)
    with pytest.raises(error, match=message):
        model.fit(*table)


def test_grid_of_a_candidate_is_optional(table):
    model = BayesianStackingRegressor([("only", NETWORK)], cv=2).fit(*table)
    assert model.weights_.index.tolist() == ["only"]
