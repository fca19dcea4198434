"""Scorers: plain callables ``(estimator, X, y)``, larger is better.

Usable as ``scoring=`` of the searches and of ``cross_validate``, through the
meta-estimators of :mod:`skbayesnn.meta`:

>>> from sklearn.model_selection import GridSearchCV
>>> from skbayesnn import MCDropoutRegressor
>>> from skbayesnn.scoring import log_density_scorer
>>> search = GridSearchCV(
...     MCDropoutRegressor(), {"tau": [0.1, 1.0]}, scoring=log_density_scorer
... )
"""

import numpy as np

from skbayesnn.meta import crps, log_predictive_density, predict_interval
from skbayesnn.metrics import interval_coverage, interval_width


def log_density_scorer(estimator, X, y, sample_weight=None):
    """Mean log predictive density (regression) or log probability (classes), nats."""
    density = log_predictive_density(estimator, X, y)
    return float(np.average(density, weights=sample_weight))


def neg_crps_scorer(estimator, X, y, sample_weight=None):
    """Minus the mean continuous ranked probability score, y's units."""
    return -float(np.average(crps(estimator, X, y), weights=sample_weight))


def interval_coverage_scorer(estimator, X, y, sample_weight=None, coverage=0.9):
    """Share of y inside the central 90 % interval: best near 0.9, not near 1."""
    return interval_coverage(y, predict_interval(estimator, X, coverage), sample_weight)


def neg_interval_width_scorer(estimator, X, y, sample_weight=None, coverage=0.9):
    """Minus the mean width of the central 90 % interval, y's units."""
    return -interval_width(predict_interval(estimator, X, coverage), sample_weight)
