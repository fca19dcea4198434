"""The distribution of y given one posterior draw, for every row and target.

A likelihood converts network outputs to :class:`Components` and names the class in
``Likelihood.components_class``. Moments, quantiles, intervals, densities, samples and
scores are computed by these objects, so that no other module depends on the kind of
likelihood. NumPy, float64 where it matters.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from skbayesnn._distributions.crps import (
    HALF_LOG_2PI,
    crps_by_quantiles,
    gaussian_mixture_crps,
)
from skbayesnn._distributions.quantiles import (
    increasing_root,
    integer_quantile,
    mixture_cdf,
    mixture_quantile,
)

# ---- base class

# Values of a count over which its CRPS is summed one by one; a wider range is cut into
# so many cells, some 15 to a standard deviation: within 1e-4 of it.
MOST_COUNTS = 256
NO_OTHER_UNITS = (
    "the predictive of counts cannot be spread or shifted: what comes out would be no "
    "whole numbers. CalibratedUncertaintyRegressor (both methods) needs noise of real "
    "numbers, as likelihood='gaussian' or 'student_t' has. For counts take "
    "ConformalRegressor, whose intervals need means and stds only."
)


class DrawArrays:
    """Base of dataclasses of arrays with the axes (draws, rows, ...) in front.

    Draws weigh alike.
    """

    __dataclass_fields__: ClassVar[dict]

    def _mapped(self, function: Callable[[np.ndarray], np.ndarray]):
        return type(self)(*(function(getattr(self, f.name)) for f in fields(self)))

    @classmethod
    def concatenated(cls, parts: Sequence, axis: int = 0):
        """Several objects as one, along an axis that all arrays have."""
        names = [field.name for field in fields(cls)]
        return cls(
            *(np.concatenate([getattr(p, name) for p in parts], axis) for name in names)
        )

    @classmethod
    def collected(cls, parts: Iterable, n_draws: int):
        """Several objects as one, copied as they come: so many draws in all.

        What is kept of each part would lie between the temporaries of the next, which
        then find no room in memory that was freed.
        """
        names = [field.name for field in fields(cls)]
        whole, n_done = {}, 0
        for part in parts:
            if part.n_draws == n_draws:
                return part
            for name in names:
                values = getattr(part, name)
                if not n_done:
                    shape = n_draws, *values.shape[1:]
                    whole[name] = np.empty(shape, dtype=values.dtype)
                whole[name][n_done : n_done + len(values)] = values
            n_done += part.n_draws
        return cls(*(whole[name] for name in names))

    @property
    def _first(self) -> np.ndarray:
        return getattr(self, fields(self)[0].name)

    @property
    def n_draws(self) -> int:
        """Draws, which weigh alike."""
        return len(self._first)

    @property
    def n_rows(self) -> int:
        """Rows."""
        return self._first.shape[1]

    def draws(self, index):
        """Some of the draws, by index."""
        return self._mapped(lambda values: values[index])

    def resized(self, n: int):
        """So many draws: evenly some of them, or some more often than others."""
        return self.draws(np.arange(n) * self.n_draws // n)

    def repeated(self, times: int):
        """Every draw so many times."""
        return self._mapped(lambda values: np.repeat(values, times, axis=0))


class Components(DrawArrays, ABC):
    """Distributions of y, (draws, rows, targets), independent over targets.

    Fields are arrays with these axes in front. In the network's scale, or in y's own
    after ``rescaled``. ``mean`` and ``variance`` are fields or properties.
    """

    # A field takes the place of a property in a dataclass only if none is there.
    if TYPE_CHECKING:

        @property
        def mean(self) -> np.ndarray:
            """(draws, rows, targets)."""

        @property
        def variance(self) -> np.ndarray:
            """(draws, rows, targets)."""

    # Whether y is a whole number: the quantiles are whole numbers, too.
    discrete: ClassVar[bool] = False

    @abstractmethod
    def log_density_per_target(self, y: np.ndarray) -> np.ndarray:
        """log p(y), nats (of counts: log probability), (draws, rows, targets).

        y : (rows, targets)
        """

    @abstractmethod
    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y), (draws, rows, targets); y : (rows, targets)."""

    @abstractmethod
    def quantile(self, level: np.ndarray) -> np.ndarray:
        """Of every draw by itself, (draws, rows, targets).

        Bounds suffice: the mixture's quantile is sought between the smallest and the
        largest of these.

        level : (rows, targets), in (0, 1)
        """

    @abstractmethod
    def sample(self, random: np.random.Generator) -> np.ndarray:
        """One value of y from each, (draws, rows, targets)."""

    @abstractmethod
    def rescaled(self, shift: np.ndarray, factor: np.ndarray) -> "Components":
        """Of shift + factor y, for positive factors; both (..., targets).

        Raises
        ------
        TypeError
            For counts, whose distribution has no other units.
        """

    @property
    def n_targets(self) -> int:
        """Targets."""
        return self._first.shape[2]

    def targets(self, which):
        """Some of the targets, by index or slice."""
        return self._mapped(lambda values: values[:, :, which])

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y), joint over targets, (draws, rows), nats; y : (rows, targets)."""
        return self.log_density_per_target(y).sum(-1)

    def spread(
        self, centre: np.ndarray, factor: np.ndarray, bound: float = np.inf
    ) -> "Components":
        """Of centre + factor (y - centre), both (..., targets).

        bound : largest distance that the mean of a component moves, in the standard
            deviations that it has afterwards
        """
        if np.isinf(bound):
            return self.rescaled((1 - factor) * centre, factor)
        mean = self._spread_mean(centre, factor, bound)
        return self.rescaled(mean - factor * self.mean, factor)

    def _spread_mean(self, centre, factor, bound: float) -> np.ndarray:
        """Of ``spread``."""
        if np.isinf(bound):
            return centre + factor * (self.mean - centre)
        most = bound * factor * np.sqrt(self.variance)
        return self.mean + np.clip((1 - factor) * (centre - self.mean), -most, most)

    # ---- of the equal-weight mixture of all draws

    def mixture_log_density(self, y: np.ndarray) -> np.ndarray:
        """Eq. 8, joint over targets, (rows,), nats; y : (rows, targets)."""
        return logsumexp(self.log_density(y), axis=0) - np.log(self.n_draws)

    def mixture_cdf(self, y: np.ndarray) -> np.ndarray:
        """(rows, targets); y : (rows, targets)."""
        return self.cdf(y).mean(0)

    def mixture_quantile(self, level) -> np.ndarray:
        """Inverse of ``mixture_cdf``; of counts the smallest y that reaches the level.

        level : float or (rows, targets), in (0, 1)
        """
        shape = self.n_rows, self.n_targets
        level = np.broadcast_to(np.asarray(level, dtype=np.float64), shape)
        ends = self.quantile(level)
        low, high = ends.min(0), ends.max(0)
        if self.discrete:
            return integer_quantile(self.mixture_cdf, level, low, high)

        def density(y):
            return np.exp(self.log_density_per_target(y)).mean(0)

        scale = np.sqrt(self.variance.min(0))
        return increasing_root(self.mixture_cdf, density, level, low, high, scale)

    def mixture_crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, (rows, targets), units of y.

        By the quantiles at 200 levels; of counts by the sum over all of them.
        """
        if self.discrete:
            return self._crps_of_counts(y)
        return crps_by_quantiles(y, self.mixture_quantile)

    def _crps_of_counts(self, y):
        """Integral of (F(z) - 1[y <= z])^2, whose pieces are one count long.

        Between the counts beyond which F is 0 or 1 to rounding; outside of these the
        integrand is 1 as far as y.
        """
        tiny = np.finfo(float).eps
        first, last = self.mixture_quantile(tiny), self.mixture_quantile(1 - tiny)
        n_cells = np.clip(last - first, 1, MOST_COUNTS)
        width = np.maximum(last - first, 1) / n_cells
        total = np.maximum(first - y, 0) + np.maximum(y - first - width * n_cells, 0)
        for cell in range(int(n_cells.max())):
            start = first + cell * width
            share = self.mixture_cdf(start + 0.5 * width)
            before_y = np.clip((y - start) / width, 0, 1)
            error = before_y * np.square(share) + (1 - before_y) * np.square(1 - share)
            total += np.where(cell < n_cells, width * error, 0)
        return total

    def nodes(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature of every draw: values (nodes, draws, rows, targets), weights.

        For moments of what y is transformed into; at levels in the middle of equal
        parts, spread to the mean and variance that they cut the tails from, unless a
        class knows better. Weights are (nodes,), or as the values where they differ;
        ``quantile`` must not be a bound only for these levels.
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

    def log_density_per_target(self, y):
        """log N(y; mean, variance)."""
        squares = np.square(y - self.mean.astype(np.float64)) / self.variance
        return -(0.5 * (squares + np.log(self.variance)) + HALF_LOG_2PI)

    def cdf(self, y):
        """P(Y <= y)."""
        return ndtr((y - self.mean) / np.sqrt(self.variance))

    def quantile(self, level):
        """Of every draw by itself."""
        return self.mean + np.sqrt(self.variance) * ndtri(level)

    def sample(self, random):
        """Means with noise."""
        noise = random.standard_normal(self.mean.shape, dtype=self.mean.dtype)
        return self.mean + np.sqrt(self.variance) * noise

    def rescaled(self, shift, factor):
        """Of shift + factor y."""
        return Gaussians(self.mean * factor + shift, self.variance * np.square(factor))

    def spread(self, centre, factor, bound=np.inf):
        """Of centre + factor (y - centre)."""
        mean = self._spread_mean(centre, factor, bound)
        return Gaussians(mean, np.square(factor) * self.variance)

    def mixture_cdf(self, y):
        """By torch's error function, the faster one."""
        return mixture_cdf(self.mean, self.variance, y)

    def mixture_quantile(self, level):
        """By Newton's method on the probit scale, where F is nearly straight."""
        return mixture_quantile(self.mean, self.variance, level)

    def mixture_crps(self, y):
        """The closed form [Grimit et al. 2006]."""
        return gaussian_mixture_crps(y, self.mean, self.variance)

    def nodes(self, n):
        """Gauss-Hermite."""
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        spread = np.multiply.outer(points, np.sqrt(self.variance))
        return self.mean + spread, weights / weights.sum()


def gaussian_log_density(mean, variance, y):
    """log N(y; mean, variance) summed over targets: (draws, rows), nats.

    mean, variance : (draws, rows, targets); y : (rows, targets)
    """
    return Gaussians(mean, variance).log_density(y)


# ---- class probabilities


@dataclass(frozen=True)
class Labels(DrawArrays):
    """Probabilities of the classes, (draws, rows, classes)."""

    probability: np.ndarray


def labels_at(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Class numbers whose cumulative probability is the first above ``uniform``.

    probability : (..., classes), up to a factor; uniform : (...), in [0, 1)
    """
    cumulative = probability.cumsum(-1)
    cumulative /= cumulative[..., -1:]
    return (cumulative <= uniform[..., None]).sum(-1)


def columns_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Column of each label, in the shape of ``labels``.

    labels : each is one of ``classes``
    classes : (classes,), in any order, each once
    """
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, labels, sorter=order)]
