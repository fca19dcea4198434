"""The default candidates: what is tried where a user names nothing.

benchmarks/STUDY.md says how they were chosen.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skbayesnn._stacking.folds import FOLDS_BELOW
from skbayesnn._stacking.linear import ShrunkLinearClassifier, ShrunkLinearRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.model_selection._jobs import network_of
from skbayesnn.preprocessing import PiecewiseLinearEncoder

Grid = dict[str, Sequence[Any]]

# Units of both hidden layers: fewer than so many rows, and more.
WIDTHS, WIDE_FROM = (32, 64), 3000
# Steps of the training per root of the number of rows, and the fewest and most.
REGRESSION_STEPS, CLASSIFICATION_STEPS, STEPS = 75, 40, (750, 5000)
# Bins of a column: of fewer rows, and of more; and bins of all columns: what a network
# costs goes with the number of its inputs.
FEWEST_BINS, MOST_BINS, MOST_ENCODED = 4, (16, 32), 256
# Values with a feature of their own, of all columns that have some.
MOST_VALUES = 128
# A sparse table of few columns has categories beside numbers, which can be encoded if
# it is dense: columns at most, and entries of the array.
MOST_COLUMNS, MOST_DENSE = 256, 2**25
# From so many rows on networks at the higher rate, which are soon as good as they get,
# take this share of the steps; and columns have more bins.
MANY_ROWS, SHARE_OF_STEPS = 10_000, 0.25

# The lower and the higher rate. Kinks suit some tables, smooth functions others.
REGRESSION_RATES: tuple[Grid, Grid] = (
    {"dropout": [0.0]},
    {"dropout": [0.01], "activation": ["silu"]},
)
CLASSIFICATION_RATES: tuple[Grid, Grid] = {"dropout": [0.05]}, {"dropout": [0.2]}
# Of classifiers on the columns; on their encoding these steps would be too long.
LONG_STEPS = {"learning_rate_init": 0.03}
REGRESSION_LENGTH_SCALES = (1.0, 3.0, "fan_in")
CLASSIFICATION_LENGTH_SCALES = (0.3, 1.0, 3.0)
# Linear models, from next to no shrinkage to much. Their noise is equal everywhere:
# they are there for few rows, which tell no other.
LINEAR_LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
# Ridge and lassos take their place with fewer rows than the first, or more columns than
# this share of the rows: their penalty is estimated, and they have a posterior. Tables
# are dense for them, up to so many rows and entries.
SHRUNK_BELOW, SHARE_OF_COLUMNS = FOLDS_BELOW, 0.2
SHRUNK_ROWS, SHRUNK_ENTRIES = range(10, 1001), 2**22
REGRESSION_PENALTIES = "ridge", "lasso", "adaptive_lasso"
CLASSIFICATION_PENALTIES = {
    "ridge": (0.3, 1.0, 3.0, 10.0),
    "lasso": (0.4, 0.2, 0.1, 0.05),
}


class Entry(NamedTuple):
    """One estimator of the pool, with the settings to be tried.

    Parameters
    ----------
    name : str
    estimator : estimator
        Of this package, or a pipeline that ends in one.
    grid : dict, or list of dict
        As of ``ParameterGrid``.
    """

    name: str
    estimator: Any
    grid: Any


def given_pool(estimators, seed: int) -> list[Entry]:
    """What a user gives in place of the default pool, checked.

    seed : of networks without a ``random_state``

    Raises
    ------
    TypeError, ValueError
        Other than a list of (name, estimator) or (name, estimator, grid), with names
        that differ.
    """
    rule = (
        "`estimators` must be 'auto' or a list of (name, estimator) or (name, "
        "estimator, grid of its parameters)"
    )
    if not isinstance(estimators, list | tuple) or not estimators:
        raise TypeError(f"{rule}; got {estimators!r}.")
    pool = []
    for one in estimators:
        if not isinstance(one, list | tuple) or len(one) not in (2, 3):
            raise TypeError(f"{rule}; got {one!r} among them.")
        name, estimator, *grid = one
        if not isinstance(name, str):
            raise TypeError(f"{rule}; got the name {name!r}.")
        estimator = clone(estimator)
        network = network_of(estimator)
        if network.random_state is None:
            network.set_params(random_state=seed)
        pool.append(Entry(name, estimator, grid[0] if grid else {}))
    return pool


def default_pool(
    X, sample_weight, *, of_classes: bool, max_iter, **params
) -> list[Entry]:
    """Networks on the columns and on their encoding, and linear models.

    With as many columns as rows, or more, there are fewer networks: linear models with
    a penalty predict as well or better there, unless the function is far from linear in
    a few directions.

    X : {array, sparse matrix} of shape (rows, columns), checked
    sample_weight : ndarray of shape (rows,)
    max_iter : int, epochs, or "auto"
    params : of all networks
    """
    n_rows = int(np.count_nonzero(sample_weight))
    kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
    width = WIDTHS[n_rows >= WIDE_FROM]
    params |= {
        "hidden_layer_sizes": (width, width),
        "batch_size": _batch_rows(n_rows),
        "max_iter": max_iter,
        # Held-out rows weight the candidates.
        "early_stopping": False,
    }
    if max_iter == "auto":
        steps = CLASSIFICATION_STEPS if of_classes else REGRESSION_STEPS
        params["max_iter"] = _epochs(n_rows, steps)
    shrunk, wide = _has_shrunk(X, n_rows), X.shape[1] >= n_rows
    linear = _linear(kind(**params), of_classes, shrunk)
    if not of_classes:
        params["likelihood"] = "heteroscedastic"
    grids = _grids(of_classes)
    if max_iter == "auto" and n_rows >= MANY_ROWS:
        grids[1]["max_iter"] = [math.ceil(SHARE_OF_STEPS * params["max_iter"])]
    on_columns = kind(**params | LONG_STEPS) if of_classes else kind(**params)
    if shrunk and wide and not of_classes:
        grids = [one | {"length_scale": ["fan_in"]} for one in grids]
    pool = [Entry("network", on_columns, grids), linear]
    n_bins = 0 if sparse.issparse(X) or wide else _bins(X, sample_weight)
    if n_bins < FEWEST_BINS:
        return pool
    # It looks at no y: fitted to all rows, it has equally many columns in all folds,
    # which can share a program.
    encoder = FrozenEstimator(_encoder(X, sample_weight, n_bins))
    encoded = Pipeline([("encoder", encoder), ("network", kind(**params))])
    grids = [
        {f"network__{name}": values for name, values in grid.items()} for grid in grids
    ]
    # The longest first, for workers side by side.
    return [Entry("encoded", encoded, grids), *pool]


def _has_shrunk(X, n_rows: int) -> bool:
    """Whether the linear models are ridge and lassos."""
    few = n_rows < SHRUNK_BELOW or X.shape[1] > SHARE_OF_COLUMNS * n_rows
    return few and n_rows in SHRUNK_ROWS and n_rows * X.shape[1] <= SHRUNK_ENTRIES


def _linear(network, of_classes: bool, shrunk: bool) -> Entry:
    """The linear models: ridge and lassos, or networks without hidden layers.

    network : of the pool, with its number of epochs
    """
    seed = network.random_state
    if not shrunk:
        network.set_params(hidden_layer_sizes=(), dropout=0.0)
        return Entry("linear", network, {"length_scale": LINEAR_LENGTH_SCALES})
    if not of_classes:
        grid: Any = {"penalty": REGRESSION_PENALTIES}
        return Entry("linear", ShrunkLinearRegressor(random_state=seed), grid)
    grid = [
        {"penalty": [penalty], "strength": strengths}
        for penalty, strengths in CLASSIFICATION_PENALTIES.items()
    ]
    return Entry("linear", ShrunkLinearClassifier(random_state=seed), grid)


def dense_if_small(X):
    """X as an array, unless it is sparse and large."""
    if not sparse.issparse(X):
        return X
    small = X.shape[1] <= MOST_COLUMNS and X.shape[0] * X.shape[1] <= MOST_DENSE
    return X.toarray() if small else X


def _batch_rows(n_rows: int) -> int:
    """A power of two, some 40 batches of many rows."""
    return int(min(max(2 ** round(math.log2(n_rows / 40)), 128), 1024))


def _epochs(n_rows: int, per_root: float) -> int:
    fewest, most = STEPS
    steps = min(max(per_root * math.sqrt(n_rows), fewest), most)
    return math.ceil(steps / math.ceil(n_rows / _batch_rows(n_rows)))


def _grids(of_classes: bool) -> list[Grid]:
    """What differs among the networks, at the lower rate and at the higher."""
    rates = CLASSIFICATION_RATES if of_classes else REGRESSION_RATES
    scales = CLASSIFICATION_LENGTH_SCALES if of_classes else REGRESSION_LENGTH_SCALES
    return [one | {"length_scale": scales} for one in rates]


def _encoder(X, sample_weight, n_bins: int) -> PiecewiseLinearEncoder:
    """Fitted."""
    encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True)
    # A value needs some rows, whatever unit the weights have.
    weights = sample_weight * (np.count_nonzero(sample_weight) / sample_weight.sum())
    encoder.set_params(n_values=MOST_VALUES).fit(X, sample_weight=weights)
    n_values = [len(values) for values in encoder.values_ if len(values)]
    if sum(n_values) > MOST_VALUES:
        encoder.set_params(n_values=MOST_VALUES // len(n_values))
        encoder.fit(X, sample_weight=weights)
    return encoder


def _bins(X, sample_weight) -> int:
    """Of each column; those of one or two values have none."""
    X = X[sample_weight > 0]
    most = MOST_BINS[len(X) >= MANY_ROWS]
    n_encoded = sum(len(np.unique(column)) > 2 for column in X.T)
    return min(most, MOST_ENCODED // n_encoded) if n_encoded else 0
