"""Estimate one parameter of noise by maximising the log density of held-out rows.

In NumPy.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar

from skbayesnn._distributions.crps import HALF_LOG_2PI

# Lower bound of a row's log density, nats: a density that is zero up to rounding.
MIN_LOG_DENSITY = -1e4
# Rows with a log density this many nats below most rows are outliers (docs/defaults.md,
# "Observation noise").
OUTLIER = 30.0
# Std of the prior of a log factor (docs/defaults.md, "Observation noise").
PRIOR_STD = 0.5


def log_prior_of_factor(log_factor: float) -> float:
    """Normal log density with mean 0; it regularises the estimate from few rows."""
    return -0.5 * (log_factor / PRIOR_STD) ** 2


def map_estimate(
    density: Callable[[float], np.ndarray],
    weights: np.ndarray,
    low: float,
    high: float,
    *,
    log_prior: Callable[[float], float] = log_prior_of_factor,
    start: float = 0.0,
    outlier: float = OUTLIER,
    decimals: int = 3,
) -> tuple[np.ndarray, float]:
    """Maximum a posteriori (MAP) estimate of a parameter in [low, high], given rows.

    Log densities are clipped ``outlier`` nats below most rows, so that a single outlier
    does not determine the parameter.

    density : function of the parameter, such as the log of a factor; returns the log
        density of every row, nats
    weights : (rows,)
    log_prior : log density of the parameter, up to a constant
    start : parameter at which outliers are found
    decimals : the estimate is rounded
    returns : log densities of the rows at the estimate, clipped; and the estimate
    """
    least = least_density(density(start), weights, outlier)

    def loss(value):
        return -(weights @ np.maximum(density(value), least) + log_prior(value))

    # Rounding removes the effect of the order of summation; it is below the error.
    estimate = float(np.round(minimise_on_grid(loss, low, high), decimals))
    densities = density(estimate)
    least = least_density(densities, weights, outlier)
    return np.maximum(densities, least), estimate


def density_of_noise_factor(residual: np.ndarray, variance: np.ndarray):
    """Function: log factor of the noise std to the log density of every row, (rows,).

    residual, variance : (draws, rows), of the normal distributions of the draws
    """
    squares = np.square(residual) / variance
    return partial(_log_density, squares, 0.5 * np.log(variance) + HALF_LOG_2PI)


def _log_density(squares, constants, log_factor: float) -> np.ndarray:
    """Log density with the noise std times a factor, (rows,).

    squares : (draws, rows), squared residuals in units of the noise variance
    constants : (draws, rows), logarithms of the normalising constants
    """
    density = squares * (-0.5 * np.exp(-2 * log_factor)) - constants
    return log_mean_exp(density) - log_factor


def least_density(values, weights, outlier: float) -> float:
    """Bound for clipping log densities, ``outlier`` nats below their median."""
    return max(median(values, weights) - outlier, MIN_LOG_DENSITY)


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
