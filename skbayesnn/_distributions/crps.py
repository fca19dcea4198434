"""Continuous ranked probability score (CRPS) of a mixture, per row and target.

In float64; components have the draws axis first.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.polynomial import Polynomial, legendre
from scipy.special import ndtr

from skbayesnn._distributions.quantiles import by_columns

# Number of quantiles that represent a distribution without a closed form.
N_LEVELS = 200
# Number of panels of a quadrature over a distribution function.
N_PANELS = 128
# Degree of the polynomial in each panel.
DEGREE = 4
# Levels of the components' quantiles from which the panels are constructed.
_TAIL = 10.0 ** np.array([-13, -11, -9, -7, -5, -4, -3])
_PANEL_LEVELS = np.concatenate([_TAIL, np.linspace(0.01, 0.99, 15), 1 - _TAIL[::-1]])

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


def crps_by_cdf(y, target, components, values: Callable) -> np.ndarray:
    """CRPS of a monotone function of a mixture, (rows, targets).

    This is the integral of (F(z) - 1[z >= y])^2 over z = values(t) [Gneiting & Raftery
    2007, eq. 20], a Stieltjes integral over t. It is computed in ``N_PANELS`` panels
    with about equal probability. In each panel, F^2 or (1 - F)^2 and ``values`` are
    polynomials through the same nodes. y is the edge of a panel.

    y : (rows, targets)
    target : t with values(t) = y; NaN if y is outside of the range of ``values``
    components : :class:`skbayesnn._distributions.components.Components` of t
    values : elementwise function of arrays (..., rows, targets)
    returns : NaN where ``values`` is not monotone or not finite
    """
    edges = _panel_edges(components)
    low, middle, high = values(edges[[0, len(edges) // 2, -1]])
    outside = np.where((y > middle) == (high >= low), np.inf, -np.inf)
    y_position = np.where(np.isnan(target), outside, target).clip(edges[0], edges[-1])
    edges = np.sort(np.concatenate([edges, y_position[None]]), axis=0)
    nodes, rule = _product_rule(DEGREE)
    half = np.diff(edges, axis=0) / 2
    # The last node of a panel is the first node of the next.
    t = edges[:-1] + half * (1 + nodes[:-1].reshape(-1, 1, 1, 1))
    t = np.concatenate([t.swapaxes(0, 1).reshape(-1, *y.shape), edges[-1:]])
    share = np.stack([components.mixture_cdf(value) for value in t])
    z = values(t)
    with np.errstate(invalid="ignore"):
        steps = np.diff(z, axis=0)
        rounding = 1e-9 * np.abs(z).max(0)
        is_monotone = (steps >= -rounding).all(0) | (steps <= rounding).all(0)
    share, z = (_in_panels(value) for value in (share, z))
    is_below_y = edges[1:] <= y_position
    error = np.where(is_below_y[:, None], share, 1 - share)
    with np.errstate(invalid="ignore", over="ignore"):
        parts = np.einsum("kirt,ij,kjrt->rt", np.square(error), rule, z)
        score = np.abs(parts) + np.abs(y - values(y_position[None])[0])
    return np.where(is_monotone & np.isfinite(score), score, np.nan)


def _panel_edges(components) -> np.ndarray:
    """Values with about equal probability between them, (edges, rows, targets)."""
    shape = components.n_rows, components.n_targets
    pooled = np.concatenate(
        [components.quantile(np.full(shape, level)) for level in _PANEL_LEVELS]
    ).astype(np.float64)
    position = np.linspace(0, len(pooled) - 1, N_PANELS + 1)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, len(pooled) - 1)
    ordered = np.partition(pooled, np.union1d(below, above), axis=0)
    fraction = (position - below)[:, None, None]
    return (1 - fraction) * ordered[below] + fraction * ordered[above]


def _in_panels(at_nodes: np.ndarray) -> np.ndarray:
    """Reshape (nodes, rows, targets) to (panels, nodes per panel, rows, targets)."""
    first = at_nodes[:-1].reshape(-1, DEGREE, *at_nodes.shape[1:])
    last = at_nodes[DEGREE::DEGREE]
    return np.concatenate([first, last[:, None]], axis=1)


@cache
def _product_rule(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Lobatto nodes in [-1, 1], and the integrals of l_i l_j'.

    l_i is the polynomial that is 1 at node i and 0 at the other nodes.
    """
    inner = legendre.Legendre.basis(degree).deriv().roots().real
    nodes = np.concatenate([[-1.0], np.sort(inner), [1.0]])
    basis = [
        Polynomial.fromroots(np.delete(nodes, i)) / np.prod(node - np.delete(nodes, i))
        for i, node in enumerate(nodes)
    ]
    products = [[(p * q.deriv()).integ() for q in basis] for p in basis]
    return nodes, np.array(
        [[product(1.0) - product(-1.0) for product in row] for row in products]
    )


def weighted_sample_crps(y, samples, weights) -> np.ndarray:
    """CRPS of a discrete distribution, (rows, targets).

    y : (rows, targets); samples : (points, rows, targets)
    weights : (points,), or in the shape of the samples
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
