"""Draws that are mixtures of normal distributions, and draws of several kinds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp, ndtr

from skbayesnn._distributions.components import Components, Gaussians, labels_at
from skbayesnn._distributions.crps import HALF_LOG_2PI, gaussian_mixture_crps
from skbayesnn._distributions.quantiles import mixture_cdf, mixture_quantile


@dataclass(frozen=True)
class GaussianMixtures(Components):
    """Gaussian mixtures, arrays of shape (draws, rows, targets, K).

    ``weight`` sums to 1 over K, up to rounding; ``scale`` are standard deviations.
    """

    weight: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    own_share: np.ndarray | None = None

    @classmethod
    def of(cls, part: Components) -> "GaussianMixtures":
        """Normal draws, or mixtures, in this class."""
        if isinstance(part, cls):
            return part
        mean, std = part.mean[..., None], np.sqrt(part.variance)[..., None]
        return cls(np.ones_like(mean), mean, std, part.own_share)

    @classmethod
    def concatenated(cls, parts, axis: int = 0):
        """Concatenate along an axis; Gaussians of weight zero make K equal."""
        most = max(part.weight.shape[-1] for part in parts)
        return super().concatenated([part._padded(most) for part in parts], axis)

    def _padded(self, n: int) -> "GaussianMixtures":
        missing = [(0, 0)] * 3 + [(0, n - self.weight.shape[-1])]
        location, scale = (
            np.pad(values, missing, mode="edge")
            for values in (self.location, self.scale)
        )
        weight = np.pad(self.weight, missing)
        return GaussianMixtures(weight, location, scale, self.own_share)

    @cached_property
    def mean(self):
        """Mean of every draw, (draws, rows, targets)."""
        return (self.weight * self.location).sum(-1)

    @cached_property
    def variance(self):
        """Variance of every draw, (draws, rows, targets)."""
        deviation = self.location - self.mean[..., None]
        return (self.weight * (np.square(self.scale) + np.square(deviation))).sum(-1)

    def log_density_per_target(self, y):
        """log sum_k weight_k N(y; location_k, scale_k^2)."""
        squares = np.square((y[..., None] - self.location) / self.scale)
        density = -(0.5 * squares + np.log(self.scale) + HALF_LOG_2PI)
        return logsumexp(density, axis=-1, b=self.weight)

    def cdf(self, y):
        """P(Y <= y)."""
        return (self.weight * ndtr((y[..., None] - self.location) / self.scale)).sum(-1)

    def log_probability(self, low, high):
        """log P(low < Y <= high), exact in the tails."""
        given = Gaussians(self.location, np.square(self.scale))
        probability = given.log_probability(low[..., None], high[..., None])
        return logsumexp(probability, axis=-1, b=self.weight)

    def quantile(self, level):
        """Quantile of every draw, by Newton's method as for a mixture of draws."""
        shape = self.weight.shape[:-1]
        columns = [
            np.moveaxis(values, -1, 0).reshape(-1, 1, int(np.prod(shape)))
            for values in (self.location, np.square(self.scale), self.weight)
        ]
        mean, variance, weight = columns
        level = np.broadcast_to(level, shape).reshape(1, -1)
        return mixture_quantile(mean, variance, level, weight).reshape(shape)

    def sample(self, random):
        """Sample y from every draw: first a Gaussian, then a value of it."""
        component = labels_at(self.weight, random.random(self.weight.shape[:-1]))
        location, scale = (
            np.take_along_axis(values, component[..., None], axis=-1)[..., 0]
            for values in (self.location, self.scale)
        )
        return location + scale * random.standard_normal(scale.shape, scale.dtype)

    def rescaled(self, shift, factor):
        """Distributions of shift + factor y."""
        shift, factor = shift[..., None], factor[..., None]
        location = self.location * factor + shift
        return GaussianMixtures(
            self.weight, location, self.scale * factor, self.own_share
        )

    @cached_property
    def _flattened(self):
        """Mean, variance and weight of all Gaussians, (draws K, rows, targets) each."""
        shape = -1, *self.weight.shape[1:3]
        location, scale, weight = (
            np.moveaxis(values, -1, 1).reshape(shape)
            for values in (self.location, self.scale, self.weight)
        )
        return location, np.square(scale), weight / self.n_draws

    def mixture_cdf(self, y):
        """P(Y <= y) of the mixture of all draws."""
        mean, variance, weight = self._flattened
        return mixture_cdf(mean, variance, y, weight)

    def mixture_quantile(self, level):
        """Quantile of the mixture of all draws."""
        mean, variance, weight = self._flattened
        return mixture_quantile(mean, variance, level, weight)

    def mixture_crps(self, y):
        """CRPS of the mixture of all draws, in closed form [Grimit et al. 2006]."""
        return gaussian_mixture_crps(y, *self._flattened)

    def nodes(self, n):
        """Gauss-Hermite nodes of every Gaussian, times the weights of the Gaussians."""
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        values = self.location + np.multiply.outer(points, self.scale)
        weights = np.multiply.outer(weights / weights.sum(), self.weight)
        return tuple(
            np.moveaxis(array, -1, 1).reshape(-1, *self.weight.shape[:-1])
            for array in (values, weights)
        )


@dataclass(frozen=True)
class JoinedDraws(Components):
    """Draws of several kinds of continuous distributions.

    A draw that is repeated, as in a weighted mixture, is stored once.

    Parameters
    ----------
    parts : tuple of Components
        Distributions of the distinct draws, part after part, for the same rows and
        targets.
    draw : ndarray of shape (draws,), int
        Position of each draw among the distinct draws.
    """

    parts: tuple[Components, ...]
    draw: np.ndarray

    @classmethod
    def of(cls, part: Components) -> "JoinedDraws":
        """The same draws in this class."""
        return part if isinstance(part, cls) else cls((part,), np.arange(part.n_draws))

    @classmethod
    def concatenated(cls, parts: Sequence, axis: int = 0):
        """Concatenate draws, rows or targets."""
        if axis:
            return cls._along_rows_or_targets(parts, axis)
        distinct = [part for whole in parts for part in whole.parts]
        kinds: dict[tuple, list[int]] = {}
        for i, part in enumerate(distinct):
            kinds.setdefault(part.kind, []).append(i)
        # Position of the first draw of each part, before and after sorting by kind.
        sizes = np.array([part.n_draws for part in distinct])
        before, by_kind = np.cumsum(sizes) - sizes, np.concatenate([*kinds.values()])
        after = np.empty_like(before)
        after[by_kind] = np.cumsum(sizes[by_kind]) - sizes[by_kind]
        shift = np.repeat(after - before, sizes)
        first = np.cumsum([0, *(whole._ends[-1] for whole in parts)])
        draws = [whole.draw + start for whole, start in zip(parts, first, strict=False)]
        draw = np.concatenate(draws)
        joined = (
            type(distinct[index[0]]).concatenated([distinct[i] for i in index])
            for index in kinds.values()
        )
        return cls(tuple(joined), draw + shift[draw])

    @classmethod
    def _along_rows_or_targets(cls, parts, axis: int):
        """Concatenate rows or targets; ``GaussianMixtures`` if draws do not match."""
        first = parts[0]
        if all(
            [*map(type, first.parts)] == [*map(type, part.parts)]
            and np.array_equal(first._ends, part._ends)
            and np.array_equal(first.draw, part.draw)
            for part in parts
        ):
            columns = zip(*(part.parts for part in parts), strict=True)
            joined = (type(c[0]).concatenated(c, axis) for c in columns)
            return cls(tuple(joined), first.draw)
        if not all(part.is_normal for part in parts):
            kinds = {type(piece).__name__ for part in parts for piece in part.parts}
            raise TypeError(
                "distributions whose rows or targets are combined must have the same "
                f"kind of noise; got {', '.join(sorted(kinds))}. Give all members the "
                "same `likelihood`, or the same candidates if they are stacks."
            )
        return GaussianMixtures.concatenated([p.expanded() for p in parts], axis)

    @property
    def kind(self) -> tuple:
        """What objects must have in common to be concatenated."""
        return (type(self),)

    @property
    def is_normal(self) -> bool:
        """Whether all draws are normal distributions or mixtures of them."""
        return all(isinstance(p, Gaussians | GaussianMixtures) for p in self.parts)

    @property
    def _ends(self) -> np.ndarray:
        """Number of distinct draws in the parts so far, (parts + 1,)."""
        return np.cumsum([0, *(part.n_draws for part in self.parts)])

    def _each(self, function: Callable) -> "JoinedDraws":
        """The same draws with other parts."""
        return replace(self, parts=tuple(map(function, self.parts)))

    def _of_draws(self, function: Callable) -> np.ndarray:
        """Values of the draws, from a function of their parts."""
        return np.concatenate([function(part) for part in self.parts])[self.draw]

    def _repeating(self) -> Iterator[tuple[Components, np.ndarray]]:
        """Parts with all their draws, repeated or not, and the positions of these."""
        for part, start in zip(self.parts, self._ends, strict=False):
            own = (self.draw >= start) & (self.draw < start + part.n_draws)
            positions = np.flatnonzero(own)
            if len(positions):
                yield part.draws(self.draw[positions] - start), positions

    @property
    def n_draws(self):
        """Number of draws."""
        return len(self.draw)

    @property
    def n_rows(self):
        """Number of rows."""
        return self.parts[0].n_rows

    @property
    def n_targets(self):
        """Number of targets."""
        return self.parts[0].n_targets

    def draws(self, index):
        """Select draws by index."""
        return replace(self, draw=self.draw[index])

    def rows(self, index):
        """Select rows by index or slice."""
        return self._each(lambda part: part.rows(index))

    def targets(self, index):
        """Select targets by index or slice."""
        return self._each(lambda part: part.targets(index))

    def repeated(self, times):
        """Repeat every draw ``times`` times."""
        return replace(self, draw=np.repeat(self.draw, times))

    def expanded(self) -> "GaussianMixtures":
        """All normal draws as mixtures with the same number of Gaussians."""
        mixtures = [GaussianMixtures.of(part) for part in self.parts]
        return GaussianMixtures.concatenated(mixtures).draws(self.draw)

    def _with_versions(self, turn, first, n_versions):
        pairs, draw = np.unique([self.draw, turn], axis=1, return_inverse=True)
        parts = []
        for part, start in zip(self.parts, self._ends, strict=False):
            inside = (pairs[0] >= start) & (pairs[0] < start + part.n_draws)
            at, turns = pairs[:, inside]
            parts.append(
                part.draws(at - start)._with_versions(turns, first, n_versions)
            )
        return JoinedDraws(tuple(parts), draw.ravel())

    @cached_property
    def mean(self):
        """Mean of every draw, (draws, rows, targets)."""
        return self._of_draws(lambda part: part.mean)

    @cached_property
    def variance(self):
        """Variance of every draw, (draws, rows, targets)."""
        return self._of_draws(lambda part: part.variance)

    @cached_property
    def own_share(self):
        """Probability that y is from the draw itself, or None."""
        if all(part.own_share is None for part in self.parts):
            return None
        return self._of_draws(
            lambda part: (
                np.ones((part.n_draws, part.n_rows, part.n_targets))
                if part.own_share is None
                else part.own_share
            )
        )

    def log_density_per_target(self, y):
        """log p(y) of every draw."""
        return self._of_draws(lambda part: part.log_density_per_target(y))

    def log_probability(self, low, high):
        """log P(low < Y <= high) of every draw."""
        return self._of_draws(lambda part: part.log_probability(low, high))

    def cdf(self, y):
        """P(Y <= y)."""
        return self._of_draws(lambda part: part.cdf(y))

    def quantile(self, level):
        """Quantile of every draw; level : (rows, targets), or with an axis of draws."""
        if np.ndim(level) < 3:
            return self._of_draws(lambda part: part.quantile(level))
        values = np.empty((self.n_draws, self.n_rows, self.n_targets))
        for part, positions in self._repeating():
            values[positions] = part.quantile(level[positions])
        return values

    def sample(self, random):
        """Sample y from every draw."""
        values = np.empty((self.n_draws, self.n_rows, self.n_targets))
        for part, positions in self._repeating():
            values[positions] = part.sample(random)
        return values

    def sample_given_draws(self, draws, random):
        """Sample y given some draws, (samples, rows, targets)."""
        if self.own_share is None:
            return self.draws(draws).sample(random)
        values = np.empty((len(draws), self.n_rows, self.n_targets))
        distinct = self.draw[draws]
        for part, start in zip(self.parts, self._ends, strict=False):
            of_part = (distinct >= start) & (distinct < start + part.n_draws)
            if of_part.any():
                values[of_part] = part.sample_given_draws(
                    distinct[of_part] - start, random
                )
        return values

    def rescaled(self, shift, factor):
        """Distributions of shift + factor y; both (targets,) or (rows, targets)."""
        return self._each(lambda part: part.rescaled(shift, factor))

    def scaled_about(self, centre, factor, bound=np.inf):
        """Distributions of centre + factor (y - centre)."""
        counts = np.bincount(self.draw, minlength=self._ends[-1])
        parts = []
        for part, start in zip(self.parts, self._ends, strict=False):
            latent, n = getattr(part, "latent", None), counts[start:][: part.n_draws]
            own = {}
            if latent is not None and n.any():
                own = {"own": np.average(latent.mean, axis=0, weights=n)}
            parts.append(part.scaled_about(centre, factor, bound, **own))
        return replace(self, parts=tuple(parts))

    @cached_property
    def _flattened(self):
        """Mean, variance and weight of all Gaussians, (Gaussians, rows, targets)."""
        counts = np.bincount(self.draw, minlength=self._ends[-1])
        columns = []
        for part, start in zip(self.parts, self._ends, strict=False):
            share = counts[start : start + part.n_draws, None, None] / self.n_draws
            if isinstance(part, GaussianMixtures):
                mean, variance, weight = part._flattened
                n = part.weight.shape[-1]
                weight = weight * part.n_draws * np.repeat(share, n, axis=0)
            else:
                mean, variance = part.mean, part.variance
                weight = np.broadcast_to(share, mean.shape)
            used = weight.any((1, 2))
            columns.append([values[used] for values in (mean, variance, weight)])
        return tuple(np.concatenate(values) for values in zip(*columns, strict=True))

    @property
    def is_location_scale(self):
        """Whether shifts and factors give draws of the same kinds."""
        return all(part.is_location_scale for part in self.parts)

    @property
    def atoms(self):
        """Values that may have a probability, (atoms, targets)."""
        return np.unique(np.concatenate([part.atoms for part in self.parts]), axis=0)

    def may_equal(self, y):
        """Whether P(Y = y) may be positive; both (rows, targets)."""
        return np.any([part.may_equal(y) for part in self.parts], axis=0)

    def support(self):
        """Lowest and highest possible y, (targets,) each."""
        low, high = zip(*(part.support() for part in self.parts), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    def mixture_cdf(self, y):
        """P(Y <= y) of the mixture of all draws."""
        if self.is_normal:
            mean, variance, weight = self._flattened
            return mixture_cdf(mean, variance, y, weight)
        pairs = self._repeating()
        return sum(len(at) * part.mixture_cdf(y) for part, at in pairs) / self.n_draws

    def mixture_quantile(self, level):
        """Quantile of the mixture of all draws."""
        if self.is_normal:
            mean, variance, weight = self._flattened
            return mixture_quantile(mean, variance, level, weight)
        # Rounding must not cross a bound.
        return super().mixture_quantile(level).clip(*self.support())

    def mixture_crps(self, y):
        """CRPS of the mixture: exact for normal draws, else from quantiles."""
        if self.is_normal:
            return gaussian_mixture_crps(y, *self._flattened)
        return super().mixture_crps(y)


def of_one_class(parts: Iterable[Components]) -> list:
    """Distributions of several kinds, or mixtures, as ``JoinedDraws``.

    Raises
    ------
    TypeError
        If distributions of counts and of real numbers are combined.
    """
    parts = list(parts)
    kinds = {type(part) for part in parts}
    if (
        len(kinds) == 1
        and not kinds & {GaussianMixtures, JoinedDraws}
        and len({part.kind for part in parts}) == 1
    ):
        return parts
    if any(part.discrete for part in parts):
        names = ", ".join(sorted({type(part).__name__ for part in parts}))
        raise TypeError(
            "distributions of counts and of real numbers cannot be combined; got "
            f"{names}. Give all members the same likelihood of counts, or none."
        )
    return [JoinedDraws.of(part) for part in parts]


def joined_draws(components: Sequence[Components]) -> Components:
    """Concatenate the draws of several objects, which may be of different kinds."""
    parts = of_one_class(components)
    return type(parts[0]).concatenated(parts)
