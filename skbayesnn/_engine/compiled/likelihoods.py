"""Compiled negative log-likelihoods and their gradients; torch's are in `_likelihoods`.

A likelihood is a function of (options, params, outputs, batch, grads) that writes the
nll of every row and replaces the outputs by the gradient. The loop calls it by its
address. The arguments are

- options : ``Options``;
- params : of the likelihood, one after the other, in the order of the torch class;
- outputs : (rows, outputs) of the network, replaced by their gradient;
- batch : ``Batch``;
- grads : gradients of ``params``; the function adds to them.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import types

from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._engine.compiled.numerics import (
    FunctionKind,
    compiled,
    exp,
    fill,
    log,
    sigmoid,
    softplus,
    tanh,
)
from skbayesnn._likelihoods.base import MAX_LOG_TAU, MIN_LOG_TAU
from skbayesnn._likelihoods.gaussian import (
    LOG_VARIANCE_RANGE,
    MAX_LOG_PRECISION,
    SHARPNESS,
    SOFTPLUS_LINEAR_FROM,
)
from skbayesnn._likelihoods.poisson import LOG_DISPERSION_BOUNDS, LOG_RATE_BOUNDS
from skbayesnn._likelihoods.student_t import DF_BOUNDS

_MIN_RATE, _MAX_RATE = LOG_RATE_BOUNDS
_MIN_DISPERSION, _MAX_DISPERSION = LOG_DISPERSION_BOUNDS
_MIN_LOG_DF, _MAX_LOG_DF = math.log(DF_BOUNDS[0]), math.log(DF_BOUNDS[1])


class Options(NamedTuple):
    """Options of a likelihood.

    Parameters
    ----------
    learned : bool
        Whether tau is learned.
    given_df : float
        Given degrees of freedom of Student's t, or 0.
    row_noise, has_point : bool
        Of intervals: whether the noise depends on the row, and whether y has a point
        mass.
    """

    learned: bool
    given_df: float
    row_noise: bool
    has_point: bool


class Batch(NamedTuple):
    """Rows of a batch.

    Parameters
    ----------
    y : ndarray of shape (rows, targets); (rows, 3 targets) of intervals
    labels : ndarray of shape (rows,), int64
        Class indices; or empty.
    factors : ndarray of shape (rows,)
        Factors of the gradient.
    y_shift : ndarray of shape (rows, targets)
        Perturbation of y in units of its noise std; or (0, targets).
    nll : ndarray of shape (rows,)
        Written.
    """

    y: np.ndarray
    labels: np.ndarray
    factors: np.ndarray
    y_shift: np.ndarray
    nll: np.ndarray


@compiled
def _log_tau(value, learned):
    """Log precision in the training, and whether it is within its bounds."""
    if not learned:
        return value, False
    bounded = min(max(value, MIN_LOG_TAU), MAX_LOG_TAU)
    return bounded, bounded == value


@compiled
def _gaussian(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    y, factors, y_shift, nll = batch.y, batch.factors, batch.y_shift, batch.nll
    half, one = dtype(0.5), dtype(1)
    fill(nll, dtype(outputs.shape[1] * HALF_LOG_2PI))
    for t in range(outputs.shape[1]):
        log_tau, within = _log_tau(params[t], options.learned)
        tau, root = dtype(math.exp(log_tau)), dtype(math.exp(0.5 * log_tau))
        constant = dtype(-0.5 * log_tau)
        total = 0.0
        for i in range(outputs.shape[0]):
            residual = outputs[i, t] - y[i, t]
            scaled = tau * residual
            square = scaled * residual
            nll[i] += half * square + constant
            total += (square - one) * factors[i]
            outputs[i, t] = scaled * factors[i]
            if y_shift.size:
                outputs[i, t] -= root * y_shift[i, t] * factors[i]
        if within:
            grads[t] += dtype(0.5 * total)


@compiled
def _log_precision(raw, level, lowest, gain):
    """Log precision of a row; its derivatives in ``level``, and in the output by that.

    See ``Heteroscedastic.split``.
    """
    dtype = type(raw)
    one, sharpness = dtype(1), dtype(SHARPNESS)
    span, largest = dtype(LOG_VARIANCE_RANGE), dtype(MAX_LOG_PRECISION)
    ratio = tanh(raw / span)
    unclipped = level - gain * span * ratio
    clipped = min(unclipped, largest)
    # smooth_max of `_likelihoods.gaussian`.
    excess = sharpness * (clipped - lowest)
    is_linear = excess > dtype(SOFTPLUS_LINEAR_FROM)
    smooth = clipped - lowest if is_linear else softplus(excess) / sharpness
    slope = one if is_linear else sigmoid(excess)
    slope = slope if unclipped <= largest else dtype(0)
    return lowest + smooth, slope, -gain * (one - ratio * ratio)


@compiled
def _heteroscedastic(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    y, factors, y_shift, nll = batch.y, batch.factors, batch.y_shift, batch.nll
    n_targets = y.shape[1]
    half, one, gain = dtype(0.5), dtype(1), params[n_targets]
    fill(nll, dtype(n_targets * HALF_LOG_2PI))
    for t in range(n_targets):
        value, within = _log_tau(params[t], options.learned)
        level, lowest = dtype(value), -params[n_targets + 1 + t]
        raw_log_variances = outputs[:, n_targets + t]
        total = 0.0
        for i in range(outputs.shape[0]):
            log_tau, slope, to_raw = _log_precision(
                raw_log_variances[i], level, lowest, gain
            )
            residual = outputs[i, t] - y[i, t]
            tau = exp(log_tau)
            square = tau * residual * residual
            nll[i] += half * (square - log_tau)
            to_level = half * (square - one) * slope * factors[i]
            total += to_level
            outputs[i, t] = tau * residual * factors[i]
            if y_shift.size:
                outputs[i, t] -= exp(half * log_tau) * y_shift[i, t] * factors[i]
            raw_log_variances[i] = to_raw * to_level
        if within:
            grads[t] += dtype(total)


@compiled
def _log_ndtr(x):
    """Log of the standard normal distribution function."""
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    z = 1.0 / (x * x)
    series = z * (z * (3.0 - z * (15.0 - z * (105.0 - z * 945.0))) - 1.0)
    return -0.5 * x * x - math.log(-x) - HALF_LOG_2PI + math.log1p(series)


@compiled
def _interval(below, above):
    """log P(below < z <= above) of a normal z, and both densities divided by P."""
    start, end = _log_ndtr(below), _log_ndtr(above)
    if below > -above:  # mirrored to the lower tail
        start, end = _log_ndtr(-above), _log_ndtr(-below)
    log_p = end + math.log(-math.expm1(min(start - end, -1e-14)))
    at_below = math.exp(-0.5 * below * below - HALF_LOG_2PI - log_p)
    at_above = math.exp(-0.5 * above * above - HALF_LOG_2PI - log_p)
    return log_p, at_below, at_above


@compiled
def _intervals(options, params, outputs, batch, grads):
    """See ``_likelihoods.intervals``; in double precision."""
    dtype = outputs.dtype.type
    y, factors, nll = batch.y, batch.factors, batch.nll
    n_targets = y.shape[1] // 3
    n_latent = 2 * n_targets if options.row_noise else n_targets
    fill(nll, dtype(0))
    for t in range(n_targets):
        value, within = _log_tau(params[t], options.learned)
        level, total = dtype(value), 0.0
        for i in range(outputs.shape[0]):
            log_tau, slope, to_raw = level, dtype(1), dtype(0)
            if options.row_noise:
                log_tau, slope, to_raw = _log_precision(
                    outputs[i, n_targets + t],
                    level,
                    -params[n_targets + 1 + t],
                    params[n_targets],
                )
            root = math.exp(0.5 * log_tau)
            mean = np.float64(outputs[i, t])
            below = (np.float64(y[i, t]) - mean) * root
            above = (np.float64(y[i, n_targets + t]) - mean) * root
            is_point = y[i, 2 * n_targets + t] > 0
            # Loss, and its derivatives in the mean and in the log precision.
            loss, to_mean, to_log_tau = np.inf, 0.0, 0.0
            if y[i, t] < y[i, n_targets + t]:
                log_p, at_below, at_above = _interval(below, above)
                loss, to_mean = -log_p, root * (at_above - at_below)
                to_log_tau = -0.5 * (above * at_above - below * at_below)
            elif not is_point:
                loss = 0.5 * (below * below - log_tau) + HALF_LOG_2PI
                to_mean, to_log_tau = -root * below, 0.5 * (below * below - 1.0)
            if options.has_point:
                logit = np.float64(outputs[i, n_latent + t])
                probability = 1.0 / (1.0 + math.exp(-logit))
                log_rest = -max(logit, 0.0) - math.log1p(math.exp(-abs(logit)))
                loss -= log_rest
                rest = 1.0  # posterior probability that the row is not the point mass
                if is_point:
                    log_point = logit + log_rest
                    rest = 1.0 / (1.0 + math.exp(log_point + loss))
                    loss = (
                        -log_point + math.log1p(-rest)
                        if rest < 0.5
                        else (loss + math.log(rest))
                    )
                to_mean, to_log_tau = rest * to_mean, rest * to_log_tau
                to_logit = probability - (1.0 - rest)
                outputs[i, n_latent + t] = dtype(to_logit) * factors[i]
            nll[i] += dtype(loss)
            to_level = dtype(to_log_tau) * slope * factors[i]
            total += to_level
            outputs[i, t] = dtype(to_mean) * factors[i]
            if options.row_noise:
                outputs[i, n_targets + t] = to_raw * to_level
        if within:
            grads[t] += dtype(total)


@compiled
def digamma(x):
    """Derivative of log Gamma, x > 0: recurrence, then the asymptotic series."""
    value = 0.0
    while x < 10.0:
        value -= 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    return value + math.log(x) - 0.5 / x - series


@compiled
def _student_t(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    y, factors, nll = batch.y, batch.factors, batch.nll
    n_targets = outputs.shape[1]
    fill(nll, dtype(0))
    for t in range(n_targets):
        log_tau, tau_within = _log_tau(np.float64(params[t]), options.learned)
        df, df_within = options.given_df, False
        if options.given_df <= 0:
            log_df = np.float64(params[n_targets + t])
            bounded = min(max(log_df, _MIN_LOG_DF), _MAX_LOG_DF)
            df, df_within = math.exp(bounded), bounded == log_df
        constant = math.lgamma(0.5 * df) - math.lgamma(0.5 * (df + 1))
        constant += 0.5 * math.log(math.pi * (df - 2)) - 0.5 * log_tau
        scale = math.exp(log_tau) / (df - 2)
        n, over_tau, over_df = 0.0, 0.0, 0.0
        for i in range(outputs.shape[0]):
            residual = np.float64(outputs[i, t] - y[i, t])
            square = scale * residual * residual
            log_square, weight = math.log1p(square), square / (1 + square)
            nll[i] += dtype(constant + 0.5 * (df + 1) * log_square)
            n += factors[i]
            over_tau += factors[i] * (0.5 * (df + 1) * weight - 0.5)
            over_df += factors[i] * 0.5 * (log_square - (df + 1) / (df - 2) * weight)
            outputs[i, t] = (
                dtype((df + 1) * scale * residual / (1 + square)) * factors[i]
            )
        if tau_within:
            grads[t] += dtype(over_tau)
        if df_within:
            slope = 0.5 * (digamma(0.5 * df) - digamma(0.5 * (df + 1)) + 1 / (df - 2))
            grads[n_targets + t] += dtype(df * (over_df + n * slope))


@compiled
def _poisson(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    y, factors, nll = batch.y, batch.factors, batch.nll
    lowest, highest = dtype(_MIN_RATE), dtype(_MAX_RATE)
    tau = dtype(math.exp(params[0]))
    fill(nll, dtype(0))
    for t in range(outputs.shape[1]):
        offset = params[1 + t]
        for i in range(outputs.shape[0]):
            value = outputs[i, t] + offset
            log_rate = min(max(value, lowest), highest)
            rate = exp(log_rate)
            constant = dtype(math.lgamma(np.float64(y[i, t]) + 1.0))
            nll[i] += tau * (rate - y[i, t] * log_rate + constant)
            slope = tau * (rate - y[i, t]) * factors[i]
            outputs[i, t] = slope if value == log_rate else dtype(0)


@compiled
def _negative_binomial(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    y, factors, nll = batch.y, batch.factors, batch.nll
    n_targets = outputs.shape[1]
    lowest, highest = dtype(_MIN_RATE), dtype(_MAX_RATE)
    tau = math.exp(np.float64(params[0]))
    fill(nll, dtype(0))
    for t in range(n_targets):
        given = np.float64(params[1 + n_targets + t])
        log_dispersion = min(max(given, _MIN_DISPERSION), _MAX_DISPERSION)
        size = math.exp(-log_dispersion)
        of_size, slope_of_size, total = math.lgamma(size), digamma(size), 0.0
        for i in range(outputs.shape[0]):
            value = outputs[i, t] + params[1 + t]
            log_rate = min(max(value, lowest), highest)
            count, excess = np.float64(y[i, t]), np.float64(log_rate) + log_dispersion
            smaller = math.exp(-abs(excess))
            log_sum = max(excess, 0.0) + math.log1p(smaller)
            share = (1.0 if excess > 0 else smaller) / (1 + smaller)
            constant = of_size + math.lgamma(count + 1) - math.lgamma(count + size)
            nll[i] += dtype(
                tau * (constant - count * excess + (count + size) * log_sum)
            )
            slope = (count + size) * share - count
            change = slope_of_size - digamma(count + size) + log_sum
            total += factors[i] * (slope - size * change)
            outputs[i, t] = (
                dtype(tau * slope) * factors[i] if value == log_rate else dtype(0)
            )
        if given == log_dispersion:
            grads[1 + n_targets + t] += dtype(tau * total)


@compiled
def _categorical(options, params, outputs, batch, grads):
    dtype = outputs.dtype.type
    labels, factors, nll = batch.labels, batch.factors, batch.nll
    tau = dtype(math.exp(params[0]))
    for i in range(outputs.shape[0]):
        row, label = outputs[i], labels[i]
        highest = row[0]
        for k in range(1, row.size):
            highest = max(highest, row[k])
        total = dtype(0)
        at_label = row[label] - highest
        for k in range(row.size):
            row[k] = exp(row[k] - highest)
            total += row[k]
        nll[i] = tau * (log(total) - at_label)
        scale = tau * factors[i]
        for k in range(row.size):
            row[k] *= scale / total
        row[label] -= scale


FUNCTIONS = {
    "gaussian": _gaussian,
    "heteroscedastic": _heteroscedastic,
    "interval_gaussian": _intervals,
    "interval_heteroscedastic": _intervals,
    "student_t": _student_t,
    "poisson": _poisson,
    "negative_binomial": _negative_binomial,
    "categorical": _categorical,
}


def _signature(real):
    """Types of the arguments, for a type of floats."""
    vector, matrix = real[::1], real[:, ::1]
    flag = types.boolean
    options = types.NamedTuple((flag, types.float64, flag, flag), Options)
    arrays = matrix, types.int64[::1], vector, matrix, vector
    batch = types.NamedTuple(arrays, Batch)
    return types.void(options, vector, matrix, batch, vector)


KIND = FunctionKind(_signature)
nll_and_gradient = KIND.call
