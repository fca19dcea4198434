"""Bayesian neural networks that are ordinary scikit-learn estimators."""

from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor

__version__ = "0.1.0"

__all__ = ["MCDropoutClassifier", "MCDropoutRegressor"]
