"""Scores of predictive distributions, for arrays.

As scorers, usable as ``scoring=`` and through meta-estimators, they stand in
:mod:`skbayesnn.scoring`.
"""

import numpy as np

from skbayesnn.mixtures import gaussian_mixture_crps


def mixture_crps(y, mean, variance, sample_weight=None):
    """Mean continuous ranked probability score of Gaussian mixtures, exact.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    mean, variance : array-like of shape (n_draws, n_samples)
        Components of equal weight.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    crps : float
        In y's units; smaller is better.

    References
    ----------
    Grimit, Gneiting, Berrocal & Johnson (2006), "The continuous ranked probability
    score for circular variables and its application to mesoscale forecast ensemble
    verification", eq. 5.
    """
    y, mean, variance = (np.asarray(v, dtype=np.float64) for v in (y, mean, variance))
    if y.ndim != 1 or mean.shape[1:] != y.shape or variance.shape != mean.shape:
        raise ValueError(
            "`mean` and `variance` must be of shape (n_draws, n_samples) for y of "
            f"shape (n_samples,); got {mean.shape}, {variance.shape} and {y.shape}."
        )
    scores = gaussian_mixture_crps(y[:, None], mean[..., None], variance[..., None])
    return float(np.average(scores[:, 0], weights=sample_weight))


def interval_coverage(y, interval, sample_weight=None):
    """Share of targets inside their interval, ends included.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    interval : array-like of shape (n_samples[, n_targets], 2)
        Lower and upper ends, as ``predict_interval`` returns them.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    coverage : float in [0, 1]
    """
    y, interval = _matching(y, interval)
    inside = (interval[..., 0] <= y) & (y <= interval[..., 1])
    return float(np.average(_per_row(inside), weights=sample_weight))


def interval_width(interval, sample_weight=None):
    """Mean width of intervals, in y's units.

    Parameters
    ----------
    interval : array-like of shape (n_samples[, n_targets], 2)
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    width : float
    """
    interval = np.asarray(interval, dtype=np.float64)
    width = interval[..., 1] - interval[..., 0]
    return float(np.average(_per_row(width), weights=sample_weight))


def _matching(y, interval):
    y, interval = np.asarray(y), np.asarray(interval, dtype=np.float64)
    if interval.shape != (*y.shape, 2):
        raise ValueError(
            "`interval` must be of shape (*y.shape, 2); got "
            f"{interval.shape} for y of shape {y.shape}."
        )
    return y, interval


def _per_row(values):
    """Mean over targets."""
    return values.reshape(len(values), -1).mean(1)
