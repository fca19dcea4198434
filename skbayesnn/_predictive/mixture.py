"""The predictive of a few rows of a regression as a mixture, all draws held.

It never asks which likelihood its components come from.

Where the inverse of a target transform is defined, and what y is beyond that.

A network's predictive has all real numbers in it; the inverse of a power, of a root or
of a bounded function has not. Beyond its domain y stays at the limit that it comes to.
"""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.pipeline import make_pipeline

from skbayesnn._data.scaling import Scaling
from skbayesnn._distributions.components import Components
from skbayesnn._distributions.crps import (
    crps_by_cdf,
    crps_by_quantiles,
    weighted_sample_crps,
)
from skbayesnn._distributions.quantiles import intervals
from skbayesnn._predictive.recalibration import QuantileMap, log_density_of_scale
from skbayesnn._predictive.summaries import REGRESSION_KINDS

# ---- where the inverse of a target transform is defined, and what y is beyond that

# Where the inverse may be defined for a search to begin.
_STARTS = (0.0, 1.0, -1.0)
# Distances at which the end of the domain is looked for, and then pieces of a bracket,
# as often as a double has bits.
_DISTANCES = np.ldexp(1.0, np.arange(-20, 401))
_PIECES, _PASSES = 128, 10
# So many of the distances may be too far to ask for.
_REACHES = (len(_DISTANCES), 80, 25)
# A y so large that its image is that of infinity, and how near that is.
_LARGE, _NEAR = 1e300, 1e-6


@dataclass(frozen=True)
class Domain:
    """Of the inverse of a transform, per target.

    Parameters
    ----------
    ends : ndarray of shape (2, targets)
        Lowest and highest transformed values that have an inverse; may be infinite.
    limits : ndarray of shape (2, targets)
        y beyond them.
    """

    ends: np.ndarray
    limits: np.ndarray

    @classmethod
    def of(cls, transform: Any, n_targets: int) -> "Domain":
        """Of a fitted transformer of scikit-learn.

        It is looked for once, and the same whatever rows are predicted.
        """
        # scikit-learn warns of the NaN that are looked for.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            sides = [
                [_side(transform, n_targets, j, sign) for j in range(n_targets)]
                for sign in (-1.0, 1.0)
            ]
        both = np.array(sides)
        return cls(both[..., 0], both[..., 1])

    def inverse(self, transform: Any, values: np.ndarray) -> np.ndarray:
        """y of transformed values, (rows, targets)."""
        low, high = self.ends
        if np.isinf(self.ends).all():
            return np.asarray(transform.inverse_transform(values))
        y = np.asarray(transform.inverse_transform(values.clip(low, high)))
        y = np.where(values < low, self.limits[0], y)
        return np.where(values > high, self.limits[1], y)


def _side(transform, n_targets: int, target: int, sign: float) -> tuple[float, float]:
    """End of the domain to one side, and y beyond it; infinite where there is none."""

    def at(points):
        values = np.full((len(points), n_targets), start)
        values[:, target] = points
        return np.asarray(transform.inverse_transform(values), dtype=float)[:, target]

    for start in _STARTS:
        if not np.isnan(at(np.array([start]))[0]):
            break
    else:
        return sign * np.inf, np.nan
    points, outside = _far(at, start, sign)
    if not outside.any():
        return sign * np.inf, np.nan
    for _ in range(_PASSES):
        first = int(outside.argmax())
        points = np.linspace(points[first - 1], points[first], _PIECES)
        outside = np.isnan(at(points))
        outside[0], outside[-1] = False, True
    end = points[int(outside.argmax()) - 1]
    for y in (_LARGE, -_LARGE):
        image = _image(transform, n_targets, target, y)
        if abs(image - end) <= _NEAR * max(abs(end - start), abs(end)):
            return end, np.copysign(np.inf, y)
    return end, float(at(np.array([end]))[0])


def _far(at, start: float, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """Points ever farther away, and whether each is outside of the domain."""
    for reach in _REACHES:
        points = start + sign * np.concatenate([[0.0], _DISTANCES[:reach]])
        try:
            return points, np.isnan(at(points))
        except ValueError:  # a transformer that is asked for an infinite value
            continue
    return points, np.zeros(len(points), dtype=bool)


def _image(transform, n_targets: int, target: int, y: float) -> float:
    """Of a large y; NaN where the transform refuses it."""
    values = np.ones((1, n_targets))
    values[0, target] = y
    try:
        return float(np.asarray(transform.transform(values))[0, target])
    except ValueError:
        return np.nan


# ---- The predictive of a few rows of a regression as a mixture, all draws held

# Quadrature nodes per component, for moments behind a target transform.
N_NODES = 15
# Share of the draws' spread below which noise is little to the CRPS behind a transform.
LITTLE_NOISE = 0.05
# Nodes of the std after a recalibration of the levels.
N_STD_NODES = 32
# Standard deviations from the mean at which a transform must go one way.
_PATH = np.linspace(-2, 2, 9)
# The map of a target without one.
_UNCHANGED = (QuantileMap(np.array([0.0, 1.0]), np.array([0.0, 1.0])),)


@dataclass(frozen=True)
class MixturePredictive:
    """The equal-weight mixture of all draws of a regression.

    Parameters
    ----------
    components : Components
        Of the target as the network knows it.
    flat : bool
        Whether results drop the target axis.
    scaling : Scaling, optional
        From the network's scale to that target's units; None where it is in them.
    transform : object, optional
        scikit-learn transformer from y to that target; results are mapped back.
    maps : tuple of QuantileMap, optional
        A recalibration of the levels per target.
    dtype : of quantiles, intervals and samples
    """

    components: Components
    flat: bool
    scaling: Scaling | None = None
    transform: Any = None
    maps: tuple[QuantileMap, ...] | None = None
    dtype: Any = np.float64

    kinds = REGRESSION_KINDS
    of_classes = False

    @classmethod
    def pooled(cls, parts, n_draws=None):
        """The mixture of mixtures, which weigh alike.

        n_draws : of each part, which then weighs as many; a sequence of int
        """
        parts = [part.in_units_of_target() for part in parts]
        if any(part.maps is not None for part in parts):
            raise TypeError(
                "isotonic recalibration of the members of an ensemble gives no mixture "
                "of draws. Put CalibratedUncertaintyRegressor around the ensemble, "
                "not inside."
            )
        probe = parts[0].components.mean[:1]
        back = [part._back(probe) for part in parts]
        if not all(np.array_equal(values, back[0]) for values in back):
            raise TypeError(
                "the members of an ensemble must share one target transform; got "
                "transforms that differ (each is fitted to its own rows). Put "
                "TransformedTargetRegressor around the ensemble, not inside."
            )
        components = [part.components for part in parts]
        _check_same_kind(components)
        if n_draws is None:
            components = _even(components)
        else:
            pairs = zip(components, n_draws, strict=True)
            components = [one.resized(n) for one, n in pairs]
        joined = type(components[0]).concatenated(components, axis=0)
        return cls(joined, parts[0].flat, transform=parts[0].transform)

    @classmethod
    def of_other_rows(cls, parts):
        """One predictive of the rows of several, one after the other."""
        parts = [part.in_units_of_target() for part in parts]
        if any(part.transform is not None or part.maps is not None for part in parts):
            raise TypeError(
                "the predictives of other rows must be in y's own units, without a "
                "target transform or a recalibration."
            )
        n_draws = max(part.n_draws for part in parts)
        components = [part.components.resized(n_draws) for part in parts]
        _check_same_kind(components)
        joined = type(components[0]).concatenated(components, axis=1)
        return replace(parts[0], components=joined)

    @classmethod
    def side_by_side(cls, parts):
        """Independent predictives of several targets."""
        if any(part.transform is not None for part in parts):
            raise TypeError(
                "the targets of MultiOutputRegressor must have no transforms of their "
                "own. Put TransformedTargetRegressor around it, not inside."
            )
        parts = [part.in_units_of_target() for part in parts]
        maps = [part.maps or _UNCHANGED * part.components.n_targets for part in parts]
        components = [part.components for part in parts]
        _check_same_kind(components)
        return cls(
            type(components[0]).concatenated(_even(components), axis=2),
            flat=False,
            maps=sum(maps, ()) if any(part.maps for part in parts) else None,
        )

    def in_units_of_target(self):
        """The same with components in the target's own units."""
        if self.scaling is None:
            return self
        components = self.scaling.components_from_network(self.components)
        return replace(self, components=components, scaling=None, dtype=np.float64)

    def behind(self, transform, *, flat: bool):
        """The predictive of y where the present target is ``transform(y)``."""
        if self.components.discrete:
            raise TypeError(
                "a predictive of counts cannot be had behind a target transform, which "
                "would have to keep whole numbers. Fit the counts themselves, without "
                "TransformedTargetRegressor."
            )
        own = self.in_units_of_target()
        if self.transform is not None:
            transform = make_pipeline(transform, self.transform)
        return replace(own, transform=transform, flat=flat)

    def scaled(self, factor, bound=np.inf):
        """All draws and their noise spread about the mean by ``factor`` (targets,).

        bound : as of ``Components.spread``
        """
        self.check_not_mapped()
        own = self.in_units_of_target()
        components = own.components.spread(own.components.mean.mean(0), factor, bound)
        return replace(own, components=components)

    def corrected(self, factor, bound):
        """``scaled``, by what ``densities_of_factor`` is of."""
        return self.scaled(factor, bound)

    @property
    def counts(self) -> bool:
        """Whether it is of whole numbers from 0 on."""
        return self.components.discrete

    @property
    def has_spread(self) -> bool:
        """Whether it is of real numbers that are not behind a transform."""
        return not self.components.discrete and self.transform is None

    def densities_of_factor(self, y, bound):
        """Log factor of the spread -> log density of y, (rows,), for every target.

        None where a spread is nothing that can be multiplied.
        """
        if not self.has_spread:
            return []
        return [
            log_density_of_scale(
                self.components.targets(slice(j, j + 1)), column, bound
            )
            for j, column in enumerate(self.standard(y).T)
        ]

    def mapped(self, maps):
        """With the levels of every target recalibrated."""
        self.check_not_mapped()
        return replace(self.in_units_of_target(), maps=tuple(maps))

    def check_not_mapped(self) -> None:
        """Refuse to go on where the levels are recalibrated already."""
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration cannot be recalibrated again. Put one "
                "CalibratedUncertaintyRegressor around the estimator, not two."
            )

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return self.components.n_draws

    def mean(self) -> np.ndarray:
        """E y (eq. 5), (rows[, targets])."""
        return self._values(self._component_moments()[0].mean(0))

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Standard deviations (eq. 6): {kind: (rows[, targets])}.

        A recalibration of the levels scales both parts alike.
        """
        means, variances = self._component_moments()
        with np.errstate(invalid="ignore"):
            epistemic, aleatoric = means.std(0), np.sqrt(variances.mean(0))
        epistemic = np.where(np.isnan(epistemic), np.inf, epistemic)
        total = np.hypot(epistemic, aleatoric)
        factor = 1.0 if self.maps is None else self._std_of_mapped() / total
        stds = {"total": total, "epistemic": epistemic, "aleatoric": aleatoric}
        return {kind: self._shaped(factor * stds[kind]) for kind in kinds}

    def covariance(self) -> np.ndarray:
        """Of the targets of a row, (rows, targets, targets).

        A recalibration of the levels keeps their correlation.
        """
        means, variances = self._component_moments()
        apart = means - means.mean(0)
        of_draws = np.einsum("drs,drt->rst", apart, apart) / len(apart)
        diagonal = np.arange(means.shape[2])
        of_draws[:, diagonal, diagonal] += variances.mean(0)
        if self.maps is None:
            return of_draws
        std = np.sqrt(of_draws[:, diagonal, diagonal])
        factor = self._std_of_mapped() / std
        return of_draws * factor[:, :, None] * factor[:, None, :]

    def quantile(self, level: float) -> np.ndarray:
        """(rows[, targets]); exact for a transform that is monotone per target."""
        return self._values(self._quantile(level))

    def interval(self, coverages, kind: str) -> np.ndarray:
        """(rows[, targets], coverages, 2)."""
        shape = self.components.mean.shape[1:]
        if self.transform is None:
            # The shortest one is so in any units: they are changed at the end.
            ends = intervals(self._quantile_inside, shape, coverages, kind)
            return self._values(self._back(ends, axis=1))
        return self._values(intervals(self._quantile, shape, coverages, kind))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """F(y), (rows[, targets]); y (rows[, targets])."""
        y = self._columns(y)
        with np.errstate(invalid="ignore", divide="ignore"):
            forward, _ = self._forward(y)
        outside = np.isnan(forward)
        share = self._share(np.where(outside, 0.0, forward))
        share = np.where(self._rising, share, 1 - share)
        # y outside of the transform's domain lies beyond one of its ends.
        if outside.any():
            share = np.where(outside, y > self._quantile(0.5), share)
        return self._shaped(share)

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """y of the given draws with noise, (rows[, targets], samples)."""
        samples = self.components.draws(draws).sample(random)
        if self.maps is not None:
            samples = np.stack([self._remapped(sample) for sample in samples])
        return self._values(np.moveaxis(self._back(samples), 0, -1))

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """The given draws without noise, (rows[, targets], samples)."""
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration is of y, with its noise, and says nothing "
                "of the noise-free functions: take sample_y."
            )
        means = self.components.mean[draws]
        return self._values(np.moveaxis(self._back(means), 0, -1))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Eq. 8, (rows,), nats, of y in its own units; y (rows[, targets])."""
        y = self._columns(y)
        with np.errstate(invalid="ignore", divide="ignore"):
            forward, log_slope = self._forward(y)
        if self.maps is None:
            density = self._log_mixture(forward, slice(None))
        else:
            density = self._log_mapped(forward)
        # y outside of the transform's domain (the log of a negative number) is NaN.
        outside = np.isnan(forward).any(-1) & np.isfinite(y).all(-1)
        return np.where(outside, -np.inf, density + log_slope)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, mean over targets; (rows,)."""
        y = self._columns(y)
        if self.maps is not None:
            return crps_by_quantiles(y, self._quantile).mean(-1)
        if self.transform is None:
            own = self.in_units_of_target()
            return own.components.mixture_crps(y).mean(-1)
        return self._crps_behind(y).mean(-1)

    def _crps_behind(self, y) -> np.ndarray:
        """Behind a target transform, (rows, targets).

        Within 2e-4 of the score for a smooth transform; for one that is not monotone
        by nodes, which is some per cent off where noise is most of the spread.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            target, _ = self._forward(y)
        own = self.components
        score = crps_by_cdf(y, target, own, self._back)
        # Draws far apart make steps of F, which their own nodes follow.
        by_nodes = own.variance.mean(0) < np.square(LITTLE_NOISE) * own.mean.var(0)
        by_nodes |= np.isnan(score)
        if by_nodes.any():
            score = np.where(by_nodes, self._crps_by_nodes(y), score)
        return score

    def _crps_by_nodes(self, y) -> np.ndarray:
        """By the nodes of every draw, (rows, targets); for any transform."""
        nodes, weights = self._nodes()
        points = nodes.reshape(-1, *nodes.shape[2:])
        if weights.ndim == 1:
            weights = np.repeat(weights / self.n_draws, self.n_draws)
        else:
            weights = weights.reshape(points.shape) / self.n_draws
        with np.errstate(invalid="ignore"):
            score = weighted_sample_crps(y, points, weights)
        infinite = np.isinf(nodes).any((0, 1))
        if infinite.any():
            # Most quantiles are finite where a few of the nodes are not.
            with np.errstate(invalid="ignore"):
                by_quantiles = crps_by_quantiles(y, self._quantile)
            by_quantiles = np.where(np.isnan(by_quantiles), np.inf, by_quantiles)
            score = np.where(infinite, by_quantiles, score)
        return score

    def standard(self, y: np.ndarray) -> np.ndarray:
        """y in the units of the components, (rows, targets)."""
        return self._forward(self._columns(y))[0]

    def level(self, y: np.ndarray) -> np.ndarray:
        """Distribution function of ``standard(y)``, (rows, targets)."""
        return self._share(self.standard(y))

    def _columns(self, y) -> np.ndarray:
        """y as (rows, targets), float64, checked."""
        y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        n_targets = self.components.n_targets
        if y.shape[1] != n_targets:
            raise ValueError(
                f"`y` must have the {n_targets} targets of the fit; got {y.shape[1]}."
            )
        if np.isnan(y).any():
            raise ValueError(f"`y` must not contain NaN; got {np.isnan(y).sum()}.")
        return y

    def _quantile(self, level) -> np.ndarray:
        """(rows, targets); level a float or (rows, targets)."""
        y = self._back(self._quantile_inside(level))
        if self.transform is None:
            return y
        rounding = 1e-9 * np.abs(np.where(np.isfinite(self._median), self._median, 0))
        beyond = np.where(
            np.asarray(level) < 0.5,
            y > self._median + rounding,
            y < self._median - rounding,
        )
        self._refuse_turns(beyond.any(-1))
        return y

    @cached_property
    def _median(self) -> np.ndarray:
        """(rows, targets)."""
        return self._back(self._quantile_inside(0.5))

    def _refuse_turns(self, turns) -> None:
        """Say in which rows, (rows,) bool, the inverse does not go one way."""
        if turns.any():
            raise ValueError(
                "quantiles, intervals and distribution functions need a target "
                "transform that is monotone where the predictive is; got "
                f"{' '.join(repr(self.transform).split())}, whose inverse rises and "
                f"falls there in {turns.sum()} of {len(turns)} rows. Take sample_y, or "
                "a transform that is monotone for all y."
            )

    def _quantile_inside(self, level) -> np.ndarray:
        """The same in the components' units."""
        level = np.broadcast_to(level, self.components.mean.shape[1:])
        return self._at_share(np.where(self._rising, level, 1 - level))

    def _share(self, target):
        """Distribution function of the network's target; both (rows, targets)."""
        level = self.components.mixture_cdf(target)
        return level if self.maps is None else _each(self.maps, level)

    def _at_share(self, share):
        """Inverse of ``_share``."""
        if self.maps is not None:
            share = _each([one.inverse for one in self.maps], share)
            share = share.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        return self.components.mixture_quantile(share)

    def _remapped(self, target):
        """Where the recalibration moves values of the uncalibrated mixture."""
        return self._at_share(self.components.mixture_cdf(target))

    def _log_mixture(self, target, which) -> np.ndarray:
        """Log density of some targets under the uncalibrated mixture, (rows,)."""
        return self.components.targets(which).mixture_log_density(target[:, which])

    def _log_mapped(self, target) -> np.ndarray:
        """Log density after recalibration, (rows,).

        Every margin is changed by itself and the copula is kept: log p(t(z)), with
        t(z) the value of the uncalibrated mixture that is moved to z, and the slopes
        dt / dz of the margins.
        """
        level = self.components.mixture_cdf(target)
        before = _each(self.maps, level)
        before = before.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        before = self.components.mixture_quantile(before)
        density = self._log_mixture(before, slice(None))
        for j, one in enumerate(self.maps or ()):
            margin = slice(j, j + 1)
            density += one.log_slope(level[:, j]) + self._log_mixture(target, margin)
            density -= self._log_mixture(before, margin)
        return density

    def _std_of_mapped(self) -> np.ndarray:
        """Standard deviation by Gauss-Hermite quadrature over levels."""
        points, weights = np.polynomial.hermite_e.hermegauss(N_STD_NODES)
        # Beyond 8 a level is 1 to rounding; these nodes have weights below 1e-14.
        levels = ndtr(points.clip(-8, 8))
        nodes = np.stack([self._quantile(level) for level in levels])
        weights = weights / weights.sum()
        mean = np.tensordot(weights, nodes, 1)
        return np.sqrt(np.tensordot(weights, np.square(nodes - mean), 1))

    def _component_moments(self):
        """Mean and variance of y for every draw, (draws, rows, targets)."""
        if self.transform is None:
            own = self.in_units_of_target().components
            return own.mean, own.variance
        nodes, weights = self._nodes()
        mean = _weighted_sum(weights, nodes)
        with np.errstate(invalid="ignore"):
            variance = _weighted_sum(weights, np.square(nodes - mean))
        # Where y is infinite with some probability, so are its moments.
        return mean, np.where(np.isfinite(mean), variance, np.inf)

    def _nodes(self):
        """Quadrature of y: (nodes, draws, rows, targets), weights as in ``nodes``."""
        values, weights = self.components.nodes(N_NODES)
        return self._back(values), weights

    @cached_property
    def _about(self):
        """Values of the network's target one std to either side of the mean."""
        centre = self.components.mean.mean(0)
        spread = np.sqrt(self.components.variance.mean(0))
        return self._back(centre - spread), self._back(centre + spread)

    @cached_property
    def _rising(self):
        """Whether y rises with the network's target, (rows, targets) or a bool."""
        if self.transform is None:
            return True
        means = self.components.mean
        centre = means.mean(0)
        spread = np.sqrt(self.components.variance.mean(0) + means.var(0))
        path = np.stack([self._back(centre + k * spread) for k in _PATH])
        with np.errstate(invalid="ignore"):  # two infinite ends differ by nothing
            steps = np.nan_to_num(np.diff(path, axis=0), nan=0.0)
        rounding = 1e-9 * np.abs(np.where(np.isfinite(path), path, 0.0)).max(0)
        rising = (steps >= -rounding).all(0)
        one_way = rising | (steps <= rounding).all(0)
        self._refuse_turns((~one_way).any(-1))
        return rising

    def _back(self, values: np.ndarray, axis: int = -1) -> np.ndarray:
        """From the components' units to y, where targets are on an axis."""
        if self.scaling is not None:
            values = self.scaling.y_from_network(values, axis)
        if self.transform is None:
            return values
        flat = values.reshape(-1, values.shape[-1])
        return self._domain.inverse(self.transform, flat).reshape(values.shape)

    @cached_property
    def _domain(self) -> Domain:
        """Where the transform has an inverse."""
        return Domain.of(self.transform, self.components.n_targets)

    def _forward(self, y: np.ndarray):
        """In the components' units, and the log of the slope, summed over targets."""
        if self.scaling is not None:
            return self.scaling.y_to_network(y), self.scaling.log_density_shift()
        if self.transform is None:
            return y, 0.0
        below, above = self._about
        with np.errstate(invalid="ignore"):
            apart = np.abs(above - below)
        apart = np.where(np.isfinite(apart), apart, 1.0)
        step = 1e-6 * np.maximum(np.abs(y), 1e-3 * apart)
        up, down = (np.asarray(self.transform.transform(y + s)) for s in (step, -step))
        slope = np.abs(up - down) / (2 * step)
        return np.asarray(self.transform.transform(y)), np.log(slope).sum(-1)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.flat else values

    def _values(self, values: np.ndarray) -> np.ndarray:
        """Values of y as they are returned."""
        return self._shaped(values).astype(self.dtype, copy=False)


def _weighted_sum(weights, values) -> np.ndarray:
    """Over the nodes in front; weights (nodes,), or as the values."""
    if weights.ndim == 1:
        return np.tensordot(weights, values, 1)
    return (weights * values).sum(0)


def _each(functions, values) -> np.ndarray:
    """One function per target."""
    columns = zip(functions, values.T, strict=True)
    return np.stack([function(column) for function, column in columns], axis=-1)


def _check_same_kind(components) -> None:
    kinds = {type(one) for one in components}
    if len(kinds) > 1:
        raise TypeError(
            "predictives that are put together must have the same kind of noise; got "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}. Give the members "
            "one `likelihood`."
        )


def _even(components):
    """With as many draws each (a point mass has one)."""
    n_draws = math.lcm(*(one.n_draws for one in components))
    return [one.repeated(n_draws // one.n_draws) for one in components]
