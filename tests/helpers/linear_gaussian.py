"""A quick regressor whose fit and predictive distribution have a closed form."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._predictive.mixture import MixturePredictive


class LinearGaussian(RegressionPredictiveMixin, RegressorMixin, BaseEstimator):
    """Least squares; the predictive is a mixture of Gaussians about the prediction.

    Parameters
    ----------
    factor : float
        The predictive's std divided by the std of the residuals.
    deviation : float in [0, 1)
        The two draws' distance from the mean divided by the std.
    uneven : float
        The std is multiplied by exp(uneven * x_0).

    Attributes
    ----------
    seen_ : ndarray
        The first column of X, which identifies the rows.
    """

    def __init__(self, factor=1.0, deviation=0.0, uneven=0.0):
        self.factor = factor
        self.deviation = deviation
        self.uneven = uneven

    def fit(self, X, y, sample_weight=None):
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        self.flat_ = y.ndim == 1
        root, y = np.sqrt(weight)[:, None], y.reshape(len(y), -1)
        self.coef_ = np.linalg.lstsq(root * self._design(X), root * y)[0]
        residuals = y - self._design(X) @ self.coef_
        self.std_ = np.sqrt(np.average(np.square(residuals), axis=0, weights=weight))
        self.seen_, self.n_features_in_ = X[:, 0].copy(), X.shape[1]
        return self

    def predict(self, X):
        mean = self._design(np.asarray(X, dtype=float)) @ self.coef_
        return mean[:, 0] if self.flat_ else mean

    def _open_predictive(self, X):
        X = np.asarray(X, dtype=float)
        return PredictiveBlocks(len(X), lambda rows: self._predictive(X[rows]))

    def _predictive(self, X):
        std = self.factor * self.std_ * np.exp(self.uneven * X[:, :1])
        mean = self._design(X) @ self.coef_
        draws = mean + np.multiply.outer([-self.deviation, self.deviation], std)
        variance = np.broadcast_to((1 - self.deviation**2) * std**2, draws.shape)
        return MixturePredictive(Gaussians(draws, variance), self.flat_)

    @staticmethod
    def _design(X):
        return np.hstack([np.ones((len(X), 1)), X])
