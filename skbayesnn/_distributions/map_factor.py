"""Log densities of rows -> the number under which the rows are the likeliest.

Pure NumPy.
"""

import numpy as np
from scipy.optimize import minimize_scalar

# A density that is zero to rounding, nats: what one row can cost.
LOWEST = -1e4
# The std of the logarithm of a factor before any row is seen: docs/defaults.md,
# "Observation noise".
PRIOR_STD = 0.5


def map_factor(density, weights, low: float, high: float, outlier: float) -> float:
    """The factor in [low, high] of the highest posterior density (MAP), given rows.

    Its logarithm has a Gaussian prior about 0, so that few rows need good reasons, and
    rows that are less likely than most by ``outlier`` do not speak, so that one of them
    does not widen all.

    density : log factor -> log density of every row, nats; weights : (rows,)
    outlier : nats
    """
    least = least_density(density(0.0), weights, outlier)

    def loss(log_factor):
        prior = -0.5 * (log_factor / PRIOR_STD) ** 2
        return -(weights @ np.maximum(density(log_factor), least) + prior)

    # Finer than rows can tell, and the same whatever the order of sums.
    return float(np.exp(np.round(minimise_on_grid(loss, np.log(low), np.log(high)), 3)))


def least_density(values, weights, outlier: float) -> float:
    """Below it a row is no less likely: ``outlier`` nats below most of the weight."""
    return max(median(values, weights) - outlier, LOWEST)


def without_outliers(values, weights, outlier: float) -> np.ndarray:
    """None below ``least_density``: of two fits, other rows say which is better."""
    return np.maximum(values, least_density(values, weights, outlier))


def log_mean_exp(values: np.ndarray) -> np.ndarray:
    """log of the mean of exp(values) over the first axis, without overflow."""
    largest = values.max(0)
    return np.log(np.exp(values - largest).mean(0)) + largest


def median(values, weights) -> float:
    """Half of the weight is at it or below."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return values[order[np.searchsorted(below, below[-1] / 2)]]


def minimise_on_grid(loss, low: float, high: float) -> float:
    """Where a loss is lowest, in the valley of the lowest point of a grid.

    A mixture of sharp and wide draws has several valleys.
    """
    grid = np.linspace(low, high, 25)
    best = int(np.argmin([loss(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return minimize_scalar(loss, bounds=bounds, method="bounded").x
