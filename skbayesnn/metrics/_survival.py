"""Scores of lifetimes, computed by scikit-survival."""

from typing import Any

import numpy as np

from skbayesnn._data.target import as_intervals
from skbayesnn._runtime import required
from skbayesnn.metrics._validation import as_floats, no_nan

_INSTALL = "pip install scikit-survival"


def concordance_index(y: Any, prediction: Any) -> float:
    """Concordance of predicted and observed lifetimes, which may be right-censored.

    The share of the comparable pairs of rows whose lifetimes are in the predicted
    order. A pair is comparable if the shorter lifetime is observed. The score judges
    the order alone, not the times. It needs scikit-survival.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Intervals, see :func:`skbayesnn.interval_target`; the upper bound is infinite if
        a lifetime is censored. Also an array of scikit-survival.
    prediction : array-like of shape (n_samples,)
        Lifetimes, such as the median ``predict_distribution(X).ppf(0.5)``.

    Returns
    -------
    concordance : float in [0, 1]
        Larger is better; 0.5 by chance.

    References
    ----------
    Harrell, Califf, Pryor, Lee & Rosati (1982), "Evaluating the yield of medical
    tests", JAMA 247.
    """
    metrics = required("sksurv.metrics", "concordance_index needs", _INSTALL)
    event, time = _lifetimes("y", y)
    prediction = as_floats("prediction", prediction)
    no_nan("prediction", prediction)
    concordance, *_ = metrics.concordance_index_censored(event, time, -prediction)
    return float(concordance)


def survival_brier_score(y_train: Any, y: Any, survival: Any, times: Any) -> np.ndarray:
    """Brier score of survival probabilities at some times, for right-censored y.

    The mean squared difference between the probability to survive a time and whether
    the row has survived it. Rows that are censored before have no weight, and the
    others are weighted by the inverse probability of not being censored, estimated from
    the training rows. The score is proper if the censoring does not depend on X. It
    needs scikit-survival.

    Parameters
    ----------
    y_train : array-like of shape (n_train,)
        Lifetimes of the training rows, as ``y``.
    y : array-like of shape (n_samples,)
        As of :func:`concordance_index`.
    survival : array-like of shape (n_samples, n_times)
        Probabilities, such as ``predict_distribution(X).sf(time)`` for each time.
    times : array-like of shape (n_times,)
        Within the range of the lifetimes ``y``.

    Returns
    -------
    score : ndarray of shape (n_times,)
        Smaller is better.

    References
    ----------
    Graf, Schmoor, Sauerbrei & Schumacher (1999), "Assessment and comparison of
    prognostic classification schemes for survival data", Statistics in Medicine 18.
    """
    metrics = required("sksurv.metrics", "survival_brier_score needs", _INSTALL)
    kinds = [("event", bool), ("time", float)]
    training, rows = (
        np.rec.fromarrays(_lifetimes(name, values), dtype=kinds)
        for name, values in (("y_train", y_train), ("y", y))
    )
    times, survival = as_floats("times", times), as_floats("survival", survival)
    _, score = metrics.brier_score(training, rows, survival, times)
    return np.asarray(score)


def _lifetimes(name: str, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Whether the end of each lifetime is observed, and its time, (rows,) each."""
    intervals = as_intervals(y)
    if intervals is None:
        time = as_floats(name, y)
        return np.ones(len(time), dtype=bool), time
    event, time = intervals["lower"] == intervals["upper"], intervals["lower"]
    wrong = ~event & (np.isfinite(intervals["upper"]) | ~np.isfinite(time))
    if wrong.any():
        low, high = intervals[wrong][0]
        raise ValueError(
            f"`{name}` must be observed or right-censored lifetimes; got the interval "
            f"from {low:g} to {high:g}. Of other intervals take the log density."
        )
    return event, time
