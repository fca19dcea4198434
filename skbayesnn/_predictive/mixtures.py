"""The predictive of a few rows as a mixture, all draws held.

The estimators stream over draws and rows; where a meta-estimator stands between
(ensembles, target transforms), its predictive is put together from these.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr
from sklearn.pipeline import make_pipeline

from skbayesnn._predictive.crps import gaussian_mixture_crps, weighted_sample_crps
from skbayesnn._predictive.quantiles import intervals, mixture_cdf, mixture_quantile
from skbayesnn._predictive.recalibration import QuantileMap
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    REGRESSION_KINDS,
    classification_uncertainty,
    gaussian_log_density,
)

# Gauss-Hermite nodes per component, for moments behind a target transform.
N_NODES = 15
# After a recalibration of the levels: levels of the CRPS, nodes of the std.
N_LEVELS = 200
N_STD_NODES = 32
# The map of a target without one.
_UNCHANGED = (QuantileMap(np.array([0.0, 1.0]), np.array([0.0, 1.0])),)


@dataclass(frozen=True)
class GaussianMixture:
    """The predictive of a regression, all draws held.

    Parameters
    ----------
    mean, variance : ndarray of shape (draws, rows, targets)
        In the units of the target as the network knows it.
    flat : bool
        Whether results drop the target axis.
    transform : object, optional
        scikit-learn transformer from y to that target; results are mapped back.
    maps : tuple of QuantileMap, optional
        A recalibration of the levels per target, in the units of that target.
    """

    mean: np.ndarray
    variance: np.ndarray
    flat: bool
    transform: Any = None
    maps: tuple[QuantileMap, ...] | None = None

    kinds = REGRESSION_KINDS

    @classmethod
    def pooled(cls, parts, classes=None):
        """The equal-weight mixture of mixtures."""
        if any(part.maps is not None for part in parts):
            raise TypeError(
                "isotonic recalibration of the members of an ensemble gives no mixture "
                "of Gaussians. Put CalibratedUncertaintyRegressor around the ensemble, "
                "not inside."
            )
        probe = parts[0].mean[:1]
        back = [part._back(probe) for part in parts]
        if not all(np.array_equal(values, back[0]) for values in back):
            raise TypeError(
                "the members of an ensemble must share one target transform; got "
                "transforms that differ (each is fitted to its own rows). Put "
                "TransformedTargetRegressor around the ensemble, not inside."
            )
        return cls(
            np.concatenate(_even([part.mean for part in parts])),
            np.concatenate(_even([part.variance for part in parts])),
            parts[0].flat,
            parts[0].transform,
        )

    @classmethod
    def side_by_side(cls, parts):
        """Independent predictives of several targets."""
        if any(part.transform is not None for part in parts):
            raise TypeError(
                "the targets of MultiOutputRegressor must have no transforms of their "
                "own. Put TransformedTargetRegressor around it, not inside."
            )
        maps = [part.maps or _UNCHANGED * part.mean.shape[-1] for part in parts]
        return cls(
            np.concatenate(_even([part.mean for part in parts]), axis=-1),
            np.concatenate(_even([part.variance for part in parts]), axis=-1),
            flat=False,
            maps=sum(maps, ()) if any(part.maps for part in parts) else None,
        )

    def behind(self, transform, *, flat: bool):
        """The predictive of y where the present target is ``transform(y)``."""
        if self.transform is not None:
            transform = make_pipeline(transform, self.transform)
        return replace(self, transform=transform, flat=flat)

    def scaled(self, factor):
        """All draws and their noise spread about the mean by ``factor`` (targets,)."""
        self._check_not_mapped()
        centre = self.mean.mean(0)
        return replace(
            self,
            mean=centre + factor * (self.mean - centre),
            variance=np.square(factor) * self.variance,
        )

    def mapped(self, maps):
        """With the levels of every target recalibrated."""
        self._check_not_mapped()
        return replace(self, maps=tuple(maps))

    def _check_not_mapped(self):
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration cannot be recalibrated again. Put one "
                "CalibratedUncertaintyRegressor around the estimator, not two."
            )

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.mean)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Standard deviations (eq. 6): {kind: (rows[, targets])}.

        A recalibration of the levels scales both parts alike.
        """
        means, variances = self._component_moments()
        epistemic, aleatoric = means.std(0), np.sqrt(variances.mean(0))
        total = np.hypot(epistemic, aleatoric)
        factor = 1.0 if self.maps is None else self._std_of_mapped() / total
        stds = {"total": total, "epistemic": epistemic, "aleatoric": aleatoric}
        return {kind: self._shaped(factor * stds[kind]) for kind in kinds}

    def quantile(self, level: float) -> np.ndarray:
        """(rows[, targets]); exact for a transform that is monotone per target."""
        return self._shaped(self._quantile(level))

    def interval(self, coverages, kind: str) -> np.ndarray:
        """(rows[, targets], coverages, 2)."""
        shape = self.mean.shape[1:]
        return self._shaped(intervals(self._quantile, shape, coverages, kind))

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
        noise = random.standard_normal((len(draws), *self.mean.shape[1:]))
        samples = self.mean[draws] + np.sqrt(self.variance[draws]) * noise
        if self.maps is not None:
            samples = np.stack([self._remapped(sample) for sample in samples])
        return self._shaped(np.moveaxis(self._back(samples), 0, -1))

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """The given draws without noise, (rows[, targets], samples)."""
        if self.maps is not None:
            raise TypeError(
                "an isotonic recalibration is of y, with its noise, and says nothing "
                "of the noise-free functions: take sample_y."
            )
        return self._shaped(np.moveaxis(self._back(self.mean[draws]), 0, -1))

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
            levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
            nodes = np.stack([self._quantile(level) for level in levels])
            weights = np.full(N_LEVELS, 1 / N_LEVELS)
            return weighted_sample_crps(y, nodes, weights).mean(-1)
        if self.transform is None:
            return gaussian_mixture_crps(y, self.mean, self.variance).mean(-1)
        nodes, weights = self._nodes()
        weights = np.repeat(weights / self.n_draws, self.n_draws)
        return weighted_sample_crps(
            y, nodes.reshape(-1, *nodes.shape[2:]), weights
        ).mean(-1)

    def standard(self, y: np.ndarray) -> np.ndarray:
        """y in the units of ``mean``, (rows, targets)."""
        return self._forward(self._columns(y))[0]

    def level(self, y: np.ndarray) -> np.ndarray:
        """Distribution function of ``standard(y)``, (rows, targets)."""
        return self._share(self.standard(y))

    def _columns(self, y) -> np.ndarray:
        """y as (rows, targets), float64, checked."""
        y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        n_targets = self.mean.shape[-1]
        if y.shape[1] != n_targets:
            raise ValueError(
                f"`y` must have the {n_targets} targets of the fit; got {y.shape[1]}."
            )
        if np.isnan(y).any():
            raise ValueError(f"`y` must not contain NaN; got {np.isnan(y).sum()}.")
        return y

    def _quantile(self, level) -> np.ndarray:
        """(rows, targets); level a float or (rows, targets)."""
        level = np.broadcast_to(level, self.mean.shape[1:])
        share = np.where(self._rising, level, 1 - level)
        return self._back(self._at_share(share))

    def _share(self, target):
        """Distribution function of the network's target; both (rows, targets)."""
        level = mixture_cdf(self.mean, self.variance, target)
        return level if self.maps is None else _each(self.maps, level)

    def _at_share(self, share):
        """Inverse of ``_share``."""
        if self.maps is not None:
            share = _each([one.inverse for one in self.maps], share)
            share = share.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        return mixture_quantile(self.mean, self.variance, share)

    def _remapped(self, target):
        """Where the recalibration moves values of the uncalibrated mixture."""
        return self._at_share(mixture_cdf(self.mean, self.variance, target))

    def _log_mixture(self, target, which) -> np.ndarray:
        """Log density of some targets under the uncalibrated mixture, (rows,)."""
        mean, variance = self.mean[..., which], self.variance[..., which]
        parts = gaussian_log_density(mean, variance, target[:, which])
        return logsumexp(parts, axis=0) - np.log(self.n_draws)

    def _log_mapped(self, target) -> np.ndarray:
        """Log density after recalibration, (rows,).

        Every margin is changed by itself and the copula is kept: log p(t(z)), with
        t(z) the value of the uncalibrated mixture that is moved to z, and the slopes
        dt / dz of the margins.
        """
        level = mixture_cdf(self.mean, self.variance, target)
        before = _each(self.maps, level)
        before = before.clip(np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        before = mixture_quantile(self.mean, self.variance, before)
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
            return self.mean, self.variance
        nodes, weights = self._nodes()
        mean = np.tensordot(weights, nodes, 1)
        return mean, np.tensordot(weights, np.square(nodes - mean), 1)

    def _nodes(self):
        """Gauss-Hermite quadrature of y: (nodes, draws, rows, targets), weights."""
        points, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
        spread = np.multiply.outer(points, np.sqrt(self.variance))
        return self._back(self.mean + spread), weights / weights.sum()

    @cached_property
    def _rising(self):
        """Whether y rises with the network's target, (rows, targets) or a bool."""
        if self.transform is None:
            return True
        centre, spread = self.mean.mean(0), np.sqrt(self.variance.mean(0))
        return self._back(centre + spread) >= self._back(centre - spread)

    def _back(self, values: np.ndarray) -> np.ndarray:
        """From the network's target to y; targets on the last axis."""
        if self.transform is None:
            return values
        flat = values.reshape(-1, values.shape[-1])
        return np.asarray(self.transform.inverse_transform(flat)).reshape(values.shape)

    def _forward(self, y: np.ndarray):
        """The target of y, and the log of the slope there, summed over targets."""
        if self.transform is None:
            return y, 0.0
        centre, spread = self.mean.mean(0), np.sqrt(self.variance.mean(0))
        width = np.abs(self._back(centre + spread) - self._back(centre - spread))
        step = 1e-6 * np.maximum(np.abs(y), 1e-3 * width)
        up, down = (np.asarray(self.transform.transform(y + s)) for s in (step, -step))
        slope = np.abs(up - down) / (2 * step)
        return np.asarray(self.transform.transform(y)), np.log(slope).sum(-1)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.flat else values


@dataclass(frozen=True)
class LabelMixture:
    """The predictive of a classification, all draws held.

    Parameters
    ----------
    probability : ndarray of shape (draws, rows, classes)
    classes : ndarray of shape (classes,)
    """

    probability: np.ndarray
    classes: np.ndarray

    kinds = CLASSIFICATION_KINDS

    @classmethod
    def pooled(cls, parts, classes):
        """The equal-weight mixture; a member may know only some of the classes."""
        widened = []
        for part in parts:
            full = np.zeros((*part.probability.shape[:2], len(classes)))
            full[..., np.searchsorted(classes, part.classes)] = part.probability
            widened.append(full)
        return cls(np.concatenate(_even(widened)), classes)

    def labelled(self, classes):
        """The same of labels, where the classes are numbers of these labels.

        Some meta-estimators hand the inner classifier numbers in place of labels.
        """
        return replace(self, classes=classes[self.classes])

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.probability)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Measures of eq. 7: {kind: (rows,)}."""
        uniform = np.random.default_rng(0).random(self.n_draws)
        return {
            kind: classification_uncertainty(self.probability, kind, uniform)
            for kind in kinds
        }

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of the given draws, (rows, classes, samples)."""
        return np.moveaxis(self.probability[draws], 0, -1)

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Labels of the given draws, (rows, samples)."""
        cumulative = self.probability[draws].cumsum(-1)
        cumulative /= cumulative[..., -1:]
        uniform = random.random((*cumulative.shape[1::-1], 1)).swapaxes(0, 1)
        return self.classes[(cumulative <= uniform).sum(-1)].T

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log of the mean probability of the labels y, (rows,)."""
        with np.errstate(divide="ignore"):
            return label_log_density(np.log(self.probability.mean(0)), self.classes, y)


def label_log_density(log_probability, classes, y) -> np.ndarray:
    """Entry of the label y in each row; minus infinity for unknown labels."""
    known = np.isin(y, classes)
    codes = np.searchsorted(classes, y[known])
    result = np.full(len(y), -np.inf)
    result[known] = log_probability[known, codes]
    return result


def _each(functions, values) -> np.ndarray:
    """One function per target."""
    columns = zip(functions, values.T, strict=True)
    return np.stack([function(column) for function, column in columns], axis=-1)


def _even(parts):
    """Repeat draws, so that all parts have as many (a point mass has one)."""
    n_draws = math.lcm(*(len(part) for part in parts))
    return [np.repeat(part, n_draws // len(part), axis=0) for part in parts]
