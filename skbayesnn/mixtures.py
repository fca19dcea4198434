"""The predictive of a few rows as a mixture, all draws held.

The estimators stream over draws and rows; where a meta-estimator stands between
(ensembles, target transforms), its predictive is put together from these.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr
from sklearn.pipeline import make_pipeline

from skbayesnn.uncertainty import (
    CLASSIFICATION_KINDS,
    HALF_LOG_2PI,
    REGRESSION_KINDS,
    classification_uncertainty,
    gaussian_log_density,
    mixture_quantile,
)

# Gauss-Hermite nodes per component, for moments behind a target transform.
N_NODES = 15


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
    """

    mean: np.ndarray
    variance: np.ndarray
    flat: bool
    transform: Any = None

    kinds = REGRESSION_KINDS

    @classmethod
    def pooled(cls, parts, classes=None):
        """The equal-weight mixture of mixtures."""
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
        return cls(
            np.concatenate(_even([part.mean for part in parts]), axis=-1),
            np.concatenate(_even([part.variance for part in parts]), axis=-1),
            flat=False,
        )

    def behind(self, transform, *, flat: bool):
        """The predictive of y where the present target is ``transform(y)``."""
        if self.transform is not None:
            transform = make_pipeline(transform, self.transform)
        return replace(self, transform=transform, flat=flat)

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.mean)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Standard deviations (eq. 6): {kind: (rows[, targets])}."""
        means, variances = self._component_moments()
        epistemic, aleatoric = means.std(0), np.sqrt(variances.mean(0))
        stds = {
            "total": np.hypot(epistemic, aleatoric),
            "epistemic": epistemic,
            "aleatoric": aleatoric,
        }
        return {kind: self._shaped(stds[kind]) for kind in kinds}

    def quantile(self, level: float) -> np.ndarray:
        """(rows[, targets]); exact for a transform that is monotone per target."""
        low, high = (
            self._back(mixture_quantile(self.mean, self.variance, q))
            for q in (level, 1 - level)
        )
        rising = self._back(mixture_quantile(self.mean, self.variance, 0.75))
        rising = rising >= self._back(mixture_quantile(self.mean, self.variance, 0.25))
        return self._shaped(np.where(rising, low, high))

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """y of the given draws with noise, (rows[, targets], samples)."""
        noise = random.standard_normal((*self.mean.shape[1:], len(draws)))
        mean, variance = (
            np.moveaxis(values[draws], 0, -1) for values in (self.mean, self.variance)
        )
        samples = np.moveaxis(mean + np.sqrt(variance) * noise, 1, -1)
        return self._shaped(np.moveaxis(self._back(samples), -1, 1))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Eq. 8, (rows,), nats, of y in its own units; y (rows[, targets])."""
        y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            forward, log_slope = self._forward(y)
        density = gaussian_log_density(self.mean, self.variance, forward)
        density = logsumexp(density, axis=0) - np.log(self.n_draws) + log_slope
        # y outside of the transform's domain (the log of a negative number) is NaN.
        outside = np.isnan(density) & np.isfinite(y).all(-1)
        return np.where(outside, -np.inf, density)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, mean over targets; (rows,)."""
        y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        if self.transform is None:
            return gaussian_mixture_crps(y, self.mean, self.variance).mean(-1)
        nodes, weights = self._nodes()
        weights = np.repeat(weights / self.n_draws, self.n_draws)
        return weighted_sample_crps(
            y, nodes.reshape(-1, *nodes.shape[2:]), weights
        ).mean(-1)

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


def _even(parts):
    """Repeat draws, so that all parts have as many (a point mass has one)."""
    n_draws = math.lcm(*(len(part) for part in parts))
    return [np.repeat(part, n_draws // len(part), axis=0) for part in parts]


def gaussian_mixture_crps(y, mean, variance) -> np.ndarray:
    """CRPS of an equal-weight Gaussian mixture, exact; (rows, targets).

    Grimit et al. 2006, eq. 5: mean_i A(y - mu_i, s_i^2) - mean_ij A(mu_i - mu_j,
    s_i^2 + s_j^2) / 2, with A the mean distance of a normal variable from zero.

    y : (rows, targets); mean, variance : (draws, rows, targets)
    """
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    to_y = _mean_distance(y - mean, variance).mean(0)
    apart = np.zeros_like(to_y)
    for centre, spread in zip(mean, variance, strict=True):
        apart += _mean_distance(mean - centre, variance + spread).mean(0)
    return to_y - 0.5 * apart / len(mean)


def _mean_distance(mean, variance):
    """E |Z|, Z ~ N(mean, variance)."""
    std = np.sqrt(variance)
    z = mean / std
    density = np.exp(-0.5 * np.square(z) - HALF_LOG_2PI)
    return mean * (2 * ndtr(z) - 1) + 2 * std * density


def weighted_sample_crps(y, samples, weights) -> np.ndarray:
    """CRPS of a discrete distribution, (rows, targets).

    y : (rows, targets); samples : (points, rows, targets); weights : (points,)
    """
    order = np.argsort(samples, axis=0)
    ordered = np.take_along_axis(samples, order, axis=0)
    weight = weights[order]
    before = weight.cumsum(0) - 0.5 * weight
    spread = 2 * (weight * ordered * (2 * before - 1)).sum(0)
    return (weight * np.abs(ordered - y)).sum(0) - 0.5 * spread
