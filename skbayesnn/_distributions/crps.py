"""Continuous ranked probability score of a mixture, per row and target.

Pure NumPy, float64; components have the draws axis in front.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

# Levels of the quantiles that stand for a distribution without a closed form.
N_LEVELS = 200

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def gaussian_mixture_crps(y, mean, variance, weight=None) -> np.ndarray:
    """CRPS of a Gaussian mixture, exact; (rows, targets).

    Grimit et al. 2006, eq. 5: mean_i A(y - mu_i, s_i^2) - mean_ij A(mu_i - mu_j,
    s_i^2 + s_j^2) / 2, with A the mean distance of a normal variable from zero.

    y : (rows, targets); mean, variance : (draws, rows, targets)
    weight : (draws, rows, targets), summing to one over draws, or None for equal ones
    """
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    if weight is not None:
        return _weighted_gaussian_mixture_crps(y, mean, variance, weight)
    to_y = _mean_distance(y - mean, variance).mean(0)
    apart = np.zeros_like(to_y)
    for centre, spread in zip(mean, variance, strict=True):
        apart += _mean_distance(mean - centre, variance + spread).mean(0)
    return to_y - 0.5 * apart / len(mean)


def _weighted_gaussian_mixture_crps(y, mean, variance, weight):
    """Every pair once."""
    weight = weight.astype(np.float64)
    to_y = (weight * _mean_distance(y - mean, variance)).sum(0)
    apart = np.zeros_like(to_y)
    for i in range(len(mean)):
        distance = _mean_distance(mean[i:] - mean[i], variance[i:] + variance[i])
        distance[0] *= 0.5
        apart += weight[i] * (weight[i:] * distance).sum(0)
    return to_y - apart


def _mean_distance(mean, variance):
    """E |Z|, Z ~ N(mean, variance)."""
    std = np.sqrt(variance)
    z = mean / std
    density = np.exp(-0.5 * np.square(z) - HALF_LOG_2PI)
    return mean * (2 * ndtr(z) - 1) + 2 * std * density


def spread_levels(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels between 0 and 1 and their weights, (n,) both.

    The midpoint rule in t, with level t^2 (3 - 2 t): dense at both ends, so that heavy
    tails are not cut short as they are by levels at equal distances.
    """
    t = (np.arange(n) + 0.5) / n
    weights = t * (1 - t)
    return t * t * (3 - 2 * t), weights / weights.sum()


def crps_by_quantiles(y, quantile: Callable[[float], np.ndarray]) -> np.ndarray:
    """CRPS of any distribution, by 200 of its quantiles, (rows, targets).

    y : (rows, targets); quantile : of a level, (rows, targets)
    """
    levels, weights = spread_levels(N_LEVELS)
    points = np.stack([quantile(level) for level in levels])
    return weighted_sample_crps(y, points, weights)


def weighted_sample_crps(y, samples, weights) -> np.ndarray:
    """CRPS of a discrete distribution, (rows, targets).

    y : (rows, targets); samples : (points, rows, targets)
    weights : (points,), or as the samples
    """
    order = np.argsort(samples, axis=0)
    ordered = np.take_along_axis(samples, order, axis=0)
    if weights.ndim == 1:
        weight = weights[order]
    else:
        weight = np.take_along_axis(weights, order, axis=0)
    before = weight.cumsum(0) - 0.5 * weight
    spread = 2 * (weight * ordered * (2 * before - 1)).sum(0)
    return (weight * np.abs(ordered - y)).sum(0) - 0.5 * spread
