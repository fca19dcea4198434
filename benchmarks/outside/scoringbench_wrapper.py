"""The Bayesian stack in ScoringBench, as quantiles of its predictive distribution."""

import numpy as np

from .base import DistributionPrediction, ProbabilisticWrapper


class BayesianStackingWrapper(ProbabilisticWrapper):
    """Wrap ``skbayesnn.BayesianStackingRegressor``.

    It takes the frame as it is: categories, dates and missing values.

    Parameters
    ----------
    pool : {"fast", "auto", "best"}, default="auto"
    n_quantiles : int, default=199
        Number of quantiles, at evenly spaced probabilities.
    random_state : int, default=0
    """

    def __init__(self, pool="auto", n_quantiles=199, random_state=0):
        self.pool = pool
        self.n_quantiles = n_quantiles
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
        levels = np.arange(1, self.n_quantiles + 1) / (self.n_quantiles + 1)
        return DistributionPrediction.from_multi_quantile(
            self._model.predict_quantile(X, levels),
            levels,
            self._model.predict(X),
            train_range=self._y_train_range,
        )
