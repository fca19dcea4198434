"""Predictive distributions of the methods, and their scores.

A test row has an observed interval, lower <= y <= upper, and a cell, low < y <= high.
The observed interval is a single value, or all that is known of a censored y. The cell
is what the log probability is computed of: the observed interval, the values that are
rounded to y, or a single value, which is scored by its density.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LEVELS = (np.arange(100) + 0.5) / 100
COVERAGE = 0.9
# A log probability, or a log density in standard deviations of y, is at least this.
LEAST = np.log(1e-9)


class Predictive(NamedTuple):
    """Predictive distribution of the test rows.

    mean : (rows,)
    cdf, log_density : functions of one finite value per row; (rows,)
    ppf : function of increasing levels; (rows, levels)
    """

    mean: np.ndarray
    cdf: Callable
    log_density: Callable
    ppf: Callable


def of_scipy(frozen) -> Predictive:
    """Predictive of a frozen distribution of SciPy with one parameter set per row."""

    def ppf(levels):
        return np.stack([frozen.ppf(level) for level in levels], axis=1)

    # The cells of counts are not single values, which need a density.
    log_density = getattr(frozen, "logpdf", None)
    return Predictive(frozen.mean(), frozen.cdf, log_density, ppf)


def of_distribution(distribution) -> Predictive:
    """Predictive of a distribution of this package."""
    return Predictive(
        distribution.mean(), distribution.cdf, distribution.logpdf, distribution.ppf
    )


def piecewise(values, probability, step) -> Predictive:
    """Predictive whose distribution function is linear between values.

    A repeated value is a point mass. There is no probability outside of the values.

    values, probability : (rows, values) or (values,), not decreasing
    step : positive number; the density is a mean over 2 steps
    """
    arrays = np.broadcast_arrays(*map(np.atleast_2d, (values, probability)))
    values, probability = arrays
    rows = list(zip(values, probability, strict=True))

    def cdf(y):
        # np.interp takes the last one of repeated values.
        pairs = zip(y, rows, strict=True)
        return np.array([np.interp(z, *row, left=0, right=1) for z, row in pairs])

    def log_density(y):
        with np.errstate(divide="ignore"):
            return np.log((cdf(y + step) - cdf(y - step)) / (2 * step))

    def ppf(levels):
        return np.array([np.interp(levels, p, v) for v, p in rows])

    mass = np.diff(probability, prepend=0, append=1)
    padded = np.pad(values, ((0, 0), (1, 1)), mode="edge")
    mean = (mass * (padded[:, 1:] + padded[:, :-1]) / 2).sum(1)
    return Predictive(mean, cdf, log_density, ppf)


def with_zeros(positive: Predictive, p_zero: np.ndarray) -> Predictive:
    """Predictive that is 0 with some probability, and ``positive`` otherwise."""
    points, share = positive.ppf(LEVELS), 1 - p_zero

    def cdf(y):
        above = positive.cdf(np.maximum(y, np.finfo(float).tiny))
        return np.where(y < 0, 0, p_zero + share * np.where(y > 0, above, 0))

    def log_density(y):
        return np.log(share) + positive.log_density(y)

    def ppf(levels):
        of_amount = (np.asarray(levels) - p_zero[:, None]) / share[:, None]
        rows = zip(of_amount, points, strict=True)
        amounts = np.array([np.interp(level, LEVELS, row) for level, row in rows])
        return np.where(of_amount <= 0, 0, amounts)

    return Predictive(share * positive.mean, cdf, log_density, ppf)


def probability_up_to(predictive, y) -> np.ndarray:
    """P(Y <= y) of one value per row; the values can be infinite."""
    y = np.asarray(y, dtype=float)
    finite = np.isfinite(y)
    probability = predictive.cdf(np.where(finite, y, predictive.ppf([0.5])[:, 0]))
    return np.where(finite, np.clip(probability, 0, 1), y > 0)


def crps(points, lower, upper, window=(-np.inf, np.inf)) -> np.ndarray:
    """Threshold-weighted CRPS of points with equal weights, (rows,).

    It is the integral of (F(z) - [y <= z])^2 over all z in the window that are not
    inside the observed interval, where [y <= z] is unknown. With lower = upper and
    without a window it is the CRPS.

    points : (rows, points), increasing; lower, upper : (rows,)
    """
    n = points.shape[1]
    weight = (2 * np.arange(n) + 1) / n**2
    start, end = (np.clip(bound, *window)[:, None] for bound in (lower, upper))
    # An infinite bound has no integral on its side.
    start_, end_ = (np.where(np.isfinite(bound), bound, 0) for bound in (start, end))
    below = start_ - np.clip(points, window[0], start_)
    above = np.clip(points, end_, window[1]) - end_
    below, above = below * np.isfinite(start), above * np.isfinite(end)
    return (weight * below + weight[::-1] * above).sum(1)


def log_probability(predictive, low, high, scale) -> np.ndarray:
    """Log probability of the cell, or log density if low = high; (rows,).

    scale : standard deviation of y, for the smallest log density
    """
    mass = probability_up_to(predictive, high) - probability_up_to(predictive, low)
    result = np.log(np.maximum(mass, np.exp(LEAST)))
    is_value = low == high
    if is_value.any():
        inside = np.where(is_value, high, predictive.ppf([0.5])[:, 0])
        density = np.nan_to_num(predictive.log_density(inside), nan=-np.inf)
        of_value = np.maximum(density, LEAST - np.log(scale))
        result = np.where(is_value, of_value, result)
    return result


def cell_coverage(predictive, low, high, coverage=COVERAGE) -> np.ndarray:
    """Share of the cell's probability that is inside the central interval; (rows,).

    If the predictive is right, its mean is the coverage, for discrete and censored y
    also. A single value is inside or not.
    """
    start, end = (probability_up_to(predictive, bound) for bound in (low, high))
    edges = (1 - coverage) / 2, (1 + coverage) / 2
    overlap = np.minimum(end, edges[1]) - np.maximum(start, edges[0])
    width = end - start
    share = np.clip(overlap / np.where(width > 0, width, 1), 0, 1)
    return np.where(width > 0, share, (edges[0] <= end) & (end <= edges[1]))


def outside(predictive, bounds, scale) -> np.ndarray:
    """Probability of values outside of the bounds, (rows,).

    scale : standard deviation of y; values that are closer to a bound than 1e-9 times
        it are inside
    """
    low, high = bounds
    n = len(predictive.mean)
    below = probability_up_to(predictive, np.full(n, low - 1e-9 * scale))
    return below + 1 - probability_up_to(predictive, np.full(n, high + 1e-9 * scale))


def survival_scores(predictive, table) -> dict[str, float]:
    """Concordance, and Brier score integrated over times (scikit-survival)."""
    from sksurv.metrics import concordance_index_censored, integrated_brier_score
    from sksurv.util import Surv

    train, test = table.train, table.test
    # The censoring distribution is known up to the longest time of the training rows.
    time = np.minimum(table.lower, np.nextafter(table.lower[train].max(), 0))
    event = table.lower == table.upper
    median = predictive.ppf([0.5])[:, 0]
    concordance = concordance_index_censored(event[test], time[test], -median)[0]
    times = np.unique(np.quantile(table.lower[train], np.linspace(0.1, 0.8, 15)))
    times = times[(times > time[test].min()) & (times < time[test].max())]
    dead = [predictive.cdf(np.full(len(test), t)) for t in times]
    known = Surv.from_arrays(event[train], table.lower[train])
    observed = Surv.from_arrays(event[test], time[test])
    survival = 1 - np.stack(dead, axis=1)
    brier = integrated_brier_score(known, observed, survival, times)
    return {"concordance": concordance, "brier": brier}


def scores_of(predictive, table) -> dict[str, float]:
    """Every score, a mean over the test rows; NaN if y of the test rows is unknown."""
    rows, scale = table.test, table.scale
    y, lower, upper = table.y[rows], table.lower[rows], table.upper[rows]
    cell = [bound[rows] for bound in table.cells]
    edge = predictive.ppf([(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    is_inside = np.where(np.isnan(y), np.nan, (edge[:, 0] <= y) & (y <= edge[:, 1]))
    scores = {
        "rmse": np.sqrt(np.mean(np.square(predictive.mean - y))),
        "crps": crps(predictive.ppf(LEVELS), lower, upper, table.window).mean(),
        "log_probability": log_probability(predictive, *cell, scale).mean(),
        "cover": cell_coverage(predictive, *cell).mean(),
        "cover_closed": is_inside.mean(),
        "outside": outside(predictive, table.bounds, scale).mean(),
    }
    if table.kind == "survival":
        scores |= survival_scores(predictive, table)
    return {name: float(value) for name, value in scores.items()}
