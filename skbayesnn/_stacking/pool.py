"""The default candidates: what is tried where a user names nothing."""

from typing import Any, NamedTuple

from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.preprocessing import PiecewiseLinearEncoder


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


# Rows from which on networks are wider.
_MANY_ROWS = 4000
# Bins of a column, and columns with all of their bins: what a network costs goes with
# the number of its inputs.
_FEWEST_BINS, _MOST_BINS, _MOST_ENCODED = 4, 16, 256


def default_pool(X, sample_weight, *, of_classes: bool, **params) -> list[Entry]:
    """Networks of several length scales and rates, linear models, encoded columns.

    X : {array, sparse matrix} of shape (rows, columns), checked
    sample_weight : ndarray of shape (rows,)
    params : of all networks
    """
    kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
    if not of_classes:
        params = {"likelihood": "heteroscedastic"} | params
    wide = X.shape[0] >= _MANY_ROWS
    params = {"hidden_layer_sizes": (128, 128) if wide else (64, 64)} | params
    network = kind(**params)
    linear = kind(**params | {"hidden_layer_sizes": (), "dropout": 0.0})
    pool = [
        Entry("network", network, _raw(of_classes)),
        Entry("linear", linear, {"length_scale": [1.0, 3.0, 10.0]}),
    ]
    n_bins = min(_MOST_BINS, _MOST_ENCODED // X.shape[1])
    if sparse.issparse(X) or n_bins < _FEWEST_BINS:
        return pool
    # It looks at no y: fitted to all rows, it has equally many columns in all folds,
    # which can share a program.
    encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True)
    fitted = FrozenEstimator(encoder.fit(X, sample_weight=sample_weight))
    encoded = Pipeline([("encoder", fitted), ("network", kind(**params))])
    return [*pool, Entry("encoded", encoded, _encoded(of_classes))]


def _raw(of_classes):
    if of_classes:
        return {"length_scale": [1.0, 3.0, "auto"], "dropout": [0.02, 0.1, 0.3]}
    return {"length_scale": [1.0, 3.0, "auto"], "dropout": [0.0, 0.01]}


def _encoded(of_classes):
    scales = {"network__length_scale": [1.0, 3.0, "auto"]}
    rates = [0.02, 0.1, 0.3] if of_classes else [0.0, 0.01]
    return scales | {"network__dropout": rates}
