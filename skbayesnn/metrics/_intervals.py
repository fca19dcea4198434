"""Scores of quantiles and of prediction intervals.

Each target is scored separately, and the scores are averaged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import mean_pinball_loss

from skbayesnn.metrics._validation import (
    as_floats,
    drop_zero_weights,
    level_array,
    no_nan,
    weighted_mean,
    with_targets,
)


def pinball_loss(
    y: Any,
    quantile: Any,
    levels: Any,
    sample_weight: Any = None,
) -> Any:
    """Mean pinball loss of predicted quantiles, over rows and levels.

    The CRPS is twice the integral of the pinball loss over the level. So on an evenly
    spaced grid of levels in (0, 1), twice this loss tends to the CRPS as the grid gets
    finer.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    quantile : array-like of shape (n_samples[, n_targets], n_levels)
        Predicted quantiles, as ``predict_quantile`` returns them; for a single level
        without the last axis.
    levels : float or array-like of shape (n_levels,)
        Levels of the quantiles, in (0, 1).
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    loss : float
        In y's units; smaller is better.

    References
    ----------
    Koenker & Bassett (1978), "Regression quantiles", Econometrica 46. Gneiting & Ranjan
    (2011), "Comparing density forecasts using threshold- and quantile-weighted scoring
    rules", J. Bus. Econ. Stat. 29, for the CRPS as an integral over levels; its
    quantile score is twice the pinball loss.
    """
    y = with_targets("y", y)
    levels = level_array("levels", levels)
    quantile = np.asarray(quantile, dtype=np.float64)
    if quantile.shape != (*y.shape, *levels.shape):
        raise ValueError(
            "`quantile` must be of shape (*y.shape, n_levels), or y.shape for a single "
            f"level; got {quantile.shape} for y of shape {y.shape} and levels of shape "
            f"{levels.shape}."
        )
    weights, y, quantile = drop_zero_weights(sample_weight, y, quantile)
    no_nan("y", y)
    no_nan("quantile", quantile)
    columns = np.moveaxis(quantile.reshape(*y.shape, levels.size), -1, 0)
    losses = [
        mean_pinball_loss(y, column, sample_weight=weights, alpha=level)
        for level, column in zip(levels.ravel(), columns, strict=True)
    ]
    return float(np.mean(losses))


def interval_score(
    y: Any,
    interval: Any,
    coverage: float | Sequence[float],
    sample_weight: Any = None,
) -> Any:
    """Mean interval score (Winkler score) of central prediction intervals.

    The width of the interval, plus 2 / (1 - coverage) times the distance to y if y is
    outside. The score rewards narrow intervals that contain y; the true quantiles
    (1 - coverage) / 2 and (1 + coverage) / 2 minimise it.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    interval : array-like of shape (n_samples[, n_targets][, n_levels], 2)
        Lower and upper bounds, as ``predict_interval`` returns them.
    coverage : float or array-like of shape (n_levels,)
        Nominal coverage of the intervals, in (0, 1).
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    score : float
        In y's units, mean over the levels; smaller is better.

    References
    ----------
    Winkler (1972), "A decision-theoretic approach to interval estimation", J. Am. Stat.
    Assoc. 67. Gneiting & Raftery (2007), "Strictly proper scoring rules, prediction,
    and estimation", J. Am. Stat. Assoc. 102, eq. 43.
    """
    weights, y, lower, upper, levels = _intervals(y, interval, coverage, sample_weight)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return weighted_mean(upper - lower + 2 / (1 - levels) * missed, weights)


def coverage_error(
    y: Any,
    interval: Any,
    coverage: float | Sequence[float],
    sample_weight: Any = None,
) -> Any:
    """Difference between the observed and the nominal coverage of intervals.

    The mean over levels and targets of |observed coverage - nominal coverage|. This is
    not a proper score: intervals of any width can have the right coverage, so read it
    together with :func:`interval_width`. With few rows it is positive even for a
    perfect model, because the observed coverage varies by chance.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    interval : array-like of shape (n_samples[, n_targets][, n_levels], 2)
        Lower and upper bounds, as ``predict_interval`` returns them; the bounds belong
        to the interval.
    coverage : float or array-like of shape (n_levels,)
        Nominal coverage of the intervals, in (0, 1).
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    error : float in [0, 1]
        Smaller is better.

    References
    ----------
    Khosravi, Nahavandi, Creighton & Atiya (2011), "Comprehensive review of neural
    network-based prediction intervals and new advances", IEEE Trans. Neural Netw. 22:
    the observed coverage is their prediction interval coverage probability (PICP).
    """
    weights, y, lower, upper, levels = _intervals(y, interval, coverage, sample_weight)
    inside = np.average((lower <= y) & (y <= upper), axis=0, weights=weights)
    return float(np.abs(inside - levels).mean())


def interval_coverage(y: Any, interval: Any, sample_weight: Any = None) -> Any:
    """Share of targets inside their interval, bounds included.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    interval : array-like of shape (n_samples[, n_targets], 2)
        Lower and upper bounds, as ``predict_interval`` returns them.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    coverage : float in [0, 1]
    """
    weights, y, lower, upper, _ = _intervals(y, interval, None, sample_weight)
    return weighted_mean((lower <= y) & (y <= upper), weights)


def worst_group_coverage(
    y: Any, interval: Any, groups: Any, sample_weight: Any = None
) -> Any:
    """Coverage of intervals in the group where it is smallest.

    Of many groups the smallest coverage is too small by chance: with intervals that
    cover 90 % of each of ten groups, the worst of them covers about 85 % of 100 rows.

    Parameters
    ----------
    y : array-like of shape (n_samples[, n_targets])
    interval : array-like of shape (n_samples[, n_targets], 2)
        Lower and upper bounds, as ``predict_interval`` returns them.
    groups : array-like of shape (n_samples,)
        Group of each row.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    coverage : float in [0, 1]
    """
    y, interval, groups = map(np.asarray, (y, interval, groups))
    if groups.shape != y.shape[:1] or interval.shape[:1] != groups.shape:
        raise ValueError(
            "`groups` must have a group for each row of y and `interval`; got shapes "
            f"{groups.shape}, {y.shape} and {interval.shape}."
        )
    weights, y, interval, groups = drop_zero_weights(sample_weight, y, interval, groups)
    groups = groups.astype(str)
    in_groups = [groups == name for name in np.unique(groups)]
    return min(interval_coverage(y[r], interval[r], weights[r]) for r in in_groups)


def interval_width(interval: Any, sample_weight: Any = None) -> Any:
    """Mean width of intervals, in y's units.

    Parameters
    ----------
    interval : array-like of shape (n_samples[, n_targets], 2)
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    width : float
    """
    interval = as_floats("interval", interval)
    if interval.ndim < 2 or interval.shape[-1] != 2:
        raise ValueError(
            "`interval` must be of shape (n_samples[, n_targets], 2); got "
            f"{interval.shape}."
        )
    weights, interval = drop_zero_weights(sample_weight, interval)
    _in_order(interval)
    return weighted_mean(interval[..., 1] - interval[..., 0], weights)


def _in_order(interval) -> None:
    """Raise if an interval (rows, ..., 2) has NaN or its upper bound first."""
    no_nan("interval", interval)
    wrong = interval[interval[..., 0] > interval[..., 1]]
    if wrong.size:
        raise ValueError(
            "`interval` must have its lower bound first; got an interval from "
            f"{wrong[0, 0]} to {wrong[0, 1]}."
        )


def _intervals(y, interval, coverage, sample_weight):
    """Check and return weights, y, lower and upper bounds, and levels.

    Shapes: (rows,), (rows, targets, 1), (rows, targets, levels) twice, (levels,). Rows
    of weight zero are left out. Without coverage, y has one interval.
    """
    y = with_targets("y", y)
    levels = np.ones(()) if coverage is None else level_array("coverage", coverage)
    interval = as_floats("interval", interval)
    if interval.shape != (*y.shape, *levels.shape, 2):
        raise ValueError(
            "`interval` must have two bounds for each y and each level, shape "
            f"{(*y.shape, *levels.shape, 2)}; got {interval.shape}."
        )
    weights, y, interval = drop_zero_weights(sample_weight, y, interval)
    no_nan("y", y)
    _in_order(interval)
    lower, upper = (
        interval[..., bound].reshape(len(y), -1, levels.size) for bound in (0, 1)
    )
    return weights, y.reshape(len(y), -1, 1), lower, upper, levels.ravel()
