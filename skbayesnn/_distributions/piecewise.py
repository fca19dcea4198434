"""Distributions with given quantiles: uniform between them, exponential tails.

The distribution function F is linear between two quantiles. Below the lowest quantile
log F is linear in y, above the highest log(1 - F) [Park et al. 2022, "Learning quantile
functions without quantile crossing for distribution-free time series forecasting",
AISTATS]. The slope is that between the outer quantile and the middle one, because the
two outer quantiles of a forest are often equal. NumPy.
"""

from dataclasses import dataclass

import numpy as np

from skbayesnn._distributions.components import Components

# Smallest scale of a tail, in units of the smallest scale between two quantiles.
MIN_TAIL = 30.0


@dataclass(frozen=True)
class PiecewiseUniforms(Components):
    """Arrays of shape (draws, rows, targets, levels), at least two levels.

    Parameters
    ----------
    value : quantiles, increasing
    level : their levels, increasing, in (0, 1)
    tail : (draws, rows, targets, 2), scales of the lower and the upper tail
    """

    value: np.ndarray
    level: np.ndarray
    tail: np.ndarray

    @classmethod
    def from_quantiles(
        cls, quantiles: np.ndarray, levels: np.ndarray, least_scale: np.ndarray
    ) -> "PiecewiseUniforms":
        """One draw from predicted quantiles, which may cross or coincide.

        Quantiles that cross are sorted [Chernozhukov, Fernandez-Val & Galichon 2010,
        "Quantile and probability curves without crossing", Econometrica 78(3)]. The
        distance of neighbouring quantiles is at least ``least_scale`` times the
        difference of their levels, so that no density exceeds 1 / ``least_scale``; the
        middle quantile stays. The scale of a tail is at least ``MIN_TAIL`` times
        ``least_scale``.

        quantiles : (rows, targets, levels); levels : (levels,), increasing
        least_scale : (targets,), > 0
        """
        ordered = np.sort(quantiles, axis=-1)
        steps = np.maximum(
            np.diff(ordered, axis=-1), least_scale[:, None] * np.diff(levels)
        )
        middle = len(levels) // 2
        value = np.concatenate([0 * ordered[..., :1], steps.cumsum(-1)], axis=-1)
        value += ordered[..., [middle]] - value[..., [middle]]
        upper = (len(levels) - 1) // 2
        tail = np.stack(
            [
                (value[..., middle] - value[..., 0])
                / np.log(levels[middle] / levels[0]),
                (value[..., -1] - value[..., upper])
                / np.log((1 - levels[upper]) / (1 - levels[-1])),
            ],
            axis=-1,
        )
        tail = np.maximum(tail, MIN_TAIL * least_scale[:, None])
        return cls(value[None], np.broadcast_to(levels, value[None].shape), tail[None])

    def _tails(self) -> tuple[np.ndarray, np.ndarray]:
        """Scales of the lower and the upper tail, (draws, rows, targets)."""
        return self.tail[..., 0], self.tail[..., 1]

    @property
    def mean(self):
        """Mean of every draw."""
        return self._moment(lambda centre, _: centre)

    @property
    def variance(self):
        """Variance of every draw."""
        mean = self.mean

        def square(centre, variance):
            return np.square(centre - mean[..., None]) + variance

        return self._moment(square)

    def _moment(self, function) -> np.ndarray:
        """Mean of a function of the mean and the variance of each part."""
        lower, upper = self._tails()
        first, last = self.value[..., 0], self.value[..., -1]
        middle = 0.5 * (self.value[..., 1:] + self.value[..., :-1])
        sides = [(first - lower)[..., None], (last + upper)[..., None]]
        centre = np.concatenate([sides[0], middle, sides[1]], axis=-1)
        spread = [lower[..., None], np.diff(self.value) / 12**0.5, upper[..., None]]
        variance = np.square(np.concatenate(spread, axis=-1))
        mass = [
            self.level[..., :1],
            np.diff(self.level),
            1 - self.level[..., -1:],
        ]
        return (np.concatenate(mass, axis=-1) * function(centre, variance)).sum(-1)

    def _cell(self, y) -> np.ndarray:
        """Number of quantiles of at most y, (draws, rows, targets)."""
        return (self.value <= y[..., None]).sum(-1)

    def log_density_per_target(self, y):
        """Log density of y."""
        lower, upper = self._tails()
        inside = np.log(np.diff(self.level) / np.diff(self.value))
        below = (y - self.value[..., 0]) / lower + np.log(self.level[..., 0] / lower)
        above = (self.value[..., -1] - y) / upper
        above = above + np.log((1 - self.level[..., -1]) / upper)
        parts = [below[..., None], inside, above[..., None]]
        cell = np.broadcast_to(self._cell(y), below.shape)[..., None]
        return np.take_along_axis(np.concatenate(parts, axis=-1), cell, -1)[..., 0]

    def _share(self, y, upper: bool) -> np.ndarray:
        """P(Y <= y), or P(Y > y) with all digits if ``upper``."""
        lower_scale, upper_scale = self._tails()
        first, last = self.value[..., 0], self.value[..., -1]
        level = 1 - self.level if upper else self.level
        cell = np.clip(self._cell(y) - 1, 0, self.value.shape[-1] - 2)[..., None]
        low, high, at_low, at_high = (
            np.take_along_axis(values, cell + i, -1)[..., 0]
            for values in (self.value, level)
            for i in (0, 1)
        )
        position = np.clip((y - low) / (high - low), 0, 1)
        share = at_low + position * (at_high - at_low)
        below = self.level[..., 0] * np.exp(np.minimum(y - first, 0) / lower_scale)
        above = 1 - self.level[..., -1]
        above = above * np.exp(np.minimum(last - y, 0) / upper_scale)
        share = np.where(y < first, 1 - below if upper else below, share)
        return np.where(y > last, above if upper else 1 - above, share)

    def cdf(self, y):
        """P(Y <= y)."""
        return self._share(np.asarray(y, dtype=np.float64), upper=False)

    def log_probability(self, low, high):
        """log P(low < Y <= high), exact in the tails."""
        is_above = low > self.value[..., self.value.shape[-1] // 2]
        inside = np.where(
            is_above,
            self._share(low, upper=True) - self._share(high, upper=True),
            self._share(high, upper=False) - self._share(low, upper=False),
        )
        with np.errstate(divide="ignore"):
            return np.log(inside)

    def quantile(self, level):
        """Quantile of every draw."""
        level = np.broadcast_to(level, self.value.shape[:-1])
        lower, upper = self._tails()
        cell = (self.level <= level[..., None]).sum(-1) - 1
        cell = np.clip(cell, 0, self.value.shape[-1] - 2)[..., None]
        low, high, at_low, at_high = (
            np.take_along_axis(values, cell + i, -1)[..., 0]
            for values in (self.value, self.level)
            for i in (0, 1)
        )
        position = np.clip((level - at_low) / (at_high - at_low), 0, 1)
        first, last = self.level[..., 0], self.level[..., -1]
        below = lower * np.minimum(np.log(level / first), 0)
        above = upper * np.minimum(np.log1p(-level) - np.log1p(-last), 0)
        return low + position * (high - low) + below - above

    def sample(self, random):
        """Sample y from every draw."""
        level = random.random(self.value.shape[:-1])
        # A level of zero has an infinite quantile.
        return self.quantile(np.maximum(level, np.finfo(float).tiny))

    def rescaled(self, shift, factor):
        """Distributions of shift + factor y."""
        shift, factor = (np.asarray(values)[..., None] for values in (shift, factor))
        value, tail = self.value * factor + shift, self.tail * factor
        return PiecewiseUniforms(value, self.level, tail)

    def mixture_quantile(self, level):
        """Quantile, which is exact for a single draw."""
        if self.n_draws > 1:
            return super().mixture_quantile(level)
        return self.quantile(level)[0]
