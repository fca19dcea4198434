"""Distributions of a y that is limited, skewed, censored, or has a point mass.

A network, or another model, predicts a latent value z, a real number. What is recorded
is

    y = point                    with probability pi(x),
    y = h^-1(z), within bounds   otherwise,

with h the identity, the logarithm of the distance from the lower bound, or the logit of
the share of the way between the bounds. Values of z below h(low_edge) are recorded as
``low``, and above h(high_edge) as ``high``. This gives a floor or a cap (Tobin 1958,
"Estimation of relationships for limited dependent variables", Econometrica 26),
log-normal values, shares in [0, 1] with rows at both ends, and zeros that occur more
often (Cragg 1971, Econometrica 39).

An exponential far beyond the training rows would exceed any bound. Beyond ``top``, the
largest y of these rows, h is therefore linear, with the slope of the logarithm there,
and the latent mean of a draw is at most h(top): like a tree, such a model does not
extrapolate upwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from skbayesnn._distributions.components import Components, Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures, JoinedDraws
from skbayesnn._distributions.quantiles import mixture_cdf, mixture_quantile

SCALES = ("identity", "log", "logit", "count")
# Quadrature nodes for moments without a closed form, and their reach in standard
# deviations.
_N_NODES, _REACH = 64, 8.5
# Counts below this are summed, larger ones integrated.
_N_COUNTS = 64


@dataclass(frozen=True)
class TargetSpace:
    """The map h from y to the latent value z, the bounds of y, and a point mass.

    Parameters
    ----------
    scale : {"identity", "log", "logit", "count"}
        h(y) is y, log(y - low), or log((y - low) / (high - y)). Of counts the integer
        y is recorded if log(y) < z <= log(y + 1): a discretised log-normal.
    low, high : float
        Bounds of y. For the logarithm ``low`` is finite, for the logit both are.
    low_edge, high_edge : float
        Values up to ``low_edge`` are recorded as ``low``, from ``high_edge`` as
        ``high``.
    point : float or None
        Value with a separate probability.
    top : float
        Of the logarithm and of counts: h is linear for larger y.
    knots : pair of tuples of float, or None
        A further increasing function, of the logarithm: linear between its values at
        these points, and beyond them.
    """

    scale: str = "identity"
    low: float = -np.inf
    high: float = np.inf
    low_edge: float = -np.inf
    high_edge: float = np.inf
    point: float | None = None
    top: float = np.inf
    knots: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @classmethod
    def bounded(cls, scale: str, low: float, high: float, **others) -> "TargetSpace":
        """A space whose edges are its bounds."""
        return cls(scale, low, high, low, high, **others)

    def joined(self, other: "TargetSpace") -> "TargetSpace":
        """The space of the rows of both; rows of this one keep their latent values."""
        return replace(
            self,
            low_edge=min(self.low_edge, other.low_edge),
            high_edge=max(self.high_edge, other.high_edge),
            top=max(self.top, other.top),
        )

    @property
    def is_valid(self) -> bool:
        """Whether the scale is defined within the bounds, which contain the edges."""
        bounds = [self.low, self.low_edge, self.high_edge, self.high]
        numbers = [*bounds, self.top] + ([] if self.point is None else [self.point])
        if not (self.scale in SCALES and all(isinstance(v, Real) for v in numbers)):
            return False
        needed = {"log": [self.low], "logit": [self.low, self.high]}
        return bool(
            self.low <= self.low_edge < self.high_edge <= self.high
            and np.isfinite(needed.get(self.scale, [])).all()
            and (self.point is None or np.isfinite(self.point))
            and self.top > self.low
            and (self.knots is None or self._has_valid_knots)
        )

    @property
    def _has_valid_knots(self) -> bool:
        """Whether knots are of the logarithm, finite, increasing, and below ``top``."""
        knots = np.array(self.knots, dtype=float)
        if knots.ndim != 2 or len(knots) != 2 or knots.shape[1] < 2:
            return False
        is_below = knots[0, -2] <= np.log(self._unit)
        are_increasing = np.isfinite(knots).all() and (np.diff(knots) > 0).all()
        return bool(self.scale == "log" and is_below and are_increasing)

    @property
    def is_plain(self) -> bool:
        """Whether y is the latent value itself."""
        return self == TargetSpace()

    @property
    def _unit(self) -> float:
        """exp(z) from which on h is linear."""
        return self.top + 1 if self.scale == "count" else self.top - self.low

    @property
    def largest_mean(self) -> float:
        """Upper bound of the mean of a draw, a latent value."""
        exponential = self.scale in ("log", "count") and self.knots is None
        return float(np.log(self._unit)) if exponential else np.inf

    def _log(self, values: np.ndarray) -> np.ndarray:
        """The logarithm, linear beyond ``_unit``, of values >= 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log(np.minimum(values, self._unit))
            beyond = np.maximum(values / self._unit - 1, 0.0)
        return inner + np.where(np.isnan(beyond), 0.0, beyond)

    def _exp(self, z: np.ndarray) -> np.ndarray:
        """Inverse of ``_log``."""
        z = z.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            largest = np.log(self._unit)
            beyond = np.where(z > largest, self._unit * (z - largest), 0.0)
            return np.exp(np.minimum(z, largest)) + beyond

    def to_latent(self, y: np.ndarray) -> np.ndarray:
        """h(y), of the same shape; -inf and inf outside of the bounds."""
        scaled = self._to_scale(y)
        return scaled if self.knots is None else _piecewise(scaled, *self.knots)

    def _to_scale(self, y: np.ndarray) -> np.ndarray:
        """y on the scale, without knots."""
        if self.scale == "identity":
            return y.astype(np.float64)
        if self.scale == "log":
            return self._log(np.maximum(y - self.low, 0.0))
        if self.scale == "count":
            return self._log(y + 0.5)
        inside = np.clip(y, self.low, self.high)
        with np.errstate(divide="ignore"):
            return np.log(inside - self.low) - np.log(self.high - inside)

    def from_latent(self, z: np.ndarray) -> np.ndarray:
        """y that is recorded for z, of the same shape."""
        if self.knots is not None:
            z = _piecewise(z, *self.knots[::-1])
        if self.scale == "identity":
            y = z.astype(np.float64)
        elif self.scale == "log":
            y = self.low + self._exp(z)
        elif self.scale == "count":
            y = np.ceil(self._exp(z) - 1 - 1e-9)  # log(k + 1) is recorded as k
        else:
            y = self.low + (self.high - self.low) * expit(z)
        y = np.where(y <= self.low_edge, self.low, y)
        return np.where(y >= self.high_edge, self.high, y)

    def as_recorded(self, y: np.ndarray) -> np.ndarray:
        """y, and the bound for values between it and its edge, of the same shape."""
        y = np.where((self.low <= y) & (y <= self.low_edge), self.low, y)
        return np.where((self.high_edge <= y) & (y <= self.high), self.high, y)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """log h'(y), of the same shape, for y between the edges."""
        slope = self._log_slope_of_scale(y)
        if self.knots is None:
            return slope
        points, values = np.array(self.knots)
        piece = np.searchsorted(points[1:-1], self._to_scale(y), side="right")
        return slope + np.log(np.diff(values) / np.diff(points))[piece]

    def _log_slope_of_scale(self, y: np.ndarray) -> np.ndarray:
        """Log derivative of the scale, without knots."""
        if self.scale == "identity":
            return np.zeros(np.shape(y))
        if self.scale == "log":
            return -np.log(np.minimum(y - self.low, self._unit))
        width = self.high - self.low
        return np.log(width) - np.log(y - self.low) - np.log(self.high - y)

    def up_to(self, y: np.ndarray) -> np.ndarray:
        """The largest z that is recorded as y or less, of the same shape."""
        if self.scale == "count":
            z = self._log(np.maximum(np.floor(y) + 1, 0))
        else:
            z = self._latent_inside(y)
        z = np.where(y < self.low, -np.inf, z)
        return np.where(y >= self.high, np.inf, z)

    def below(self, y: np.ndarray) -> np.ndarray:
        """The largest z that is recorded as less than y, of the same shape.

        It equals ``up_to(y)`` unless y is a bound or a count.
        """
        if self.scale == "count":
            z = self._log(np.maximum(np.ceil(y), 0))
        else:
            z = self._latent_inside(y)
        z = np.where(y <= self.low, -np.inf, z)
        return np.where(y > self.high, np.inf, z)

    def _latent_inside(self, y):
        return self.to_latent(np.clip(y, self.low_edge, self.high_edge))

    @property
    def latent_edges(self) -> tuple[float, float]:
        """h of the two edges."""
        low, high = self.to_latent(np.array([self.low_edge, self.high_edge]))
        return float(low), float(high)


def _piecewise(x, points, values) -> Any:
    """A function that is linear between points and beyond them.

    x : any shape, an array or a tensor of a graph
    points, values : increasing, at least two
    """
    ends = [-np.inf, *points[1:-1], np.inf]
    slopes = np.diff(values) / np.diff(points)
    y = values[0] - slopes[0] * points[0]
    for slope, low, high in zip(slopes, ends[:-1], ends[1:], strict=True):
        start = low if np.isfinite(low) else 0.0
        y = y + slope * (np.clip(x, low, high) - start)
    return y


def is_space(values: dict) -> bool:
    """Whether stored values are the fields of a valid space."""
    try:
        return TargetSpace(**values).is_valid
    except (TypeError, ValueError):  # another field, or uneven knots
        return False


def _truncated_normal(mean, std, low, high):
    """Sums of 1, z and z^2 over low < z < high, for normal z."""
    below, above = (low - mean) / std, (high - mean) / std
    d_low, d_high = _density(below), _density(above)
    inside = ndtr(above) - ndtr(below)
    first = mean * inside + std * (d_low - d_high)
    second = (np.square(mean) + np.square(std)) * inside
    second += std * (_times(mean + low, d_low) - _times(mean + high, d_high))
    return inside, first, second


def _clipped_normal(mean, std, low: float, high: float):
    """Mean and mean square of a normal variable that is clipped to [low, high]."""
    _, first, second = _truncated_normal(mean, std, low, high)
    p_low, p_high = ndtr((low - mean) / std), ndtr((mean - high) / std)
    return (
        first + _times(low, p_low) + _times(high, p_high),
        second + _times(low**2, p_low) + _times(high**2, p_high),
    )


def _density(z):
    return np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)


def _times(value, probability):
    """The product, 0 where the probability is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(probability > 0, value * probability, 0.0)


def _clipped_log_normal(mean, std, space: TargetSpace):
    """Mean and mean square of h^-1(N(mean, std^2)), recorded in a space.

    y is log-normal between two knots, and linear beyond the top.
    """
    points, values = np.array(space.knots or ((0.0, 1.0), (0.0, 1.0)))
    low, high = space._to_scale(np.array([space.low_edge, space.high_edge]))
    unit, top = space._unit, np.log(space._unit)
    ends = np.concatenate([[low], points[1:-1].clip(low, high), [high]])
    # The normal variable on the scale, of each piece: (..., pieces).
    slopes = np.diff(points) / np.diff(values)
    mean = points[:-1] + slopes * (mean[..., None] - values[:-1])
    std = slopes * std[..., None]
    moments = []
    for power in (1, 2):
        shifted = mean + power * np.square(std)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.exp(power * mean + 0.5 * np.square(power * std))
            below = ndtr((np.minimum(ends, top)[1:] - shifted) / std)
            below = below - ndtr((np.minimum(ends, top)[:-1] - shifted) / std)
            moments.append(_times(whole, below).sum(-1))
    first, second = moments
    mean, std = mean[..., -1], std[..., -1]
    if top < high:  # the linear part, unit * (1 + z - top)
        inside, z, square = _truncated_normal(mean, std, top, high)
        start = 1 - top
        first = first + unit * (z + start * inside)
        second = second + unit**2 * (square + 2 * start * z + start**2 * inside)
    p_high, width = ndtr((mean - high) / std), space.high - space.low
    first, second = first + _times(width, p_high), second + _times(width**2, p_high)
    return space.low + first, space.low**2 + 2 * space.low * first + second


def _discretised(mean, std, space: TargetSpace):
    """Mean and mean square of counts of a log-normal variable.

    With P(Y > k) of the first counts, and the continuous variable beyond them.
    """
    first = second = 0.0
    for k in np.arange(float(_N_COUNTS)).reshape(-1, 8, 1, 1, 1):
        share = ndtr((mean - space.up_to(k)) / std)
        first = first + share.sum(0)
        second = second + ((2 * k + 1) * share).sum(0)
    # exp(z) is y + 1/2 of a count.
    edge = float(_N_COUNTS)
    beyond = TargetSpace("log", -0.5, np.inf, edge, np.inf, top=space.top + 0.5)
    below = ndtr((beyond.latent_edges[0] - mean) / std)
    rest = _clipped_log_normal(mean, std, beyond)
    return tuple(
        moment + value - (-0.5) ** power * below - edge**power * (1 - below)
        for moment, value, power in ((first, rest[0], 1), (second, rest[1], 2))
    )


def _clipped_by_quadrature(mean, std, space: TargetSpace):
    """Mean and mean square of h^-1(N(mean, std^2)), recorded in a space."""
    low, high = space.latent_edges
    points, weights = np.polynomial.legendre.leggauss(_N_NODES)
    points, weights = points[:, None, None, None], weights[:, None, None, None]
    start, end = (np.clip(mean + reach * std, low, high) for reach in (-_REACH, _REACH))
    z = (points + 1) * ((end - start) / 2) + start
    weights = weights * ((end - start) / 2) * (_density((z - mean) / std) / std)
    y = space.from_latent(z)
    p_low, p_high = ndtr((low - mean) / std), ndtr((mean - high) / std)
    return tuple(
        (weights * y**power).sum(0)
        + space.low**power * p_low
        + space.high**power * p_high
        for power in (1, 2)
    )


@dataclass(frozen=True)
class Latents(Gaussians):
    """Normal latent values, and the probability of a point mass of y.

    probability : ndarray of shape (draws, rows, targets)
    """

    probability: np.ndarray


def recorded(latent: Components, spaces: Sequence[TargetSpace]) -> Components:
    """Distributions of y for latent values, in the units of h(y)."""
    spaces, probability = tuple(spaces), None
    if isinstance(latent, JoinedDraws):
        return latent._each(lambda part: recorded(part, spaces))
    largest = np.array([space.largest_mean for space in spaces])
    if np.isfinite(largest).any():
        latent = with_largest_mean(latent, largest)
    if isinstance(latent, Latents):
        if any(space.point is not None for space in spaces):
            probability = latent.probability.astype(np.float64)
        latent = Gaussians(latent.mean, latent.variance, own_share=latent.own_share)
    if probability is None and all(space.is_plain for space in spaces):
        return latent
    return Recorded(latent, spaces, probability)


def with_largest_mean(latent: Any, largest: np.ndarray) -> Components:
    """Latent values with means of at most ``largest``, (targets,)."""
    if isinstance(latent, GaussianMixtures):
        return replace(latent, location=np.minimum(latent.location, largest[:, None]))
    if any(field.name == "mean" for field in fields(latent)):
        return replace(latent, mean=np.minimum(latent.mean, largest))
    return latent


@dataclass(frozen=True)
class Recorded(Components):
    """What is recorded of latent values: (draws, rows, targets).

    Parameters
    ----------
    latent : Components
        Distributions of z.
    spaces : sequence of TargetSpace
        One per target.
    probability : ndarray of shape (draws, rows, targets), or None
        Probability of the point mass, pi.
    """

    latent: Components
    spaces: tuple[TargetSpace, ...]
    probability: np.ndarray | None = None

    @property
    def is_location_scale(self):
        """Bounds do not move."""
        return False

    def support(self):
        """Bounds of the spaces."""
        bounds = [(space.low, space.high) for space in self.spaces]
        low, high = np.transpose(bounds)
        return low, high

    @property
    def atoms(self):
        """Bounds and point masses."""
        values = np.array([(s.low, s.high, s.point) for s in self.spaces], dtype=float)
        is_atom = np.isfinite(values)
        return np.where(is_atom, values, np.nan)[:, is_atom.any(0)].T

    def may_equal(self, y):
        """Whether y is a bound, a count or a point mass."""
        below, up_to = (
            self._by_target(function, y)
            for function in (TargetSpace.below, TargetSpace.up_to)
        )
        return (below < up_to) | (y == self._points())

    # ---- draws, rows and targets

    @property
    def _first(self):
        return self.latent._first

    @property
    def kind(self):
        """What parts must have in common to be concatenated."""
        return (*super().kind, self.latent.kind, self.spaces)

    @property
    def own_share(self):
        """Probability that y is from the draw itself, or None."""
        return self.latent.own_share

    def _mapped(self, function):
        probability = self.probability
        return replace(
            self,
            latent=self.latent._mapped(function),
            probability=None if probability is None else function(probability),
        )

    @classmethod
    def concatenated(cls, parts: Sequence, axis: int = 0):
        """Concatenate draws, rows or targets."""
        latent = [part.latent for part in parts]
        spaces, probability = parts[0].spaces, None
        if axis == 2:
            spaces = tuple(space for part in parts for space in part.spaces)
        if any(part.probability is not None for part in parts):
            probability = np.concatenate([part._probability for part in parts], axis)
        return cls(type(latent[0]).concatenated(latent, axis), spaces, probability)

    @classmethod
    def collected(cls, parts, n_draws):
        """Concatenate the draws of several objects."""
        return cls.concatenated(list(parts))

    def targets(self, index):
        """Select targets by index or slice."""
        spaces = tuple(np.array(self.spaces, dtype=object)[index])
        return replace(super().targets(index), spaces=spaces)

    @property
    def _probability(self) -> np.ndarray:
        """pi, zeros without a point mass, (draws, rows, targets)."""
        shape = self.n_draws, self.n_rows, self.n_targets
        return np.zeros(shape) if self.probability is None else self.probability

    def _by_target(self, function, *arrays) -> np.ndarray:
        """Apply a function of a space and of columns to each target (the last axis)."""
        columns = [
            function(space, *(values[..., j] for values in arrays))
            for j, space in enumerate(self.spaces)
        ]
        return np.stack(columns, axis=-1)

    def _points(self) -> np.ndarray:
        """Values of the point masses, (targets,); NaN without one."""
        return np.array([space.point for space in self.spaces], dtype=np.float64)

    # ---- moments of every draw

    @cached_property
    def _moments(self):
        """Mean and variance of every draw, (draws, rows, targets) each."""
        columns = [self._moments_of(j, space) for j, space in enumerate(self.spaces)]
        first, second = (np.stack(v, axis=-1) for v in zip(*columns, strict=True))
        if self.probability is not None:
            rest, point = 1 - self.probability, np.nan_to_num(self._points())
            first = rest * first + self.probability * point
            second = rest * second + self.probability * np.square(point)
        return first, np.maximum(second - np.square(first), 0.0)

    def _moments_of(self, j: int, space: TargetSpace) -> list[np.ndarray]:
        """Mean and mean square without the point mass, (draws, rows) each."""
        latent = self.latent
        if not isinstance(latent, Gaussians | GaussianMixtures):
            nodes, weights = latent.targets(slice(j, j + 1)).nodes(_N_NODES)
            y = space.from_latent(nodes[..., 0])
            weights = np.broadcast_to(weights.T, y.T.shape).T
            return [(weights * y).sum(0), (weights * np.square(y)).sum(0)]
        mixtures = GaussianMixtures.of(latent)
        weight, mean, std = (
            values[..., j, :].astype(np.float64)
            for values in (mixtures.weight, mixtures.location, mixtures.scale)
        )
        if space.scale == "log":
            moments = _clipped_log_normal(mean, std, space)
        elif space.scale == "count":
            moments = _discretised(mean, std, space)
        elif space.scale == "logit":
            moments = _clipped_by_quadrature(mean, std, space)
        else:
            moments = _clipped_normal(mean, std, space.low, space.high)
        return [(weight * values).sum(-1) for values in moments]

    @property
    def mean(self):
        """Mean of every draw, (draws, rows, targets)."""
        return self._moments[0]

    @property
    def variance(self):
        """Variance of every draw, (draws, rows, targets)."""
        return self._moments[1]

    # ---- probabilities and densities of every draw

    def _has_point(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Whether the point mass is in (low, high], (rows, targets)."""
        points = self._points()
        return (low < points) & (points <= high)

    def cdf(self, y):
        """P(Y <= y)."""
        share = self.latent.cdf(self._by_target(TargetSpace.up_to, y))
        if self.probability is None:
            return share
        point = np.where(self._points() <= y, 1.0, 0.0)
        return self.probability * point + (1 - self.probability) * share

    def log_probability(self, low, high):
        """log P(low < Y <= high)."""
        return self._log_sum(
            self._log_rest(
                *(self._by_target(TargetSpace.up_to, end) for end in (low, high))
            ),
            self._has_point(low, high),
        )

    def _log_rest(self, low, high) -> np.ndarray:
        """log P(low < z <= high), -inf if the interval is empty."""
        is_empty = low >= high
        low, high = np.where(is_empty, -1.0, low), np.where(is_empty, 1.0, high)
        return np.where(is_empty, -np.inf, self.latent.log_probability(low, high))

    def _log_sum(self, log_rest, has_point) -> np.ndarray:
        """Log probability or density with the point mass, (draws, rows, targets)."""
        if self.probability is None:
            return log_rest
        with np.errstate(divide="ignore"):
            log_point = np.where(has_point, np.log(self.probability), -np.inf)
            return np.logaddexp(log_point, np.log1p(-self.probability) + log_rest)

    def log_density_per_target(self, y):
        """Log density of y; at a point mass or a bound, the log probability."""
        y = self._by_target(TargetSpace.as_recorded, np.asarray(y, dtype=np.float64))
        below, up_to = (
            self._by_target(function, y)
            for function in (TargetSpace.below, TargetSpace.up_to)
        )
        density = self._log_rest(below, up_to)
        inside = self._by_target(
            lambda space, y: (space.low_edge < y) & (y < space.high_edge), y
        )
        inside &= (y != self._points()) & (below == up_to)
        inside &= np.array([space.scale != "count" for space in self.spaces])
        if inside.any():
            slope = self._by_target(TargetSpace.log_slope, np.where(inside, y, np.nan))
            z = np.where(inside, up_to, 0.0)
            given = self.latent.log_density_per_target(z) + slope
            density = np.where(inside, given, density)
        return self._log_sum(density, y == self._points())

    # ---- quantiles and samples

    def _quantile(self, level, probability, share, inverse) -> np.ndarray:
        """Quantile of y; probability, share and inverse are of a draw or of all.

        share, inverse : distribution function of z without the point mass, and its
            inverse
        """

        def from_latent(z):
            return self._by_target(TargetSpace.from_latent, z)

        if probability is None:
            return from_latent(inverse(level))
        points = self._points()
        rest = 1 - probability
        before = rest * share(self._by_target(TargetSpace.below, points[None]))
        with np.errstate(divide="ignore", invalid="ignore"):
            outer = np.where(level < before, level / rest, (level - probability) / rest)
        is_point = (level >= before) & (level <= before + probability)
        outer = np.where(is_point, 0.5, outer)
        tiny = np.finfo(float).tiny
        outer = outer.clip(tiny, 1 - np.finfo(float).epsneg)
        return np.where(is_point, points, from_latent(inverse(outer)))

    def quantile(self, level):
        """Quantile of every draw."""
        latent = self.latent
        return self._quantile(level, self.probability, latent.cdf, latent.quantile)

    def sample(self, random):
        """Sample y from every draw."""
        y = self._by_target(TargetSpace.from_latent, self.latent.sample(random))
        if self.probability is None:
            return y
        return np.where(random.random(y.shape) < self.probability, self._points(), y)

    def rescaled(self, shift, factor):
        """Raise an error: the bounds of y have no other units."""
        raise TypeError(
            "predictive distributions with bounds, a scale or a point mass of y cannot "
            "be shifted."
        )

    def scaled_about(self, centre, factor, bound=np.inf, own=None):
        """Spread the latent values; on another scale than y's about their own mean.

        own : mean of all latent values, (rows, targets); by default, of these draws
        """
        own = self.latent.mean.mean(0) if own is None else own
        is_identity = np.array([space.scale == "identity" for space in self.spaces])
        centre = np.where(is_identity, centre, own)
        return replace(self, latent=self.latent.scaled_about(centre, factor, bound))

    # ---- the mixture of all draws

    @property
    def _mixture_weight(self):
        """Weight of the latent draws, which differs with a point mass; or None."""
        return None if self.probability is None else 1 - self.probability

    def _mixture_share(self, z) -> np.ndarray:
        """Distribution function of z without the point mass, (rows, targets)."""
        weight = self._mixture_weight
        if weight is None:
            return self.latent.mixture_cdf(z)
        return mixture_cdf(self.latent.mean, self.latent.variance, z, weight)

    def mixture_quantile(self, level):
        """Quantile of the mixture of all draws."""
        level = np.broadcast_to(level, (self.n_rows, self.n_targets))
        if self.probability is None:
            return self._quantile(level, None, None, self.latent.mixture_quantile)
        weight, latent = self._mixture_weight, self.latent
        return self._quantile(
            level,
            self.probability.mean(0),
            self._mixture_share,
            lambda outer: mixture_quantile(latent.mean, latent.variance, outer, weight),
        )

    def mixture_cdf(self, y):
        """P(Y <= y) of the mixture of all draws."""
        share = self._mixture_share(self._by_target(TargetSpace.up_to, y))
        if self.probability is None:
            return share
        probability = self.probability.mean(0)
        has_point = self._points() <= y
        return probability * has_point + (1 - probability) * share

    def nodes(self, n):
        """Quadrature nodes of every draw, and their weights."""
        values, weights = self.latent.nodes(n)
        y = self._by_target(TargetSpace.from_latent, values)
        if self.probability is None:
            return y, weights
        weights = np.broadcast_to(np.asarray(weights).T, y.T.shape).T
        # A target without a point mass repeats a node, with the probability 0.
        point = np.where(np.isnan(self._points()), y[:1], self._points())
        return (
            np.concatenate([y, point]),
            np.concatenate([weights * (1 - self.probability), self.probability[None]]),
        )
