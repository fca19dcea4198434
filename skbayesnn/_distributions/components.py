"""The distribution of y given one posterior draw, for every row and target.

A likelihood converts network outputs to :class:`Components`; the attribute
``Likelihood.components_class`` is the class. These objects compute moments, quantiles,
intervals, densities, samples and scores, so that other modules do not depend on the
likelihood. They use NumPy, with float64 where precision matters.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from skbayesnn._distributions.crps import (
    HALF_LOG_2PI,
    gaussian_mixture_crps,
    spread_levels,
    weighted_sample_crps,
)
from skbayesnn._distributions.quantiles import (
    increasing_root,
    integer_quantile,
    mixture_cdf,
    mixture_quantile,
)

# ---- base class

# Number of quantiles of all draws that represent a mixture.
N_POINTS = 1000
# Smallest number of these quantiles per draw. With 200 normal draws the CRPS of a row
# is within 0.3 % of the exact one, its mean within 0.01 %; with 5 within 2 and 0.02 %.
MIN_POINTS_PER_DRAW = 10
# The CRPS of a count is summed over single values between its quantiles of the first
# level and of its complement, if they are at most this many. More values are split
# into this many cells; the error is then below 1e-3 of the standard deviation.
LEVEL_OF_TAILS = 1e-7
MAX_CELLS = 256
# The density hardly varies in intervals of this width, in standard deviations.
NARROW = 1e-6
NO_OTHER_UNITS = (
    "predictive distributions of counts cannot be scaled or shifted, because the "
    "results would not be integers. CalibratedUncertaintyRegressor (both methods) "
    "requires a likelihood of continuous values, such as 'gaussian' or 'student_t'. "
    "For counts use ConformalRegressor, whose intervals only use means and stds."
)


def versions_of_draws(n_draws: int, most: int) -> tuple[int, np.ndarray]:
    """How many times a mixture repeats each draw, and the version of each of these.

    With fewer draws than versions, every draw is combined with every version. Otherwise
    each block of ``most`` draws uses each version once, in random order, so that the
    draws of each of several networks use nearly all versions.

    most : the largest number of versions of a row
    """
    if n_draws < most:
        return most, np.tile(np.arange(most), n_draws)
    turn = np.arange(n_draws) % most
    for block, start in enumerate(range(0, n_draws, most)):
        order = np.random.RandomState(block).permutation(most)
        turn[start : start + most] = order[turn[start : start + most]]
    return 1, turn


class DrawArrays:
    """Base of dataclasses of arrays with the first axes (draws, rows, ...).

    All draws have the same weight.
    """

    __dataclass_fields__: ClassVar[dict]

    @classmethod
    @cache
    def _names(cls) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(field.name for field in fields(cls))

    def _mapped(self, function: Callable[[np.ndarray], np.ndarray]):
        values = {name: getattr(self, name) for name in self._names()}
        return type(self)(
            **{name: None if v is None else function(v) for name, v in values.items()}
        )

    @classmethod
    def concatenated(cls, parts: Sequence, axis: int = 0):
        """Concatenate several objects along an axis of all arrays."""
        columns = {}
        for name in cls._names():
            arrays = [getattr(part, name) for part in parts]
            if any(values is not None for values in arrays):
                # The only optional array is a share.
                columns[name] = np.concatenate(
                    [
                        np.ones(part._first.shape[:3]) if values is None else values
                        for part, values in zip(parts, arrays, strict=True)
                    ],
                    axis,
                )
        return cls(**columns)

    @classmethod
    def collected(cls, parts: Iterable, n_draws: int):
        """Concatenate the draws of several objects, with ``n_draws`` draws in total.

        Each part is copied into the result at once. If the parts were kept, they would
        fragment the memory that the temporary arrays of the next parts could reuse.
        """
        whole, n_done = {}, 0
        for part in parts:
            if part.n_draws == n_draws:
                return part
            for name in cls._names():
                values = getattr(part, name)
                if values is None:
                    continue
                if not n_done:
                    shape = n_draws, *values.shape[1:]
                    whole[name] = np.empty(shape, dtype=values.dtype)
                whole[name][n_done : n_done + len(values)] = values
            n_done += part.n_draws
        return cls(**whole)

    @property
    def _first(self) -> np.ndarray:
        return getattr(self, self._names()[0])

    @property
    def kind(self) -> tuple:
        """What objects must have in common to be concatenated."""
        return type(self), self._first.shape[3:]

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        return len(self._first)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._first.shape[1]

    def draws(self, index):
        """Select draws by index."""
        return self._mapped(lambda values: values[index])

    def rows(self, index):
        """Select rows by index or slice."""
        return self._mapped(lambda values: values[:, index])

    def mix_versions(self, first: np.ndarray, n_versions: np.ndarray, most: int):
        """Mix the versions of each row: draws use them in turn.

        first, n_versions : (rows,), position of the first version, and their number
        most : the largest number of versions
        """
        times, turn = versions_of_draws(self.n_draws, most)
        draws = self if times == 1 else self.repeated(times)
        return draws._with_versions(turn, first, n_versions)

    def _with_versions(self, turn, first, n_versions):
        """Rows with one of their versions in each draw; turn : (draws,)."""
        # A row with one version uses it in all draws.
        index = first + turn[:, np.newaxis] % n_versions
        draw = np.arange(self.n_draws)[:, np.newaxis]
        return self._mapped(lambda values: values[draw, index])

    def resized(self, n: int):
        """Select ``n`` evenly spaced draws; repeat draws if there are fewer."""
        return self.draws(np.arange(n) * self.n_draws // n)

    def repeated(self, times: int):
        """Repeat every draw ``times`` times."""
        return self._mapped(lambda values: np.repeat(values, times, axis=0))


class Components(DrawArrays, ABC):
    """Distributions of y, (draws, rows, targets), independent over targets.

    Fields are arrays with these first axes. They are in the network's scale, or in y's
    scale after ``rescaled``. ``mean`` and ``variance`` are fields or properties.
    """

    # For type checkers only: a property here would prevent a field of this name.
    if TYPE_CHECKING:

        @property
        def mean(self) -> np.ndarray:
            """Mean of every draw, (draws, rows, targets)."""

        @property
        def variance(self) -> np.ndarray:
            """Variance of every draw, (draws, rows, targets)."""

    # Whether y, and so its quantiles, are integers.
    discrete: ClassVar[bool] = False

    @property
    def atoms(self) -> np.ndarray:
        """Values that may have a probability, (atoms, targets); NaN for none."""
        return np.empty((0, self.n_targets))

    def may_equal(self, y: np.ndarray) -> np.ndarray:
        """Whether P(Y = y) may be positive; both (rows, targets)."""
        return np.full(y.shape, self.discrete)

    @property
    def is_location_scale(self) -> bool:
        """Whether shifts and factors give distributions of the same kind."""
        return True

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest possible y, (targets,) each."""
        low, high = np.full((2, self.n_targets), [[-np.inf], [np.inf]])
        return (np.zeros_like(low) if self.discrete else low), high

    @property
    def own_share(self) -> np.ndarray | None:
        """Probability that y is from the draw itself, (draws, rows, targets).

        Otherwise it is from any of the draws with a share below one, each equally
        likely. The mixture of all draws does not depend on it, but the means of y given
        each draw are closer together. None is one for all draws.
        """
        return None

    def given_draws(self, values: np.ndarray) -> np.ndarray:
        """Means of values given each draw; both (draws, rows, targets).

        values : the means given that y is from the draw itself
        """
        if self.own_share is None:
            return values
        is_shared = self.own_share < 1
        n = np.maximum(is_shared.sum(0), 1)
        # One factor for all draws does not change the mean over them.
        squares = np.where(is_shared, np.square(self.own_share), 0.0)
        factor = np.sqrt(squares.sum(0) / n)
        centre = np.where(is_shared, values, 0.0).sum(0) / n
        with np.errstate(invalid="ignore"):  # y may be infinite
            return np.where(is_shared, centre + factor * (values - centre), values)

    def sample_given_draws(
        self, draws: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Sample y given some draws, (samples, rows, targets).

        draws : (samples,), indices
        """
        if self.own_share is None or (self.own_share == 1).all():
            return self.draws(draws).sample(random)
        shared = np.flatnonzero((self.own_share < 1).any((1, 2)))
        one_per_row = len(draws), self.n_rows, 1
        moves = random.random(one_per_row) >= self.own_share[draws]
        index = np.where(
            moves, random.choice(shared, one_per_row), draws[:, np.newaxis, np.newaxis]
        )

        def taken(values):
            at = index.reshape(index.shape + (1,) * (values.ndim - 3))
            return np.take_along_axis(values, at, axis=0)

        return self._mapped(taken).sample(random)

    @abstractmethod
    def log_density_per_target(self, y: np.ndarray) -> np.ndarray:
        """log p(y), nats, (draws, rows, targets); for counts, the log probability.

        y : (rows, targets)
        """

    @abstractmethod
    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y), (draws, rows, targets); y : (rows, targets)."""

    @abstractmethod
    def quantile(self, level: np.ndarray) -> np.ndarray:
        """Quantile of every draw, (draws, rows, targets).

        Approximate bounds are enough: the mixture's quantile is searched between the
        smallest and the largest of them.

        level : (rows, targets), in (0, 1)
        """

    @abstractmethod
    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Sample one value of y per draw, (draws, rows, targets)."""

    @abstractmethod
    def rescaled(self, shift: np.ndarray, factor: np.ndarray) -> "Components":
        """Distributions of shift + factor y, factor > 0; both (..., targets).

        Raises
        ------
        TypeError
            For counts, which have no other units.
        """

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self._first.shape[2]

    def targets(self, index):
        """Select targets by index or slice."""
        return self._mapped(lambda values: values[:, :, index])

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y), joint over targets, (draws, rows), nats; y : (rows, targets)."""
        return self.log_density_per_target(y).sum(-1)

    def scaled_about(
        self, centre: np.ndarray, factor: np.ndarray, bound: float = np.inf
    ) -> "Components":
        """Distributions of centre + factor (y - centre), both (..., targets).

        bound : largest shift of the mean of a component, in units of its standard
            deviation afterwards
        """
        if np.isinf(bound):
            return self.rescaled((1 - factor) * centre, factor)
        mean = self._spread_mean(centre, factor, bound)
        return self.rescaled(mean - factor * self.mean, factor)

    def _spread_mean(self, centre, factor, bound: float) -> np.ndarray:
        """Means after ``spread``."""
        if np.isinf(bound):
            return centre + factor * (self.mean - centre)
        max_shift = bound * factor * np.sqrt(self.variance)
        return self.mean + np.clip(
            (1 - factor) * (centre - self.mean), -max_shift, max_shift
        )

    def log_probability(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """log P(low < Y <= high), (draws, rows, targets).

        low, high : (rows, targets); low < high, may be infinite
        """
        with np.errstate(divide="ignore"):
            return np.log(self.cdf(high) - self.cdf(low))

    def log_density_in(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Log of the mean density between low and high, (draws, rows, targets).

        This is the log density where low = high, and the log probability where one of
        them is infinite.

        low, high : (rows, targets), low <= high
        """
        is_point = low == high
        if is_point.all():
            return self.log_density_per_target(low)
        width = np.where(is_point, 1.0, high - low)
        width = np.where(np.isinf(width), 1.0, width)
        end = np.where(is_point, low + width, high)
        density = self.log_probability(low, end) - np.log(width)
        if is_point.any():
            density = np.where(is_point, self.log_density_per_target(low), density)
        return density

    # ---- the equal-weight mixture of all draws

    def mixture_log_density(
        self, y: np.ndarray, high: np.ndarray | None = None
    ) -> np.ndarray:
        """Log density (eq. 8), joint over targets, (rows,), nats.

        y : (rows, targets)
        high : (rows, targets), optional; take the mean density between y and high
        """
        log_density = self.log_density_in(y, y if high is None else high).sum(-1)
        return logsumexp(log_density, axis=0) - np.log(self.n_draws)

    def mixture_cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y), (rows, targets); y : (rows, targets)."""
        return self.cdf(y).mean(0)

    def mixture_quantile(self, level) -> np.ndarray:
        """Inverse of ``mixture_cdf``; for counts, the smallest y reaching the level.

        level : float or (rows, targets), in (0, 1)
        """
        shape = self.n_rows, self.n_targets
        level = np.broadcast_to(np.asarray(level, dtype=np.float64), shape)
        draw_quantiles = self.quantile(level)
        low, high = draw_quantiles.min(0), draw_quantiles.max(0)
        if self.discrete:
            return integer_quantile(self.mixture_cdf, level, low, high)
        at_atom = np.full(shape, np.nan)
        for atom in self.atoms:
            value = np.broadcast_to(atom, shape)
            is_below = self.mixture_cdf(np.nextafter(value, -np.inf)) < level
            reaches = self.mixture_cdf(value) >= level
            at_atom = np.where(is_below & reaches, value, at_atom)
            low = np.where(is_below & ~reaches, np.fmax(low, value), low)
            high = np.where(~is_below, np.fmin(high, value), high)
        if not np.isnan(at_atom).any():
            return at_atom

        def density(y):
            return np.exp(self.log_density_per_target(y)).mean(0)

        # Without probability between atoms the search ends at once.
        is_known = ~np.isnan(at_atom)
        low, high = np.where(is_known, at_atom, low), np.where(is_known, at_atom, high)
        least, most = self.variance.min(0), self.variance.max(0)
        scale = np.sqrt(np.maximum(least, 1e-12 * most))
        root = increasing_root(self.mixture_cdf, density, level, low, high, scale)
        return np.where(is_known, at_atom, root)

    def mixture_crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, (rows, targets), units of y.

        It is computed from quantiles of the draws; for counts, by a sum over counts.
        """
        return self._crps_of_counts(y) if self.discrete else self.crps_of_draws(y)

    def _crps_of_counts(self, y):
        """Integral of (F(z) - 1[y <= z])^2, which is constant between two counts.

        It is summed over the counts at which F is neither 0 nor 1 up to
        ``LEVEL_OF_TAILS``. If y is not among these counts, the integrand is 1 between
        them and y. If they are too many, the cells become wider with the count.
        """
        tail = LEVEL_OF_TAILS
        first, last = self.mixture_quantile(tail), self.mixture_quantile(1 - tail)
        reach = np.maximum(last - first, 1)
        n_cells, power = np.minimum(reach, MAX_CELLS), np.where(reach > MAX_CELLS, 2, 1)
        score = np.maximum(first - y, 0) + np.maximum(y - first - reach, 0)
        for cell in range(int(n_cells.max())):
            ends = [first + reach * (k / n_cells) ** power for k in (cell, cell + 1)]
            start, end = ends
            share = self.mixture_cdf(0.5 * (start + end))
            before_y = np.clip((y - start) / (end - start), 0, 1)
            error = before_y * np.square(share) + (1 - before_y) * np.square(1 - share)
            score += np.where(cell < n_cells, (end - start) * error, 0)
        return score

    def crps_of_draws(
        self,
        y: np.ndarray,
        function: Callable | None = None,
        n_points: int = N_POINTS,
    ) -> np.ndarray:
        """CRPS from quantiles of the draws at interlaced levels, (rows, targets).

        function : optional, elementwise; y is a value of it, applied to quantiles;
            the score is NaN if one of its values is infinite
        n_points : number of quantiles of all draws

        If all draws are equal, this is the CRPS of one draw at all levels.
        """
        points, weights = self._pooled_quantiles(n_points)
        points = points if function is None else function(points)
        return weighted_sample_crps(y, points, weights)

    def fast_quantiles(
        self, levels: np.ndarray, n_points: int = N_POINTS
    ) -> np.ndarray:
        """Quantiles of the mixture, (levels, rows, targets), nearly exact.

        They are interpolated between pooled quantiles of the draws: a search for each
        level would take many times as long. Counts are exact.

        levels : (levels,), increasing
        n_points : number of quantiles of all draws
        """
        if self.discrete:
            return np.stack([self.mixture_quantile(level) for level in levels])
        if self.n_draws == 1:
            # Levels with an axis of draws are those for which it is fast and exact.
            draws = [self.quantile(np.full((1, 1, 1), level)) for level in levels]
            return np.concatenate(draws)
        points, weights = self._pooled_quantiles(n_points)
        order = np.argsort(points, axis=0)
        points = np.take_along_axis(points, order, axis=0)
        share = weights[order].cumsum(0) - 0.5 * weights[order]
        columns = zip(*(v.reshape(len(v), -1).T for v in (share, points)), strict=True)
        found = [np.interp(levels, *column) for column in columns]
        return np.transpose(found).reshape(len(levels), *points.shape[1:])

    def _pooled_quantiles(self, n_points: int) -> tuple[np.ndarray, np.ndarray]:
        """Quantiles of the draws at interlaced levels, and their weights, (points,).

        They represent the mixture: quantiles of the mixture would take many times as
        long. ``quantile`` must be exact for levels of the shape (draws, 1, 1).

        returns : about ``n_points`` of them, (points, rows, targets)
        """
        n_per_draw = max(MIN_POINTS_PER_DRAW, math.ceil(n_points / self.n_draws))
        levels, weights = (
            values.reshape(n_per_draw, self.n_draws)
            for values in spread_levels(n_per_draw * self.n_draws)
        )
        points = [self.quantile(of_draws[:, None, None]) for of_draws in levels]
        weights = weights / (self.n_draws * weights.sum(0))
        return np.concatenate(points), weights.ravel()

    def nodes(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature nodes of every draw, (nodes, draws, rows, targets), and weights.

        They are used for moments of functions of y. By default the nodes are quantiles
        at the midpoints of equal parts, rescaled to the mean and variance of the draw,
        since the quantiles cut the tails off. Weights are (nodes,), or have the shape
        of the nodes. ``quantile`` must be exact for these levels.
        """
        shape = self.n_rows, self.n_targets
        levels = (np.arange(n) + 0.5) / n
        values = np.stack([self.quantile(np.full(shape, level)) for level in levels])
        spread = values - values.mean(0)
        factor = np.sqrt(self.variance) / values.std(0)
        return self.mean + factor * spread, np.full(n, 1 / n)


# ---- Gaussian components


@dataclass(frozen=True)
class Gaussians(Components):
    """N(mean, variance), arrays of shape (draws, rows, targets)."""

    mean: np.ndarray
    variance: np.ndarray
    own_share: np.ndarray | None = field(default=None, kw_only=True)

    def log_density_per_target(self, y):
        """log N(y; mean, variance)."""
        squares = np.square(y - self.mean.astype(np.float64)) / self.variance
        return -(0.5 * (squares + np.log(self.variance)) + HALF_LOG_2PI)

    def cdf(self, y):
        """P(Y <= y)."""
        return ndtr((y - self.mean) / np.sqrt(self.variance))

    def log_probability(self, low, high):
        """log P(low < Y <= high), exact in the tails."""
        mean, std = self.mean.astype(np.float64), np.sqrt(self.variance, dtype=float)
        below, above = (low - mean) / std, (high - mean) / std
        # By symmetry the interval may be mirrored to the lower tail.
        mirrored = below > -above
        below, above = (
            log_ndtr(np.where(mirrored, -above, below)),
            log_ndtr(np.where(mirrored, -below, above)),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            probability = above + np.log1p(-np.exp(below - above))
            # A difference of almost equal numbers has few digits.
            if (is_narrow := high - low < NARROW * std).any():
                narrow = self.log_density_per_target((low + high) / 2)
                narrow = narrow + np.log(high - low)
                probability = np.where(is_narrow, narrow, probability)
        return probability

    def quantile(self, level):
        """Quantile of every draw."""
        return self.mean + np.sqrt(self.variance) * ndtri(level)

    def sample(self, random):
        """Sample y from every draw."""
        noise = random.standard_normal(self.mean.shape, dtype=self.mean.dtype)
        return self.mean + np.sqrt(self.variance) * noise

    def rescaled(self, shift, factor):
        """Distributions of shift + factor y."""
        variance = self.variance * np.square(factor)
        return replace(self, mean=self.mean * factor + shift, variance=variance)

    def scaled_about(self, centre, factor, bound=np.inf):
        """Distributions of centre + factor (y - centre)."""
        mean = self._spread_mean(centre, factor, bound)
        return replace(self, mean=mean, variance=np.square(factor) * self.variance)

    def mixture_cdf(self, y):
        """P(Y <= y), with torch's error function, which is faster."""
        return mixture_cdf(self.mean, self.variance, y)

    def mixture_quantile(self, level):
        """Quantile, by Newton's method on the probit scale."""
        return mixture_quantile(self.mean, self.variance, level)

    def mixture_crps(self, y):
        """CRPS in closed form [Grimit et al. 2006]."""
        return gaussian_mixture_crps(y, self.mean, self.variance)

    def nodes(self, n):
        """Gauss-Hermite nodes and weights."""
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        spread = np.multiply.outer(points, np.sqrt(self.variance))
        return self.mean + spread, weights / weights.sum()


def gaussian_log_density(mean, variance, y):
    """log N(y; mean, variance), summed over targets, (draws, rows), nats.

    mean, variance : (draws, rows, targets); y : (rows, targets)
    """
    return Gaussians(mean, variance).log_density(y)


# ---- class probabilities


@dataclass(frozen=True)
class Labels(DrawArrays):
    """Probabilities of the classes, (draws, rows, classes)."""

    probability: np.ndarray


def labels_at(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Class indices whose cumulative probability is the first above ``uniform``.

    probability : (..., classes), up to a factor; uniform : (...), in [0, 1)
    """
    cumulative = probability.cumsum(-1)
    cumulative /= cumulative[..., -1:]
    return (cumulative <= uniform[..., None]).sum(-1)


def columns_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Column of each label, in the shape of ``labels``.

    labels : array whose values are in ``classes``
    classes : (classes,), distinct, in any order
    """
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, labels, sorter=order)]
