"""Continuous ranked probability score (CRPS) of a mixture, per row and target.

In float64; components have the draws axis first.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import ndtr

from skbayesnn._distributions.quantiles import by_columns

# Number of quantiles that represent a distribution without a closed form.
N_LEVELS = 200

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def gaussian_mixture_crps(y, mean, variance, weight=None) -> np.ndarray:
    """Exact CRPS of a Gaussian mixture, (rows, targets).

    Grimit et al. 2006, eq. 5: mean_i A(y - mu_i, s_i^2) - mean_ij A(mu_i - mu_j,
    s_i^2 + s_j^2) / 2, with A the mean distance of a normal variable from zero.

    y : (rows, targets); mean, variance : (draws, rows, targets)
    weight : (draws, rows, targets), summing to 1 over draws; None: equal weights
    """
    return by_columns(_crps_of_columns, mean, variance, y, weight)


def _crps_of_columns(mean, std, y, weight):
    """CRPS at y, (columns,); the other arguments are (draws, columns) tensors."""
    n = len(mean)
    share = torch.full_like(mean, 1 / n) if weight is None else weight
    variance = std.square()
    crps = (share * _distance_from_zero(mean - y, std)).sum(0)
    # Each pair is computed once.
    for i in range(n):
        pair_std = (variance[i:] + variance[i]).sqrt_()
        distance = _distance_from_zero(mean[i:] - mean[i], pair_std)
        distance[0] *= 0.5
        crps -= share[i] * distance.mul_(share[i:]).sum(0)
    return crps


def _distance_from_zero(mean, std):
    """E |Z|, Z ~ N(mean, std^2), of tensors."""
    z = mean / (std * math.sqrt(2))
    density = z.square().neg_().exp_().mul_(std).mul_(math.sqrt(2 / math.pi))
    return z.erf_().mul_(mean).add_(density)


def gaussian_mixture_distance(mean, variance, other_mean, other_variance):
    """E |X - Y| of independent X and Y, both Gaussian mixtures, (rows, targets).

    mean, variance, other_mean, other_variance : (draws, rows, targets); X and Y may
        have different numbers of draws
    """
    distance = np.zeros(mean.shape[1:])
    for centre, spread in zip(mean.astype(np.float64), variance, strict=True):
        distance += _mean_distance(other_mean - centre, other_variance + spread).mean(0)
    return distance / len(mean)


def sample_distance(points, other_points, weights) -> np.ndarray:
    """E |X - Y| of independent X and Y, both discrete, (rows, targets).

    points, other_points : (points, rows, targets)
    weights : (points,), of the points of each, summing to 1
    """
    both = np.concatenate([points, other_points])
    order = np.argsort(both, axis=0)
    # The distance is the integral of F (1 - G) + (1 - F) G.
    steps = np.diff(np.take_along_axis(both, order, axis=0), axis=0)
    nothing = np.zeros_like(weights)
    first = np.concatenate([weights, nothing])[order].cumsum(0)[:-1]
    second = np.concatenate([nothing, weights])[order].cumsum(0)[:-1]
    return (steps * (first * (1 - second) + (1 - first) * second)).sum(0)


def _mean_distance(mean, variance):
    """E |Z|, Z ~ N(mean, variance)."""
    std = np.sqrt(variance)
    z = mean / std
    density = np.exp(-0.5 * np.square(z) - HALF_LOG_2PI)
    return mean * (2 * ndtr(z) - 1) + 2 * std * density


def spread_levels(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels between 0 and 1 and their weights, (n,) both.

    This is the midpoint rule in t, with level t^2 (3 - 2 t). The levels are dense near
    0 and 1; equidistant levels would cut heavy tails off.
    """
    t = (np.arange(n) + 0.5) / n
    weights = t * (1 - t)
    return t * t * (3 - 2 * t), weights / weights.sum()


def crps_by_quantiles(y, quantile: Callable[[float], np.ndarray]) -> np.ndarray:
    """CRPS of any distribution from 200 of its quantiles, (rows, targets).

    y : (rows, targets); quantile : function of a level, returns (rows, targets)
    """
    levels, weights = spread_levels(N_LEVELS)
    points = np.stack([quantile(level) for level in levels])
    return weighted_sample_crps(y, points, weights)


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
