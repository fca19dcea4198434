"""Quantiles of weighted mixtures as ONNX operators."""

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
from scipy.special import ndtri

from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._distributions.recorded import Recorded, TargetSpace
from skbayesnn._onnx.graph import Tensor, half_erfc
from skbayesnn._onnx.mixtures import Draws, Normals

_MAX_STEPS = 100
# Newton's method stops at steps below this share of the smallest component's std.
_TOLERANCE = 1e-6


# Quantiles are found in intervals that reach this number of standard deviations beyond
# all latent means, until the width is below this share of the quantile.
_REACH, _PRECISION = 9.0, 1e-10


def recorded_quantiles(draws: Sequence[Draws], levels) -> Tensor:
    """Quantiles of what is recorded, by bisection, (levels, rows, targets)."""
    levels = np.array(levels).reshape(-1, 1, 1)
    reach = max(_REACH, float(np.abs(ndtri(levels)).max()))
    lows, highs = zip(*(_outermost(part, reach) for part in draws), strict=True)
    shape = np.array(levels.shape)
    low = reduce(np.minimum, lows).op("Expand", shape)
    high = reduce(np.maximum, highs).op("Expand", shape)

    def is_below(y):
        y = y.unsqueeze(1)
        shares = [(part.share * part.components.cdf(y)).sum(1) for part in draws]
        return reduce(add, shares) < levels

    def step(low, high):
        middle = 0.5 * (low + high)
        below = is_below(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        is_wide = high - low > _PRECISION * (low.op("Abs") + high.op("Abs"))
        any_wide = is_wide.cast(np.int32).op("ReduceMax", keepdims=0).cast(np.bool_)
        return any_wide, low, high

    # The lowest value may be an atom that reaches the level.
    high = np.where(is_below(low), high, low)
    return low.graph.loop(step, _MAX_STEPS, low, high)[1]


def _outermost(part: Draws, reach: float) -> tuple[Tensor, Tensor]:
    """Values below and above all quantiles of the draws, (rows, targets) each."""
    found = part.components
    latent = GaussianMixtures.of(getattr(found, "latent", found))
    low = (latent.location - reach * latent.scale).min(-1).min(0)
    high = (latent.location + reach * latent.scale).max(-1).max(0)
    if not isinstance(found, Recorded):
        return low, high
    low, high = (found._by_target(TargetSpace.from_latent, z) for z in (low, high))
    points = found._points()
    return (
        np.minimum(low, np.where(np.isnan(points), np.inf, points)),
        np.maximum(high, np.where(np.isnan(points), -np.inf, points)),
    )


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
        cdf, bell = half_erfc((mean - point.unsqueeze(1)) * steepness)
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
