"""Quantiles of a weighted mixture of normal distributions, inside of the graph.

ONNX Runtime has no error function in double precision, and in single precision it has
no tails: here it is exp(-z^2) times a polynomial in 1 / (1 + z / 2), z >= 0.
"""

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx, ndtri

from skbayesnn._onnx.graph import Tensor
from skbayesnn._onnx.likelihoods import Moments

# Relative error of erfc: 1.3e-8.
_DEGREE = 11
_MOST_STEPS = 100
# Of the smallest component's std: a point that has moved by less stays.
_TOLERANCE = 1e-6


def mixture_quantiles(mixture: Moments, levels) -> Tensor:
    """(levels, rows, targets), as ``_distributions.quantiles.mixture_quantile``.

    Levels above a half are taken from the other end, where the distribution function
    has more digits.
    """
    levels = np.array(levels).reshape(-1, 1, 1, 1)
    side = np.where(levels > 0.5, -1.0, 1.0)
    tail = np.minimum(levels, 1 - levels)
    # (levels, components, rows, targets), or length 1 for all.
    mean, share = mixture.mean * side, mixture.share.unsqueeze(0)
    std = mixture.variance.unsqueeze(0).op("Sqrt")
    return side[:, 0] * _root(mean, std, share, tail, mixture)


def _root(mean, std, share, tail, mixture: Moments) -> Tensor:
    """Where the mixture's distribution function is ``tail``; (levels, rows, targets).

    By Newton's method inside of a bracket. A step that leaves it, or is more than half
    of the one before, is replaced by bisection [Press et al. 2007, "Numerical Recipes",
    section 9.4].
    """
    ends = mean + std * ndtri(tail)
    low, high = ends.min(1), ends.max(1)
    middle = (mixture.share * mixture.mean).sum(0)
    apart = mixture.variance + (mixture.mean - middle).square()
    spread = (mixture.share * apart).sum(0).op("Sqrt")
    start = (share * mean).sum(1) + spread * ndtri(tail[:, 0])
    start = start.op("Max", low).op("Min", high)
    steepness = (np.sqrt(2.0) * std).op("Reciprocal")
    density_share = share * steepness / np.sqrt(np.pi)
    finest = _TOLERANCE * std.min(1)

    def step(point, low, high, before):
        upper, bell = _half_erfc((mean - point.unsqueeze(1)) * steepness)
        excess = (share * upper).sum(1) - tail[:, 0]
        newton = -excess / (density_share * bell).sum(1)
        below = excess.op("Less", np.array(0.0))
        low = below.op("Where", point, low)
        high = below.op("Where", high, point)
        inside = (point + newton).op("GreaterOrEqual", low)
        inside = inside.op("And", (point + newton).op("LessOrEqual", high))
        good = inside.op("And", newton.op("Abs").op("LessOrEqual", 0.5 * before))
        moved = good.op("Where", newton, 0.5 * (low + high) - point)
        done = before.op("LessOrEqual", finest)
        moved = done.op("Where", np.array(0.0), moved)
        size = moved.op("Abs")
        going = size.op("Greater", finest).cast(np.int32)
        any_going = going.op("ReduceMax", keepdims=0).cast(np.bool_)
        return any_going, point + moved, low, high, size

    graph = low.graph
    found, *_ = graph.loop(step, _MOST_STEPS, start, low, high, high - low)
    return found


def _half_erfc(z: Tensor) -> tuple[Tensor, Tensor]:
    """erfc(z) / 2 and exp(-z^2)."""
    bell = (-z.square()).op("Exp")
    t = (z.op("Abs") * 0.5 + 1.0).op("Reciprocal")
    *others, value = half_erfc_polynomial()
    series = t * value
    for coefficient in others[::-1]:
        series = (series + coefficient) * t
    beyond = series * bell
    return z.op("Less", np.array(0.0)).op("Where", 1.0 - beyond, beyond), bell


def half_erfc_polynomial() -> np.ndarray:
    """c with erfc(z) exp(z^2) / 2 = sum_k c_k t^(k + 1), t = 1 / (1 + z / 2)."""

    def scaled(t):
        return 0.5 * erfcx(2 * (1 / t - 1)) / t

    series = Chebyshev.interpolate(scaled, _DEGREE - 1, domain=[0, 1])
    return series.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef
