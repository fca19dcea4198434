"""Predictive distribution of a few rows of a regression, as a mixture of all draws.

This module does not depend on the likelihood that the components come from.

If y has a target transform, the predictive distribution of the transformed target
contains all real numbers, but the inverse of a power, a root or a bounded function is
defined on a part of them only. Beyond this domain y keeps its limit.
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
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.components import Components
from skbayesnn._distributions.crps import crps_by_quantiles
from skbayesnn._distributions.mixtures import joined_draws, of_one_class
from skbayesnn._distributions.quantiles import intervals
from skbayesnn._distributions.recorded import TargetSpace, recorded
from skbayesnn._predictive.recalibration import QuantileMap, log_density_of_scale
from skbayesnn._predictive.summaries import REGRESSION_KINDS

# ---- domain of the inverse of a target transform, and y beyond it

# Values at which the search may start, and its length.
_STARTS, _FAR = (0.0, 1.0, -1.0), 1e18
# It divides the bracket into pieces, until all bits of a double are used.
_PIECES, _PASSES = 128, 20
# y is infinite at the bound if it grows by this factor in this last part of the way.
_GROWTH, _LAST_PART = 5.0, 1e-6


@dataclass(frozen=True)
class Domain:
    """Domain of the inverse of a transform, per target.

    Parameters
    ----------
    bounds : ndarray of shape (2, targets)
        Lowest and highest transformed values with an inverse; may be infinite.
    limits : ndarray of shape (2, targets)
        Values of y beyond them.
    """

    bounds: np.ndarray
    limits: np.ndarray

    @classmethod
    def of(cls, transform: Any, n_targets: int) -> "Domain":
        """Find the domain of a fitted transformer of scikit-learn.

        The search does not depend on the rows to be predicted.
        """
        # scikit-learn warns of NaN, which are expected here.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            both = np.array([_side(transform, n_targets, far) for far in (-_FAR, _FAR)])
        return cls(both[:, 0], both[:, 1])

    def inverse(self, transform: Any, values: np.ndarray) -> np.ndarray:
        """Convert transformed values to y, (rows, targets)."""
        low, high = self.bounds
        if np.isinf(self.bounds).all():
            return np.asarray(transform.inverse_transform(values))
        y = np.asarray(transform.inverse_transform(values.clip(low, high)))
        y = np.where(values < low, self.limits[0], y)
        return np.where(values > high, self.limits[1], y)


def _side(transform, n_targets: int, far: float) -> tuple[np.ndarray, np.ndarray]:
    """Bound of the domain towards ``far``, and y beyond it, (targets,) each."""

    def inverse(values):
        return np.asarray(transform.inverse_transform(values), dtype=float)

    starts = np.multiply.outer(_STARTS, np.ones(n_targets))
    start = starts[np.isnan(inverse(starts)).any(1).argmin()]
    try:
        ends = np.isnan(inverse(np.stack([start, start + far])))
    except ValueError:  # a step of a pipeline refuses infinite values
        ends = np.zeros((2, n_targets), dtype=bool)
    is_bounded, infinite = ends[1] & ~ends[0], np.copysign(np.inf, far)
    if not is_bounded.any():
        return np.full(n_targets, infinite), np.full(n_targets, np.nan)
    targets, inside, outside = np.arange(n_targets), start, start + far
    for _ in range(_PASSES):
        pieces = np.linspace(inside, outside, _PIECES)
        first = np.isnan(inverse(pieces)).argmax(0).clip(1)
        inside, outside = pieces[first - 1, targets], pieces[first, targets]
    y = inverse(inside[None])[0]
    before = inverse(inside[None] - _LAST_PART * (inside - start))[0]
    is_infinite = np.abs(y) > _GROWTH * np.abs(before)
    limits = np.where(is_infinite, np.copysign(np.inf, y), y)
    return np.where(is_bounded, inside, infinite), limits


# ---- the mixture

# Quadrature nodes per component, for moments of y with a target transform.
N_NODES = 15
# The same for the expected value of a function.
N_EXPECTED = 31
# Quantiles of a count for that.
N_LEVELS = 200
# Edges of cells that represent a distribution: quantiles at levels of the normal
# distribution between these numbers, as many at equal distances, for draws that are far
# apart, and some beyond them on each side, up to a draw's TAIL.
BULK, N_EDGES, N_BEYOND, TAIL = 3.0, 81, 16, 1e-7
# Quantiles of all draws for the CRPS with a target transform.
N_CRPS = 4000
# Quadrature nodes for the standard deviation after a recalibration of the levels.
N_STD_NODES = 32
# Standard deviations from the mean between which a transform must be monotone.
_PATH = np.linspace(-2, 2, 9)
# In place of an infinite value of a target transform or of its inverse.
_LARGE = 1e300
# Maps of a target that is not recalibrated.
_UNCHANGED = (QuantileMap(np.array([0.0, 1.0]), np.array([0.0, 1.0])),)


def _clipped(y: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values of y, or of intervals, clipped to [low, high].

    Raises
    ------
    ValueError
        If an interval is not on one side of the limits.
    """
    if y.dtype.names is None:
        return np.clip(y, low, high)
    lower, upper = (np.clip(y[name], low, high) for name in ("lower", "upper"))
    is_open = lower < upper
    if is_open.any():
        row = int(is_open.argmax())
        raise ValueError(
            f"every interval must be outside of ({low:g}, {high:g}) or a single value; "
            f"got {y['lower'][row]:g} to {y['upper'][row]:g} and {is_open.sum()} such "
            "rows. Choose `low` and `high` so that they exclude what was not observed."
        )
    return lower


@dataclass(frozen=True)
class MixturePredictive:
    """Mixture of all draws of a regression, with equal weights.

    Parameters
    ----------
    components : Components
        Distributions of the network's target, one per draw.
    squeeze_targets : bool
        Whether results have no axis of targets.
    scaling : Scaling, optional
        From the network's scale to the target's units; None if they are the same.
    transform : object, optional
        scikit-learn transformer from y to the target; results are converted back to y.
    maps : tuple of QuantileMap, optional
        Recalibration of the levels, per target.
    dtype : dtype of quantiles, intervals and samples
    """

    components: Components
    squeeze_targets: bool
    scaling: Scaling | None = None
    transform: Any = None
    maps: tuple[QuantileMap, ...] | None = None
    dtype: Any = np.float64

    kinds = REGRESSION_KINDS
    is_classification = False

    @classmethod
    def pooled(cls, parts, n_draws):
        """Pool several distributions in y's own units into one mixture.

        n_draws : sequence of int, number of draws of each part, which is its weight
        """
        parts = _in_own_units(parts, "mixed")
        components = of_one_class(part.components for part in parts)
        pairs = zip(components, n_draws, strict=True)
        draws = joined_draws([part.resized(n) for part, n in pairs])
        return cls(draws, parts[0].squeeze_targets)

    def mix_versions(self, first: np.ndarray, n_versions: np.ndarray, most: int):
        """Mix the versions of each row; see ``DrawArrays.mix_versions``."""
        components = self.components.mix_versions(first, n_versions, most)
        return replace(self, components=components)

    @classmethod
    def concatenate_rows(cls, parts):
        """Concatenate the rows of several distributions."""
        parts = _in_own_units(parts, "concatenated")
        n_draws = max(part.n_draws for part in parts)
        components = of_one_class(part.components.resized(n_draws) for part in parts)
        joined = type(components[0]).concatenated(components, axis=1)
        return replace(parts[0], components=joined)

    @classmethod
    def join_targets(cls, parts):
        """Join independent distributions of several targets."""
        if any(part.transform is not None for part in parts):
            raise TypeError(
                "the models inside MultiOutputRegressor must not transform their "
                "targets. Put TransformedTargetRegressor around it, not inside."
            )
        parts = [part.in_units_of_target() for part in parts]
        maps = [part.maps or _UNCHANGED * part.components.n_targets for part in parts]
        components = of_one_class(part.components for part in parts)
        return cls(
            type(components[0]).concatenated(_even(components), axis=2),
            squeeze_targets=False,
            maps=sum(maps, ()) if any(part.maps for part in parts) else None,
        )

    def in_units_of_target(self):
        """Convert the components to the target's own units."""
        if self.scaling is None:
            return self
        components = self.scaling.components_from_network(self.components)
        return replace(self, components=components, scaling=None, dtype=np.float64)

    def with_target_transform(self, transform, *, squeeze_targets: bool):
        """Distribution of y, if the present target is ``transform(y)``."""
        if self.components.discrete:
            raise TypeError(
                "counts must not have a target transform, because transformed values "
                "are not whole numbers. Fit the counts directly, without "
                "TransformedTargetRegressor."
            )
        in_units = self.in_units_of_target()
        if self.transform is not None:
            transform = make_pipeline(transform, self.transform)
        return replace(in_units, transform=transform, squeeze_targets=squeeze_targets)

    def scaled(self, factor, bound=np.inf):
        """Spread all draws and their noise about the mean by ``factor``, (targets,).

        bound : as in ``Components.scaled_about``
        """
        self.check_not_mapped()
        in_units = self.in_units_of_target()
        components = in_units.components
        components = components.scaled_about(components.mean.mean(0), factor, bound)
        return replace(in_units, components=components)

    def corrected(self, factor, bound):
        """Apply a factor that ``densities_of_factor`` evaluates; same as ``scaled``."""
        return self.scaled(factor, bound)

    @property
    def counts(self) -> bool:
        """Whether y is a count: 0, 1, 2, ..."""
        return self.components.discrete

    @property
    def has_spread(self) -> bool:
        """Whether the spread can be scaled: real numbers without a transform."""
        return not self.components.discrete and self.transform is None

    def densities_of_factor(self, y, bound):
        """Return functions, one per target: log factor to log density of y, (rows,).

        Empty if the spread cannot be scaled.

        y : (rows[, targets]), or ``Cells``
        """
        if not self.has_spread:
            return []
        components = self.in_units_of_target().components
        low, high = y if isinstance(y, Cells) else (self._columns(y), None)
        return [
            log_density_of_scale(
                components.targets(slice(j, j + 1)),
                low[:, j],
                bound,
                None if high is None else high[:, j],
            )
            for j in range(components.n_targets)
        ]

    def mapped(self, maps):
        """Recalibrate the levels of every target."""
        self.check_not_mapped()
        return replace(self.in_units_of_target(), maps=tuple(maps))

    def check_not_mapped(self) -> None:
        """Raise if the levels are recalibrated already."""
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration cannot be recalibrated again. Put one "
                "CalibratedUncertaintyRegressor around the estimator, not two."
            )

    @property
    def n_draws(self) -> int:
        """Number of components of the mixture."""
        return self.components.n_draws

    def mean(self) -> np.ndarray:
        """Mean of y, (rows[, targets])."""
        return self._values(self._component_moments()[0].mean(0))

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Standard deviations of y: {kind: (rows[, targets])}.

        A recalibration of the levels scales both parts equally.
        """
        means, variances = self._component_moments()
        given_draws = self.components.given_draws(means)
        with np.errstate(invalid="ignore"):
            epistemic, noise = given_draws.std(0), variances.mean(0)
            if given_draws is not means:
                # Draws that share y differ by noise, too.
                noise += np.fmax(means.var(0) - np.square(epistemic), 0.0)
            aleatoric = np.sqrt(noise)
        epistemic = np.where(np.isnan(epistemic), np.inf, epistemic)
        total = np.hypot(epistemic, aleatoric)
        factor = 1.0 if self.maps is None else self._std_of_mapped() / total
        stds = {"total": total, "epistemic": epistemic, "aleatoric": aleatoric}
        return {kind: self._values(factor * stds[kind]) for kind in kinds}

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and total standard deviation of y, (rows[, targets])."""
        return self.mean(), self.uncertainty(["total"])["total"]

    def expect(self, function) -> np.ndarray:
        """Expected value of a function of single values of y, (rows[, targets])."""
        if self.components.discrete:
            levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
            nodes = np.stack([self._quantile(level) for level in levels])[:, np.newaxis]
            weights = np.full(N_LEVELS, 1 / N_LEVELS)
        elif self.maps is not None:
            nodes, weights = self._nodes_of_mapped()
            nodes = nodes[:, np.newaxis]
        else:
            nodes, weights = self._nodes(N_EXPECTED)
        values = np.asarray(function(nodes), dtype=np.float64)
        if values.shape != nodes.shape:
            raise ValueError(
                "`function` must return one value for each value of y, in an array of "
                f"the same shape {nodes.shape}; got shape {values.shape}."
            )
        return self._shaped(_weighted_sum(weights, values).mean(0))

    def rows(self, index):
        """Select rows by index or slice."""
        return replace(self, components=self.components.rows(index))

    def outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of y that represent every draw, and their probabilities.

        The values are the middles of cells and, where y may equal a value, this value.
        y must have one target.

        returns : (rows, values), increasing, and (rows, draws, values)
        """
        components, edges = self.components, self._edges()
        shares = [components.given_draws(components.cdf(edge)) for edge in edges]
        up_to, below = np.stack(shares), np.stack(shares)
        is_new = np.diff(edges, axis=0, prepend=-np.inf) > 0
        may_equal = np.stack([components.may_equal(edge) for edge in edges])
        for i in np.flatnonzero((may_equal & is_new).any((1, 2))):
            share = components.cdf(np.nextafter(edges[i], -np.inf))
            is_atom = (may_equal & is_new)[i]
            below[i] = np.where(is_atom, components.given_draws(share), up_to[i])
        below[0], up_to[-1] = 0.0, 1.0  # what is beyond
        values = (edges[1:] + edges[:-1]) / 2
        chances = below[1:] - up_to[:-1]
        # Results of a row must not depend on the other rows.
        if components.discrete or len(components.atoms):
            values = np.concatenate([edges, values])
            chances = np.concatenate([up_to - below, chances])
        else:  # what is beyond the edges
            chances[0] += up_to[0]
            chances[-1] += 1 - below[-1]
        chances = chances.clip(min=0.0)
        if self.maps is not None:
            values = np.stack([self._remapped(value) for value in values])
        values = self._back(values)[..., 0]
        order = np.argsort(values, axis=0, kind="stable")
        values = np.take_along_axis(values, order, 0)
        chances = np.take_along_axis(chances[..., 0], order[:, None], 0)
        return values.T, np.moveaxis(chances / chances.sum(0), -1, 0).swapaxes(1, 2)

    def _edges(self) -> np.ndarray:
        """Edges of cells in the network's units, increasing, (edges, rows, targets)."""
        components, shape = self.components, self.components.mean.shape[1:]
        low = components.quantile(np.full(shape, TAIL)).min(0).astype(np.float64)
        high = components.quantile(np.full(shape, 1 - TAIL)).max(0).astype(np.float64)
        if components.discrete:
            return np.round(np.linspace(low, high, 2 * N_EDGES))
        levels = ndtr(np.linspace(-BULK, BULK, N_EDGES))
        bulk = components.fast_quantiles(levels).astype(np.float64)
        beyond = np.linspace(0, 1, N_BEYOND + 1)[1:, None, None] ** 2
        atoms = np.broadcast_to(
            components.atoms[:, None], (len(components.atoms), *shape)
        )
        edges = [
            np.minimum(bulk[0], low + (bulk[0] - low) * (1 - beyond)),
            bulk,
            np.linspace(bulk[0], bulk[-1], N_EDGES)[1:-1],
            np.maximum(bulk[-1], bulk[-1] + (high - bulk[-1]) * beyond),
            np.where(np.isnan(atoms), bulk[:1], atoms),
        ]
        return np.sort(np.concatenate(edges), axis=0)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest possible y, (targets,) or without axes."""
        bounds = np.stack(self.components.support())
        if self.transform is not None:
            with np.errstate(all="ignore"):
                bounds = self._back(bounds.clip(-_LARGE, _LARGE))
            bounds = np.sort(np.where(np.abs(bounds) >= _LARGE, np.inf, 1) * bounds, 0)
        low, high = bounds
        return (low[0], high[0]) if self.squeeze_targets else (low, high)

    def covariance(self) -> np.ndarray:
        """Covariance of the targets within a row, (rows, targets, targets).

        A recalibration of the levels does not change the correlations.
        """
        means, variances = self._component_moments()
        deviation = means - means.mean(0)
        covariance = np.einsum("drs,drt->rst", deviation, deviation) / len(deviation)
        diagonal = np.arange(means.shape[2])
        covariance[:, diagonal, diagonal] += variances.mean(0)
        if self.maps is not None:
            std = np.sqrt(covariance[:, diagonal, diagonal])
            factor = self._std_of_mapped() / std
            covariance = covariance * factor[:, :, None] * factor[:, None, :]
        return covariance.astype(self.dtype, copy=False)

    def quantile(self, level: float) -> np.ndarray:
        """Quantile, (rows[, targets]); exact for a monotone transform per target."""
        return self._values(self._quantile(level))

    def interval(self, coverages, kind: str) -> np.ndarray:
        """Prediction intervals, (rows[, targets], coverages, 2)."""
        shape = self.components.mean.shape[1:]
        if self.transform is None:
            # The shortest interval is the same in any units: convert at the end.
            bounds = intervals(self._quantile_inside, shape, coverages, kind)
            return self._values(self._back(bounds, axis=1))
        return self._values(intervals(self._quantile, shape, coverages, kind))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Distribution function F(y), (rows[, targets]); y (rows[, targets])."""
        y = self._columns(y)
        with np.errstate(invalid="ignore", divide="ignore"):
            forward, _ = self._forward(y)
        outside = np.isnan(forward)
        share = self._share(np.where(outside, 0.0, forward))
        share = np.where(self._rising, share, 1 - share)
        # A y outside of the transform's domain lies beyond one of its bounds.
        if outside.any():
            share = np.where(outside, y > self._quantile(0.5), share)
        return self._shaped(share)

    def mass(self, y: np.ndarray) -> np.ndarray:
        """P(Y = y), (rows[, targets]); y (rows[, targets])."""
        inner = self.in_units_of_target()
        with np.errstate(invalid="ignore", divide="ignore"):
            target, _ = inner._forward(self._columns(y))
        may_equal = inner.components.may_equal(target)
        if not may_equal.any():
            return self._shaped(np.zeros(target.shape))
        target = np.where(may_equal, target, 0.0)
        jump = inner._share(target) - inner._share(np.nextafter(target, -np.inf))
        return self._shaped(np.where(may_equal, jump, 0.0))

    def pit(self, y: np.ndarray) -> np.ndarray:
        """P(Y < y) and P(Y <= y), or F at bounds of intervals, (2, rows[, targets]).

        y : (rows[, targets]), or intervals
        """
        if y.dtype.names is None:
            share = self.cdf(y)
            return np.stack([np.maximum(share - self.mass(y), 0.0), share])
        low, high = (self.cdf(y[name]) for name in ("lower", "upper"))
        is_exact = self._shaped((y["lower"] == y["upper"])[:, None])
        below = self.pit(np.where(is_exact, y["lower"], 0.0))[0]
        return np.stack([np.where(is_exact, below, low), high])

    def cdf_of_draws(self, y: np.ndarray) -> np.ndarray:
        """Distribution function of every draw, (draws, rows[, targets])."""
        with np.errstate(invalid="ignore", divide="ignore"):
            target, _ = self._forward(self._columns(y))
        if self.maps is not None:
            target = self._before(target)
        shares = self.components.given_draws(self.components.cdf(target))
        shares = np.where(self._rising, shares, 1 - shares)
        # A y outside of the transform's domain lies beyond one of its bounds.
        shares = np.where(np.isnan(target), y > self._median, shares)
        return shares[..., 0] if self.squeeze_targets else shares

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sample y from the given draws, with noise, (rows[, targets], samples)."""
        samples = self.components.sample_given_draws(draws, random)
        if self.maps is not None:
            samples = np.stack([self._remapped(sample) for sample in samples])
        return self._values(np.moveaxis(self._back(samples), 0, -1))

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Means of the given draws, without noise, (rows[, targets], samples)."""
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration changes y including its noise; it has no "
                "noise-free functions: take sample_y."
            )
        means = self.components.given_draws(self.components.mean)[draws]
        return self._values(np.moveaxis(self._back(means), 0, -1))

    def log_density(self, y: np.ndarray | Cells) -> np.ndarray:
        """Log density of y in its own units, (rows,).

        y : (rows[, targets]), or intervals; or ``Cells``, without a transform and a
            recalibration. Of intervals whose ends differ, the log probability.
        """
        if not isinstance(y, Cells) and y.dtype.names is not None:
            return self._log_probability(y)
        if isinstance(y, Cells):
            return self.in_units_of_target().components.mixture_log_density(*y)
        y = self._columns(y)
        with np.errstate(invalid="ignore", divide="ignore"):
            forward, log_slope = self._forward(y)
        if self.maps is None:
            density = self._log_mixture(forward, slice(None))
        else:
            density = self._log_mapped(forward)
        # Outside of the domain (the log of a negative number) the transform is NaN.
        outside = np.isnan(forward).any(-1) & np.isfinite(y).all(-1)
        return np.where(outside, -np.inf, density + log_slope)

    def _log_probability(self, y: np.ndarray) -> np.ndarray:
        """Log probability of intervals, or log density of exact values, (rows,)."""
        if self.transform is not None or self.maps is not None:
            raise ValueError(
                "log probabilities of intervals require y in the units of the fit; got "
                "a transformed target or an isotonic recalibration. Give exact values."
            )
        low, high = self._columns(y["lower"]), self._columns(y["upper"])
        width = high - low
        one = (width == 0) | np.isinf(width)
        density = self.in_units_of_target().components.mixture_log_density(low, high)
        return density + np.log(np.where(one, 1.0, width)).sum(-1)

    def crps(
        self, y: np.ndarray, low: float = -np.inf, high: float = np.inf
    ) -> np.ndarray:
        """Continuous ranked probability score, averaged over targets; (rows,).

        With a target transform it is within 2e-4 of the exact score.

        low, high : the score counts values between them; it then is the score of the
            clipped distribution for the clipped y
        """
        if low > -np.inf or high < np.inf:
            y = self._columns(_clipped(y, low, high))
            score = crps_by_quantiles(y, lambda p: self._quantile(p).clip(low, high))
            return score.mean(-1)
        y = self._columns(y)
        if self.maps is not None:
            score = crps_by_quantiles(y, self._quantile)
        elif self.transform is None:
            score = self.in_units_of_target().components.mixture_crps(y)
        else:
            with np.errstate(invalid="ignore"):  # infinite values
                score = self.components.crps_of_draws(y, self._back, N_CRPS)
            score = np.where(np.isnan(score), np.inf, score)
        return score.mean(-1)

    def standard(self, y: np.ndarray) -> np.ndarray:
        """Convert y to the units of the components, (rows, targets)."""
        return self._forward(self._columns(y))[0]

    def cdf_of_standardised(self, y: np.ndarray) -> np.ndarray:
        """Distribution function of ``standard(y)``, (rows, targets)."""
        return self._share(self.standard(y))

    def _columns(self, y) -> np.ndarray:
        """Check y and convert it to (rows, targets), float64."""
        if y.dtype.names is not None:
            raise ValueError(
                "`y` must be exact values for this result; got intervals. Of intervals "
                "take the log density, log_predictive_density or log_density_scorer, "
                "or predict_distribution(X).crps(y, low, high), between limits."
            )
        y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        n_targets = self.components.n_targets
        if y.shape[1] != n_targets:
            raise ValueError(
                f"`y` must have the {n_targets} targets of the fit; got {y.shape[1]}."
            )
        if np.isnan(y).any():
            raise ValueError(
                f"`y` must not contain NaN; got {np.isnan(y).sum()}. Leave out these "
                "rows."
            )
        return y

    def _quantile(self, level) -> np.ndarray:
        """Quantile of y, (rows, targets); level a float or (rows, targets)."""
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
        """Median of y, (rows, targets)."""
        return self._back(self._quantile_inside(0.5))

    def _refuse_turns(self, turns) -> None:
        """Raise if the transform's inverse is not monotone; turns : (rows,), bool."""
        if turns.any():
            raise ValueError(
                "quantiles, intervals and distribution functions need a target "
                "transform that is monotone in the range of the predictive "
                f"distribution; got {' '.join(repr(self.transform).split())}, whose "
                f"inverse rises and falls in {turns.sum()} of {len(turns)} rows. Take "
                "sample_y, or a transform that is monotone for all y."
            )

    def _quantile_inside(self, level) -> np.ndarray:
        """Quantile in the units of the components, (rows, targets)."""
        level = np.broadcast_to(level, self.components.mean.shape[1:])
        return self._at_share(np.where(self._rising, level, 1 - level))

    def _share(self, target):
        """Distribution function of the network's target; both (rows, targets)."""
        level = self.components.mixture_cdf(target)
        return level if self.maps is None else _each(self.maps, level)

    def _at_share(self, share):
        """Inverse of ``_share``."""
        if self.maps is not None:
            share = _each([quantile_map.inverse for quantile_map in self.maps], share)
            share = share.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        return self.components.mixture_quantile(share)

    def _remapped(self, target):
        """Apply the recalibration to values of the uncalibrated mixture."""
        return self._at_share(self.components.mixture_cdf(target))

    def _before(self, target):
        """Values of the uncalibrated mixture that ``_remapped`` moves to ``target``."""
        share = self._share(target)
        share = share.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        return self.components.mixture_quantile(share)

    def _log_mixture(self, target, which) -> np.ndarray:
        """Log density of selected targets under the uncalibrated mixture, (rows,)."""
        return self.components.targets(which).mixture_log_density(target[:, which])

    def _log_mapped(self, target) -> np.ndarray:
        """Log density after recalibration, (rows,).

        The recalibration changes the margins and keeps the copula: log p(t(z)) plus the
        log slopes dt / dz of the margins, where t(z) is the value of the uncalibrated
        mixture that is mapped to z.
        """
        level, before = self.components.mixture_cdf(target), self._before(target)
        density = self._log_mixture(before, slice(None))
        for j, quantile_map in enumerate(self.maps or ()):
            margin = slice(j, j + 1)
            log_slope = quantile_map.log_slope(level[:, j])
            density += log_slope + self._log_mixture(target, margin)
            density -= self._log_mixture(before, margin)
        return density

    def _nodes_of_mapped(self) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Hermite nodes after recalibration, (nodes, rows, targets), and weights.

        The nodes are quantiles at levels of the normal distribution.
        """
        points, weights = np.polynomial.hermite_e.hermegauss(N_STD_NODES)
        # Beyond 8 a level rounds to 1; these nodes have weights below 1e-14.
        levels = ndtr(points.clip(-8, 8))
        nodes = np.stack([self._quantile(level) for level in levels])
        return nodes, weights / weights.sum()

    def _std_of_mapped(self) -> np.ndarray:
        """Standard deviation after recalibration, (rows, targets)."""
        nodes, weights = self._nodes_of_mapped()
        mean = np.tensordot(weights, nodes, 1)
        return np.sqrt(np.tensordot(weights, np.square(nodes - mean), 1))

    def _component_moments(self):
        """Mean and variance of y for every draw, (draws, rows, targets)."""
        if self.transform is None:
            components = self.in_units_of_target().components
            return components.mean, components.variance
        nodes, weights = self._nodes()
        mean = _weighted_sum(weights, nodes)
        with np.errstate(invalid="ignore"):
            variance = _weighted_sum(weights, np.square(nodes - mean))
        # If y is infinite with positive probability, so are its moments.
        return mean, np.where(np.isfinite(mean), variance, np.inf)

    def _nodes(self, n=N_NODES):
        """Quadrature nodes of y, (nodes, draws, rows, targets), and their weights."""
        values, weights = self.components.nodes(n)
        return self._back(values), weights

    @cached_property
    def _about(self):
        """y one standard deviation of the network's target below and above its mean."""
        centre = self.components.mean.mean(0)
        spread = np.sqrt(self.components.variance.mean(0))
        return self._back(centre - spread), self._back(centre + spread)

    @cached_property
    def _rising(self):
        """Whether y increases with the network's target, (rows, targets) or a bool."""
        if self.transform is None:
            return True
        means = self.components.mean
        centre = means.mean(0)
        spread = np.sqrt(self.components.variance.mean(0) + means.var(0))
        path = np.stack([self._back(centre + k * spread) for k in _PATH])
        with np.errstate(invalid="ignore"):  # two infinite values differ by nothing
            steps = np.nan_to_num(np.diff(path, axis=0), nan=0.0)
        rounding = 1e-9 * np.abs(np.where(np.isfinite(path), path, 0.0)).max(0)
        rising = (steps >= -rounding).all(0)
        one_way = rising | (steps <= rounding).all(0)
        self._refuse_turns((~one_way).any(-1))
        return rising

    def _back(self, values: np.ndarray, axis: int = -1) -> np.ndarray:
        """Convert from the components' units to y; ``axis`` is the axis of targets."""
        if self.scaling is not None:
            values = self.scaling.y_from_network(values, axis)
        if self.transform is None:
            return values
        flat = values.reshape(-1, values.shape[-1])
        return self._domain.inverse(self.transform, flat).reshape(values.shape)

    @cached_property
    def _domain(self) -> Domain:
        """Domain of the transform's inverse."""
        return Domain.of(self.transform, self.components.n_targets)

    def _forward(self, y: np.ndarray):
        """Convert y to the components' units; return also the log slope, summed."""
        if self.scaling is not None:
            return self.scaling.y_to_network(y), self.scaling.log_density_shift()
        if self.transform is None:
            return y, 0.0
        below, above = self._about
        with np.errstate(invalid="ignore"):
            distance = np.abs(above - below)
        distance = np.where(np.isfinite(distance), distance, 1.0)
        step = 1e-6 * np.maximum(np.abs(y), 1e-3 * distance)
        up, down = (np.asarray(self.transform.transform(y + s)) for s in (step, -step))
        slope = np.abs(up - down) / (2 * step)
        return np.asarray(self.transform.transform(y)), np.log(slope).sum(-1)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.squeeze_targets else values

    def _values(self, values: np.ndarray) -> np.ndarray:
        """Values of y in the shape and precision in which they are returned."""
        return self._shaped(values).astype(self.dtype, copy=False)


def _in_own_units(parts, verb: str) -> list:
    """Parts in y's units; raise if they were transformed or recalibrated."""
    parts = [part.in_units_of_target() for part in parts]
    if any(part.transform is not None or part.maps is not None for part in parts):
        raise TypeError(
            f"only distributions in y's own units can be {verb}, without a target "
            "transform or a recalibration."
        )
    return parts


def in_space(predictive: Any, space: TargetSpace | None) -> Any:
    """Distribution of y, of a model that was fitted to the latent values of a space.

    A distribution that knows its bounds stays as it is.
    """
    if space is None:
        return predictive
    in_units = predictive.in_units_of_target()
    components = in_units.components
    if not components.is_location_scale:
        return in_units
    spaces = (space,) * components.n_targets
    # In single precision a bound could be rounded to the other side.
    dtype = np.dtype(np.float64)
    return replace(in_units, components=recorded(components, spaces), dtype=dtype)


def _weighted_sum(weights, values) -> np.ndarray:
    """Sum over the first axis; weights (nodes,), or the shape of the values."""
    if weights.ndim == 1:
        return np.tensordot(weights, values, 1)
    return (weights * values).sum(0)


def _each(functions, values) -> np.ndarray:
    """Apply one function per target."""
    columns = zip(functions, values.T, strict=True)
    return np.stack([function(column) for function, column in columns], axis=-1)


def _even(components):
    """Repeat draws so that all parts have the same number (a point mass has one)."""
    n_draws = math.lcm(*(part.n_draws for part in components))
    return [part.repeated(n_draws // part.n_draws) for part in components]
