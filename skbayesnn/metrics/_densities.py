"""Scores of a Gaussian mixture's density."""

from typing import Any

import numpy as np
from scipy.special import logsumexp

from skbayesnn._distributions.components import gaussian_log_density
from skbayesnn._distributions.crps import gaussian_mixture_crps
from skbayesnn._runtime import default_settings
from skbayesnn.metrics._validation import drop_zero_weights, no_nan, weighted_mean


@default_settings
def mixture_log_density(
    y: Any,
    mean: Any,
    variance: Any,
    sample_weight: Any = None,
) -> float:
    """Mean log density of Gaussian mixtures: the logarithmic score.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    mean, variance : array-like of shape (n_draws, n_samples)
        Components of equal weight.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    log_density : float
        In nats, of a density per unit of y; larger is better.

    See Also
    --------
    skbayesnn.log_predictive_density : The score of a fitted model, per row.

    References
    ----------
    Good (1952), "Rational decisions", J. R. Stat. Soc. B 14. Gneiting & Raftery (2007),
    "Strictly proper scoring rules, prediction, and estimation", J. Am. Stat. Assoc.
    102, section 4.1.
    """
    weights, y, mean, variance = _mixture(y, mean, variance, sample_weight)
    density = logsumexp(gaussian_log_density(mean, variance, y), axis=0)
    return weighted_mean(density - np.log(len(mean)), weights)


@default_settings
def mixture_crps(
    y: Any,
    mean: Any,
    variance: Any,
    sample_weight: Any = None,
) -> float:
    """Mean continuous ranked probability score (CRPS) of Gaussian mixtures, exact.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    mean, variance : array-like of shape (n_draws, n_samples)
        Components of equal weight.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    crps : float
        In y's units; smaller is better.

    References
    ----------
    Grimit, Gneiting, Berrocal & Johnson (2006), "The continuous ranked probability
    score for circular variables and its application to mesoscale forecast ensemble
    verification", eq. 5.
    """
    weights, y, mean, variance = _mixture(y, mean, variance, sample_weight)
    return weighted_mean(gaussian_mixture_crps(y, mean, variance), weights)


def _mixture(y, mean, variance, sample_weight):
    """Check and return weights (rows,), y (rows, 1), moments (draws, rows, 1).

    Rows of weight zero are left out.
    """
    y, mean, variance = (np.asarray(v, dtype=np.float64) for v in (y, mean, variance))
    if y.ndim != 1 or mean.shape[1:] != y.shape or variance.shape != mean.shape:
        raise ValueError(
            "`mean` and `variance` must be of shape (n_draws, n_samples) for y of "
            f"shape (n_samples,); got {mean.shape}, {variance.shape} and {y.shape}."
        )
    if len(mean) == 0:
        raise ValueError("`mean` and `variance` must have at least one draw; got none.")
    weights, y, mean, variance = drop_zero_weights(sample_weight, y, mean.T, variance.T)
    for name, values in (("y", y), ("mean", mean), ("variance", variance)):
        no_nan(name, values)
    if variance.min() <= 0:
        raise ValueError(f"`variance` must be positive; got {variance.min()}.")
    return weights, y[:, None], mean.T[..., None], variance.T[..., None]
