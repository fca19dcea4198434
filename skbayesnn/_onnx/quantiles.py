"""Quantiles of a weighted mixture of normal distributions as ONNX operators.

ONNX Runtime has no error function in double precision, and in single precision its
tails are zero. Here erfc(z) is exp(-z^2) times a polynomial in 1 / (1 + z / 2), z >= 0.
"""

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx, ndtri

from skbayesnn._onnx.graph import Tensor
from skbayesnn._onnx.mixtures import Normals

# Degree of the polynomial; the relative error of erfc is 1.3e-8.
_DEGREE = 11
_MAX_STEPS = 100
# Newton's method stops at steps below this share of the smallest component's std.
_TOLERANCE = 1e-6


def mixture_quantiles(mixture: Normals, levels) -> Tensor:
    """Quantiles, (levels, rows, targets); compare ``_distributions.quantiles``.

    Levels above one half are computed from the upper tail, where the complement of the
    distribution function has more digits.
    """
    levels = np.array(levels).reshape(-1, 1, 1, 1)
    side = np.where(levels > 0.5, -1.0, 1.0)
    tail = np.minimum(levels, 1 - levels)
    # Shape (levels, components, rows, targets); an axis may have length 1.
    mean, share = mixture.mean * side, mixture.share.unsqueeze(0)
    std = mixture.variance.unsqueeze(0).op("Sqrt")
    return side[:, 0] * _root(mean, std, share, tail, mixture)


def _root(mean, std, share, tail, mixture: Normals) -> Tensor:
    """Root of the mixture's distribution function minus ``tail``.

    Newton's method in a bracket, with bisection instead of steps that leave the bracket
    or exceed half of the previous step [Press et al. 2007, "Numerical Recipes", section
    9.4].

    returns : (levels, rows, targets)
    """
    # The quantile of the mixture is between the quantiles of its components.
    component_quantiles = mean + std * ndtri(tail)
    low, high = component_quantiles.min(1), component_quantiles.max(1)
    centre = (mixture.share * mixture.mean).sum(0)
    second_moment = mixture.variance + (mixture.mean - centre).square()
    spread = (mixture.share * second_moment).sum(0).op("Sqrt")
    start = (share * mean).sum(1) + spread * ndtri(tail[:, 0])
    start = start.op("Max", low).op("Min", high)
    steepness = (np.sqrt(2.0) * std).op("Reciprocal")
    density_share = share * steepness / np.sqrt(np.pi)
    finest = _TOLERANCE * std.min(1)

    def step(point, low, high, previous_size):
        cdf, bell = _half_erfc((mean - point.unsqueeze(1)) * steepness)
        excess = (share * cdf).sum(1) - tail[:, 0]
        newton = -excess / (density_share * bell).sum(1)
        is_below = excess.op("Less", np.array(0.0))
        low = is_below.op("Where", point, low)
        high = is_below.op("Where", high, point)
        is_inside = (point + newton).op("GreaterOrEqual", low)
        is_inside = is_inside.op("And", (point + newton).op("LessOrEqual", high))
        is_small = newton.op("Abs").op("LessOrEqual", 0.5 * previous_size)
        is_good = is_inside.op("And", is_small)
        move = is_good.op("Where", newton, 0.5 * (low + high) - point)
        is_done = previous_size.op("LessOrEqual", finest)
        move = is_done.op("Where", np.array(0.0), move)
        size = move.op("Abs")
        continues = size.op("Greater", finest).cast(np.int32)
        any_continues = continues.op("ReduceMax", keepdims=0).cast(np.bool_)
        return any_continues, point + move, low, high, size

    graph = low.graph
    root, *_ = graph.loop(step, _MAX_STEPS, start, low, high, high - low)
    return root


def _half_erfc(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return erfc(z) / 2 and exp(-z^2)."""
    bell = (-z.square()).op("Exp")
    t = (z.op("Abs") * 0.5 + 1.0).op("Reciprocal")
    *lower, highest = half_erfc_polynomial()
    series = t * highest
    for coefficient in lower[::-1]:
        series = (series + coefficient) * t
    tail = series * bell
    return z.op("Less", np.array(0.0)).op("Where", 1.0 - tail, tail), bell


def half_erfc_polynomial() -> np.ndarray:
    """c in erfc(z) exp(z^2) / 2 = sum_k c_k t^(k + 1), t = 1 / (1 + z / 2)."""

    def scaled(t):
        return 0.5 * erfcx(2 * (1 / t - 1)) / t

    series = Chebyshev.interpolate(scaled, _DEGREE - 1, domain=[0, 1])
    return series.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef
