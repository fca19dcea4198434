"""Continuous ranked probability score of a mixture, per row and target.

Pure NumPy, float64; components have the draws axis in front.
"""

import numpy as np
from scipy.special import ndtr

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def gaussian_mixture_crps(y, mean, variance) -> np.ndarray:
    """CRPS of an equal-weight Gaussian mixture, exact; (rows, targets).

    Grimit et al. 2006, eq. 5: mean_i A(y - mu_i, s_i^2) - mean_ij A(mu_i - mu_j,
    s_i^2 + s_j^2) / 2, with A the mean distance of a normal variable from zero.

    y : (rows, targets); mean, variance : (draws, rows, targets)
    """
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    to_y = _mean_distance(y - mean, variance).mean(0)
    apart = np.zeros_like(to_y)
    for centre, spread in zip(mean, variance, strict=True):
        apart += _mean_distance(mean - centre, variance + spread).mean(0)
    return to_y - 0.5 * apart / len(mean)


def _mean_distance(mean, variance):
    """E |Z|, Z ~ N(mean, variance)."""
    std = np.sqrt(variance)
    z = mean / std
    density = np.exp(-0.5 * np.square(z) - HALF_LOG_2PI)
    return mean * (2 * ndtr(z) - 1) + 2 * std * density


def weighted_sample_crps(y, samples, weights) -> np.ndarray:
    """CRPS of a discrete distribution, (rows, targets).

    y : (rows, targets); samples : (points, rows, targets); weights : (points,)
    """
    order = np.argsort(samples, axis=0)
    ordered = np.take_along_axis(samples, order, axis=0)
    weight = weights[order]
    before = weight.cumsum(0) - 0.5 * weight
    spread = 2 * (weight * ordered * (2 * before - 1)).sum(0)
    return (weight * np.abs(ordered - y)).sum(0) - 0.5 * spread
