"""The Bayesian stack in the multivariate ScoringBench: joint draws of targets."""

import numpy as np

from .sample_based import SampleBasedWrapper


class BayesianStackingMultiOutputWrapper(SampleBasedWrapper):
    """Wrap ``skbayesnn.BayesianStackingRegressor`` with several targets.

    Parameters
    ----------
    pool : {"fast", "auto", "best"}, default="auto"
    random_state : int, default=0
    """

    def __init__(self, pool="auto", random_state=0):
        self.pool = pool
        self.random_state = random_state

    def fit(self, X, Y):
        """Fit the stack to rows with finite targets, (n_samples, n_targets)."""
        from skbayesnn import BayesianStackingRegressor

        Y = np.asarray(Y, dtype=float)
        used = np.flatnonzero(np.isfinite(Y).all(axis=1))
        X = X.iloc[used] if hasattr(X, "iloc") else np.asarray(X)[used]
        model = BayesianStackingRegressor(self.pool, random_state=self.random_state)
        self._model = model.fit(X, Y[used])
        return self

    def predict(self, X):
        """Mean of the predictive distribution, (n_samples, n_targets)."""
        return self._model.predict(X)

    def _draw_samples(self, X, n_samples):
        """Joint draws of the targets, (n_samples_X, n_samples, n_targets)."""
        draws = self._model.sample_y(X, n_samples, random_state=self.random_state)
        return np.moveaxis(draws, -1, 1)
