"""Distribution function of a Gaussian mixture, quantiles of any mixture, and intervals.

Components have the shape ``(draws, rows, targets)``. They have equal weights unless
weights of the same shape are given. Results are float64. Gaussian mixtures are computed
with torch, whose error function is several times faster than SciPy's.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch.special import ndtri

INTERVAL_KINDS = ("equal_tailed", "highest_density")

# Elements of a temporary array, so that the few in use at once stay in a core's cache.
_CHUNK = 1 << 16
_MAX_STEPS = 200
# The shortest interval is searched among this many, then by golden sections. The last
# bracket is 2 / 16 * 0.618^20 < 1e-5 of the probability outside of the interval.
_N_TAILS = 16
_N_SECTIONS = 20
_GOLDEN = (math.sqrt(5) - 1) / 2
_SQRT_2 = math.sqrt(2)
_SQRT_2PI = math.sqrt(2 * math.pi)
_TINY, _EPSILON = 1e-300, 2.0**-53


def mixture_cdf(mean, variance, y, weight=None) -> np.ndarray:
    """Distribution function F(y) of a Gaussian mixture, (rows, targets).

    mean, variance, weight : (draws, rows, targets); y : (rows, targets)
    """
    return by_columns(_cdf, mean, variance, y, weight)


def mixture_quantile(mean, variance, level, weight=None) -> np.ndarray:
    """Quantile of a Gaussian mixture, the inverse of ``mixture_cdf``, (rows, targets).

    mean, variance, weight : (draws, rows, targets); level : float or (rows, targets),
        in (0, 1)
    """
    return by_columns(_quantile, mean, variance, level, weight)


def increasing_root(cdf, density, level, low, high, scale) -> np.ndarray:
    """y with cdf(y) = level, by safeguarded Newton steps on the probit scale.

    cdf, density : elementwise functions of arrays (rows, targets)
    level, low, high, scale : (rows, targets); y is in [low, high], and the functions
        are smooth on the length scale
    """
    shape = level.shape
    probit = ndtri(torch.tensor(level.ravel()))

    def excess(y):
        values = y.numpy().reshape(shape)
        share = torch.from_numpy(cdf(values).ravel()).clamp(_TINY, 1 - _EPSILON)
        reached, slope = ndtri(share), torch.from_numpy(density(values).ravel())
        return reached - probit, slope * _SQRT_2PI * torch.exp(0.5 * reached * reached)

    low, high, scale = (
        torch.tensor(np.array(v, dtype=np.float64).ravel()) for v in (low, high, scale)
    )
    return _root(excess, low, high, 0.5 * (low + high), scale).numpy().reshape(shape)


def integer_quantile(cdf, level, low, high) -> np.ndarray:
    """The smallest integer y with cdf(y) >= level, by bisection.

    cdf : elementwise function of arrays (rows, targets)
    level, low, high : (rows, targets); y is in [low, high]
    """
    # Invariant: cdf(below) < level <= cdf(above).
    below, above = np.floor(low) - 1.0, np.ceil(high)
    while (above - below).max() > 1:
        middle = np.floor(0.5 * (below + above))
        is_open = above - below > 1
        reached = cdf(middle) >= level
        above = np.where(is_open & reached, middle, above)
        below = np.where(is_open & ~reached, middle, below)
    return above


def intervals(quantile: Callable, shape, coverages, kind: str) -> np.ndarray:
    """Intervals with the given probabilities, (*shape, coverages, 2).

    quantile : function of a level in (0, 1), a float or an array of ``shape``; returns
        an array of ``shape``
    kind : one of ``INTERVAL_KINDS``
    """
    if kind not in INTERVAL_KINDS:
        options = ", ".join(map(repr, INTERVAL_KINDS))
        raise ValueError(f"`kind` must be one of {options}; got {kind!r}.")
    result = np.empty((*shape, len(coverages), 2))
    for i, coverage in enumerate(coverages):
        tail = (1 - coverage) / 2
        if kind == "highest_density":
            tail = shortest_tail(quantile, shape, coverage)
        result[..., i, 0] = quantile(tail)
        result[..., i, 1] = quantile(_level_below_one(tail + coverage))
    return result


def _level_below_one(level):
    """Clip a sum of two levels, which may have been rounded to 1."""
    return np.minimum(level, 1 - _EPSILON)


def shortest_tail(quantile: Callable, shape, coverage: float) -> np.ndarray:
    """Probability below the shortest interval with a given coverage, of this shape.

    For a unimodal distribution this interval is the highest-density region. That region
    may consist of several intervals if there are several modes; this is always a single
    interval. It is never wider than the equal-tailed interval.
    """

    def width(tail):
        return quantile(_level_below_one(tail + coverage)) - quantile(tail)

    step = (1 - coverage) / _N_TAILS
    tails = (np.arange(_N_TAILS) + 0.5) * step
    best = tails[np.argmin([width(np.full(shape, tail)) for tail in tails], axis=0)]
    low, high = np.maximum(best - step, 0.0), np.minimum(best + step, 1 - coverage)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = width(left), width(right)
    for _ in range(_N_SECTIONS):
        shrink = at_left < at_right
        low, high = np.where(shrink, low, left), np.where(shrink, right, high)
        new = np.where(shrink, high - _GOLDEN * (high - low), 0.0)
        new = np.where(shrink, new, low + _GOLDEN * (high - low))
        at_new = width(new)
        left, right = np.where(shrink, new, right), np.where(shrink, left, new)
        at_left, at_right = (
            np.where(shrink, at_new, at_right),
            np.where(shrink, at_left, at_new),
        )
    shortest, central = 0.5 * (low + high), (1 - coverage) / 2
    return np.where(width(shortest) <= width(central), shortest, central)


def _mean(values, weight):
    """Weighted mean over the components of values (components, columns)."""
    return values.mean(0) if weight is None else (weight * values).sum(0)


def _cdf(mean, std, y, weight):
    """Distribution function at y, (columns,)."""
    return 0.5 * _mean(torch.special.erfc((mean - y) / (std * _SQRT_2)), weight)


def _quantile(mean, std, level, weight):
    """The root of probit F(y) - probit level, which is linear for a single Gaussian.

    It lies between the smallest and the largest quantile of the components. Levels
    above 0.5 are computed for the mirrored distribution, where F has more digits.
    """
    above = level > 0.5
    mean = torch.where(above, -mean, mean)
    probit = ndtri(torch.where(above, 1 - level, level))
    steepness = (std * _SQRT_2).reciprocal()

    def excess(y):
        z = (mean - y).mul_(steepness)
        reached = ndtri(0.5 * _mean(torch.special.erfc(z), weight))
        density = z.square_().neg_().exp_().mul_(steepness)
        density = _mean(density, weight) * _SQRT_2
        return reached - probit, density * torch.exp(0.5 * reached * reached)

    quantiles = mean + std * probit
    low, high = quantiles.min(0).values, quantiles.max(0).values
    centre = _mean(mean, weight)
    spread = _mean(std.square() + (mean - centre).square(), weight).sqrt()
    start = (centre + spread * probit).clamp(low, high)
    y = _root(excess, low, high, start, std.min(0).values)
    return torch.where(above, -y, y)


def _root(function: Callable, low, high, start, scale):
    """Newton's method within a bracket, one root per column.

    ``function`` returns value and slope. It increases from negative at ``low`` to
    positive at ``high`` and is smooth on the length ``scale``. A step that leaves the
    bracket, or follows a step that did not halve the value, is replaced by bisection.
    The error after a Newton step is of the order of the square of the step.
    """
    point, previous = start, torch.full_like(start, torch.inf)
    done = torch.zeros_like(start, dtype=torch.bool)
    for _ in range(_MAX_STEPS):
        value, slope = function(point)
        low = torch.where(value < 0, point, low)
        high = torch.where(value < 0, high, point)
        newton = point - value / slope
        accepts_newton = (
            (low <= newton) & (newton <= high) & (value.abs() <= 0.5 * previous)
        )
        next_point = torch.where(accepts_newton, newton, 0.5 * (low + high))
        step, previous = (next_point - point).abs(), value.abs()
        point = torch.where(done, point, next_point)
        done |= (
            step
            <= torch.where(accepts_newton, 1e-6, 1e-12) * scale + 1e-15 * point.abs()
        )
        if done.all():
            break
    return point


def by_columns(function, mean, variance, per_row, weight) -> np.ndarray:
    """Apply ``function(mean, std, per_row, weight)`` to chunks of columns.

    A column is a pair of row and target.

    mean, variance, weight : (draws, rows, targets); weight may be None
    per_row : can be broadcast to (rows, targets)
    """
    n_draws, *shape = mean.shape
    mean, variance, weight = (
        None
        if values is None
        else torch.from_numpy(np.ascontiguousarray(values.reshape(n_draws, -1)))
        for values in (mean, variance, weight)
    )
    per_row = np.broadcast_to(np.asarray(per_row, dtype=np.float64), shape)
    per_row = torch.tensor(per_row.reshape(-1))
    result = torch.empty_like(per_row)
    step = max(1, _CHUNK // n_draws)
    for start in range(0, len(per_row), step):
        columns = slice(start, start + step)
        std = variance[:, columns].double().sqrt()
        share = None if weight is None else weight[:, columns].double()
        if share is not None:
            share = share / share.sum(0)
        result[columns] = function(
            mean[:, columns].double(), std, per_row[columns], share
        )
    return result.numpy().reshape(shape)
