"""Estimate a scale factor by maximising the log density of rows.

In NumPy.
"""

import numpy as np
from scipy.optimize import minimize_scalar

# Lower bound of a row's log density, nats: a density that is zero up to rounding.
MIN_LOG_DENSITY = -1e4
# Std of the prior of a log factor (docs/defaults.md, "Observation noise").
PRIOR_STD = 0.5


def map_factor(density, weights, low: float, high: float, outlier: float) -> float:
    """Maximum a posteriori (MAP) estimate of a factor in [low, high], given rows.

    The log factor has a normal prior with mean 0, which regularises the estimate if
    there are few rows. Log densities are clipped ``outlier`` nats below most rows, so
    that a single outlier does not determine the factor.

    density : function of the log factor, returns the log density of every row, nats
    weights : (rows,)
    outlier : nats
    """
    min_density = least_density(density(0.0), weights, outlier)

    def loss(log_factor):
        prior = -0.5 * (log_factor / PRIOR_STD) ** 2
        return -(weights @ np.maximum(density(log_factor), min_density) + prior)

    # Rounding removes the effect of the order of summation; it is below the error.
    return float(np.exp(np.round(minimise_on_grid(loss, np.log(low), np.log(high)), 3)))


def least_density(values, weights, outlier: float) -> float:
    """Bound for clipping log densities, ``outlier`` nats below their median."""
    return max(median(values, weights) - outlier, MIN_LOG_DENSITY)


def without_outliers(values, weights, outlier: float) -> np.ndarray:
    """Clip at ``least_density``, so that outliers do not decide between two fits."""
    return np.maximum(values, least_density(values, weights, outlier))


def log_mean_exp(values: np.ndarray) -> np.ndarray:
    """log of the mean of exp(values) over the first axis, without overflow."""
    largest = values.max(0)
    return np.log(np.exp(values - largest).mean(0)) + largest


def median(values, weights) -> float:
    """Weighted median: half of the weight is at or below it."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return values[order[np.searchsorted(below, below[-1] / 2)]]


def minimise_on_grid(loss, low: float, high: float) -> float:
    """Minimise a loss near the best of 25 grid points.

    The grid is needed because a mixture of narrow and wide draws has several minima.
    """
    grid = np.linspace(low, high, 25)
    best = int(np.argmin([loss(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return minimize_scalar(loss, bounds=bounds, method="bounded").x
