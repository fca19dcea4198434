"""The Bayesian stack in ScoringBench, as quantiles of its predictive distribution."""

import numpy as np

from .base import DistributionPrediction, ProbabilisticWrapper

# The benchmark puts the probability beyond the outer levels on the outer quantiles.
_TAIL = np.array([0.0005, 0.001, 0.002])
LEVELS = np.concatenate([_TAIL, np.arange(1, 200) / 200, 1 - _TAIL[::-1]])


class BayesianStackingWrapper(ProbabilisticWrapper):
    """Wrap ``skbayesnn.BayesianStackingRegressor``.

    The benchmark itself fills in missing values.

    Parameters
    ----------
    pool : {"fast", "auto", "best"}, default="auto"
    random_state : int, default=0
    """

    def __init__(self, pool="auto", random_state=0):
        self.pool = pool
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the stack to rows with a finite y."""
        from skbayesnn import BayesianStackingRegressor

        y = np.asarray(y, dtype=float).reshape(-1)
        used = np.flatnonzero(np.isfinite(y))
        self._set_train_range(y[used])
        X = X.iloc[used] if hasattr(X, "iloc") else np.asarray(X)[used]
        model = BayesianStackingRegressor(self.pool, random_state=self.random_state)
        self._model = model.fit(X, y[used])
        return self

    def predict(self, X):
        """Mean of the predictive distribution, (n_samples,)."""
        return self._model.predict(X)

    def predict_distribution(self, X):
        """Quantiles and mean of the predictive distribution."""
        return DistributionPrediction.from_multi_quantile(
            self._model.predict_quantile(X, LEVELS),
            LEVELS,
            self._model.predict(X),
            train_range=self._y_train_range,
        )
