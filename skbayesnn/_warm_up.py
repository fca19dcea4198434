"""Compile what default fits and predictions need, before a service starts."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from skbayesnn._stacking.classifier import BayesianStackingClassifier
from skbayesnn._stacking.regressor import BayesianStackingRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.neighbours import NeighbourClassifier, NeighbourRegressor

# Enough for all candidates of the default pool that are not for large tables.
_N_ROWS = 240


def warm_up() -> None:
    """Compile, or load from the cache, what default fits and predictions need.

    Call it once when a process starts that has a time limit: a service, or a benchmark.
    The first fit and the first prediction afterwards take as long as later ones. The
    function fits the default estimators to small tables. It takes about half a minute
    on a new machine, and about 7 s once the compiled code is in the cache.

    Warns
    -----
    UserWarning
        If the compiled code cannot be stored, since neither the package's folder nor
        numba's cache folder can be written (SKB115).

    Examples
    --------
    >>> import skbayesnn
    >>> skbayesnn.warm_up()
    """
    random = np.random.default_rng(0)
    X = random.normal(size=(_N_ROWS, 4))
    targets = {True: X[:, 0] + 0.1 * random.normal(size=_N_ROWS), False: X[:, 0] > 0}
    models: list[Any] = [
        MCDropoutRegressor(random_state=0),
        MCDropoutClassifier(random_state=0),
        BayesianStackingRegressor("fast", random_state=0),
        BayesianStackingClassifier("fast", random_state=0),
        # Candidates for large tables.
        NeighbourRegressor(n_estimators=1, max_iter=2, random_state=0),
        NeighbourClassifier(n_estimators=1, max_iter=2, random_state=0),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)(?!.*SKB115)")
        for model in models:
            model.fit(X, targets[is_regressor(model)])
            for rows in (X, X[:1]):
                model.predict_distribution(rows)
                if is_regressor(model):
                    model.predict(rows, return_std=True)
                    model.predict_interval(rows)
                else:
                    model.predict_proba(rows)
                    model.predict_uncertainty(rows)
