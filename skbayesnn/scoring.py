"""Scorers for ``scoring=``; larger is better.

Scorers are called as ``scorer(estimator, X, y, sample_weight=None)``. Use them in
searches and in ``cross_validate``, one alone or several in a dict, and through the
meta-estimators of :mod:`skbayesnn`:

>>> from sklearn.model_selection import GridSearchCV
>>> from skbayesnn import MCDropoutRegressor
>>> from skbayesnn.scoring import interval_coverage_scorer, log_density_scorer
>>> search = GridSearchCV(
...     MCDropoutRegressor(),
...     {"tau": [0.1, 1.0]},
...     scoring={
...         "density": log_density_scorer,
...         "coverage": interval_coverage_scorer.with_options(coverage=0.5),
...     },
...     refit="density",
... )

:mod:`skbayesnn.metrics` has the same scores as functions of arrays. With scikit-learn's
metadata routing, use ``log_density_scorer.set_score_request(sample_weight=True)`` to
weight the test rows.
"""

from __future__ import annotations

import copy
import reprlib
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import MetadataRequest

from skbayesnn._meta.functions import predict_distribution, predict_interval
from skbayesnn._sklearn_compat import safe_indexing
from skbayesnn._typing import MatrixLike
from skbayesnn.metrics import (
    area_under_risk_coverage,
    brier_score,
    coverage_error,
    expected_calibration_error,
    interval_coverage,
    interval_score,
    interval_width,
    ood_auroc,
    pinball_loss,
    quantile_calibration_error,
)
from skbayesnn.metrics._validation import LEVELS, drop_zero_weights, weighted_mean

__all__ = [
    "Scorer",
    "interval_coverage_scorer",
    "log_density_scorer",
    "neg_aurc_scorer",
    "neg_brier_scorer",
    "neg_calibration_error_scorer",
    "neg_coverage_error_scorer",
    "neg_crps_scorer",
    "neg_interval_score_scorer",
    "neg_interval_width_scorer",
    "neg_pinball_scorer",
    "ood_auroc_scorer",
]


class Scorer:
    """A score for ``scoring=``, larger is better.

    Parameters
    ----------
    name : str
        Name of the scorer.
    function : callable
        ``(estimator, X, y, sample_weight, **options) -> float``. Define it at the top
        level of a module, so that the scorer can be pickled.
    **options
        Options that are passed to ``function`` in every call.
    """

    def __init__(self, name, function, **options) -> None:
        self.__name__ = name
        self.__doc__ = function.__doc__
        self.function = function
        self.options = options
        self._weight_request: bool | str | None = None

    def __call__(self, estimator, X, y=None, sample_weight=None, **options):
        """Score a fitted estimator on the rows of X and y."""
        return self.function(estimator, X, y, sample_weight, **self.options | options)

    def with_options(self, **options: Any) -> Scorer:
        """Return a copy with other options, such as ``coverage=0.5``."""
        scorer = copy.copy(self)
        scorer.options = self.options | options
        return scorer

    def set_score_request(self, *, sample_weight: bool | str | None) -> Scorer:
        """Return a copy that requests row weights from metadata routing.

        scikit-learn's scorers change in place. The scorers of this module are shared by
        all importers, so they return a copy.

        Parameters
        ----------
        sample_weight : bool, str or None
            True requests ``sample_weight``, False requests nothing, a string requests
            the metadata of that name, None raises an error if weights are passed.

        Returns
        -------
        scorer : Scorer
        """
        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                "metadata routing must be enabled to request `sample_weight`; it is "
                "off. Call sklearn.set_config(enable_metadata_routing=True)."
            )
        scorer = copy.copy(self)
        scorer._weight_request = sample_weight
        return scorer

    def get_metadata_routing(self) -> Any:
        """Return this scorer's metadata request, for scikit-learn."""
        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="sample_weight", alias=self._weight_request)
        return request

    def _accept_sample_weight(self):
        """Return True: newer searches of scikit-learn call this without routing."""
        return True

    def __repr__(self):
        options = (f"{name}={reprlib.repr(v)}" for name, v in self.options.items())
        return (
            f"{self.__name__}({', '.join(options)})" if self.options else self.__name__
        )


# ---- regressors and classifiers


def _log_density(estimator, X, y, sample_weight):
    """Mean log predictive density (regression) or log probability (classes), in nats.

    Of y of intervals it is the log probability, and it is a proper score for them.
    A row whose label is not in ``classes_`` has the log probability -inf.
    """
    if is_classifier(estimator):
        # The training rows of a fold may lack a label of its test rows.
        is_known = np.isin(y, estimator.classes_)
        if is_known.any() and not is_known.all():
            density = np.full(len(is_known), -np.inf)
            X, y = safe_indexing(X, is_known), np.asarray(y)[is_known]
            density[is_known] = predict_distribution(estimator, X).logpdf(y)
            return _mean(density, sample_weight)
    return _mean(predict_distribution(estimator, X).logpdf(y), sample_weight)


def _neg_calibration_error(estimator, X, y, sample_weight):
    """Minus the expected calibration error.

    Regression: over the quantile levels 0.05, 0.1, ..., 0.95; y may be intervals.
    Classification: of the most likely label, in 15 bins of equal mass.
    """
    if not is_classifier(estimator):
        below, cdf = np.moveaxis(predict_distribution(estimator, X).pit(y), -1, 0)
        return -quantile_calibration_error(
            cdf, sample_weight=sample_weight, cdf_below=below
        )
    probability, classes = _probability(estimator, X, y)
    return -expected_calibration_error(
        y, probability, classes, sample_weight=sample_weight
    )


def _neg_aurc(estimator, X, y, sample_weight, kind=None):
    """Minus the area under the risk-coverage curve.

    Classification: the error is 0 or 1 and the uncertainty is ``"entropy"``.
    Regression: the error is squared and the uncertainty is the ``"total"`` standard
    deviation; the areas are averaged over targets. ``kind`` selects another
    uncertainty.
    """
    uncertainty = predict_distribution(estimator, X).uncertainty(kind)
    y, prediction = np.asarray(y), np.asarray(estimator.predict(X))
    if y.shape != prediction.shape:
        raise ValueError(
            f"y must be of the shape of the predictions, {prediction.shape}; got "
            f"{y.shape}."
        )
    if is_classifier(estimator):
        return -area_under_risk_coverage(y != prediction, uncertainty, sample_weight)
    errors = np.square(y - prediction)
    areas = [
        area_under_risk_coverage(*columns, sample_weight)
        for columns in zip(_targets(errors), _targets(uncertainty), strict=True)
    ]
    return -float(np.mean(areas))


def _ood_auroc(estimator, X, y, sample_weight, X_outside, kind=None):
    """AUROC of detecting the rows ``X_outside`` by their uncertainty."""
    inside, outside = (
        _targets(predict_distribution(estimator, rows).uncertainty(kind))
        for rows in (X, X_outside)
    )
    areas = [
        ood_auroc(*columns, sample_weight)
        for columns in zip(inside, outside, strict=True)
    ]
    return float(np.mean(areas))


# ---- regressors


def _neg_crps(estimator, X, y, sample_weight):
    """Minus the mean continuous ranked probability score, in y's units.

    y must be exact values: a CRPS of intervals is not proper.
    """
    return -_mean(_of_regressor(estimator, X).crps(y), sample_weight)


def _neg_pinball(estimator, X, y, sample_weight, levels=LEVELS):
    """Minus the mean pinball loss of quantiles 0.05, 0.1, ..., 0.95, in y's units."""
    quantile = _of_regressor(estimator, X).ppf(levels)
    return -pinball_loss(y, quantile, levels, sample_weight)


def _neg_interval_score(estimator, X, y, sample_weight, coverage=0.9):
    """Minus the mean interval score of the central 90 % interval, in y's units."""
    interval = predict_interval(estimator, X, coverage)
    return -interval_score(y, interval, coverage, sample_weight)


def _interval_coverage(estimator, X, y, sample_weight, coverage=0.9):
    """Share of y inside the central 90 % interval: best near 0.9, not near 1."""
    return interval_coverage(y, predict_interval(estimator, X, coverage), sample_weight)


def _neg_coverage_error(estimator, X, y, sample_weight, coverage=(0.5, 0.8, 0.9, 0.95)):
    """Minus the mean of |observed - nominal| coverage at 50, 80, 90 and 95 %."""
    interval = predict_interval(estimator, X, coverage)
    return -coverage_error(y, interval, coverage, sample_weight)


def _neg_interval_width(estimator, X, y, sample_weight, coverage=0.9):
    """Minus the mean width of the central 90 % interval, in y's units."""
    return -interval_width(predict_interval(estimator, X, coverage), sample_weight)


# ---- classifiers


def _neg_brier(estimator, X, y, sample_weight):
    """Minus the Brier score, summed over classes; in [-2, 0]."""
    probability, classes = _probability(estimator, X, y)
    return -brier_score(y, probability, classes, sample_weight)


# ---- parts


def _mean(values, sample_weight):
    """Weighted mean over rows; values : (rows,)."""
    weights, values = drop_zero_weights(sample_weight, values)
    return weighted_mean(values, weights)


def _targets(values):
    """Move the targets first: (rows,) or (rows, targets) to (targets, rows)."""
    return values.reshape(len(values), -1).T


def _of_regressor(estimator, X):
    """Predictive distribution of a regressor."""
    if is_classifier(estimator):
        raise TypeError(
            f"this score needs a regressor; got {type(estimator).__name__}. For "
            "classifiers use log_density_scorer or neg_brier_scorer."
        )
    return predict_distribution(estimator, X)


def _probability(estimator, X, y):
    """Probabilities (rows, classes) and the labels (classes,), all labels in y too."""
    if not is_classifier(estimator):
        raise TypeError(
            f"this score needs a classifier; got {type(estimator).__name__}. For "
            "regressors use log_density_scorer or neg_crps_scorer."
        )
    probability = estimator.predict_proba(X)
    # No training row has these labels: their probability is zero.
    new = np.setdiff1d(y, estimator.classes_)
    probability = np.pad(probability, ((0, 0), (0, len(new))))
    return probability, np.concatenate([estimator.classes_, new])


log_density_scorer = Scorer("log_density_scorer", _log_density)
neg_calibration_error_scorer = Scorer(
    "neg_calibration_error_scorer", _neg_calibration_error
)
neg_aurc_scorer = Scorer("neg_aurc_scorer", _neg_aurc)
neg_crps_scorer = Scorer("neg_crps_scorer", _neg_crps)
neg_pinball_scorer = Scorer("neg_pinball_scorer", _neg_pinball)
neg_interval_score_scorer = Scorer("neg_interval_score_scorer", _neg_interval_score)
interval_coverage_scorer = Scorer("interval_coverage_scorer", _interval_coverage)
neg_coverage_error_scorer = Scorer("neg_coverage_error_scorer", _neg_coverage_error)
neg_interval_width_scorer = Scorer("neg_interval_width_scorer", _neg_interval_width)
neg_brier_scorer = Scorer("neg_brier_scorer", _neg_brier)


def ood_auroc_scorer(X_outside: MatrixLike, kind: str | None = None) -> Scorer:
    """Scorer: the AUROC of detecting out-of-distribution rows by their uncertainty.

    The scorer compares ``X_outside`` with the rows of its X. Its ``sample_weight`` are
    the weights of X; y is ignored.

    Parameters
    ----------
    X_outside : array-like of shape (n_outside, n_features)
        Out-of-distribution rows, as ``predict`` takes them.
    kind : str, default=None
        Kind of uncertainty, see ``predict_uncertainty``; None is ``"total"`` for
        regressors and ``"entropy"`` for classifiers. The AUROC is averaged over
        targets.

    Returns
    -------
    scorer : Scorer
    """
    return Scorer("ood_auroc_scorer", _ood_auroc, X_outside=X_outside, kind=kind)
