"""One Triton program trains one perceptron: all steps of some epochs in one launch.

It does what `_engine.step` does with torch, in the same order and with the same random
numbers. A captured step of torch has thirty kernels, and each reads and writes the
activations of all networks in global memory. Here, activations and their gradients stay
in registers; parameters, moments and gradients of a network stay in the caches of its
multiprocessor.

A batch is split into tiles of rows, and the inputs of the network into tiles of
columns. All tiles are padded to powers of two and masked.
"""

import math
import os

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from skbayesnn._distributions.crps import HALF_LOG_2PI
from skbayesnn._engine.random import STEPS_OF_16_BITS
from skbayesnn._engine.training_random import (
    GOLDEN,
    MULTIPLIER_1,
    MULTIPLIER_2,
    SHIFT_1,
    SHIFT_2,
    SHIFT_3,
    uniform_bits,
)
from skbayesnn._families.weight_noise import MIN_VARIANCE
from skbayesnn._likelihoods.base import MAX_LOG_TAU, MIN_LOG_TAU
from skbayesnn._likelihoods.gaussian import (
    LOG_VARIANCE_RANGE,
    MAX_LOG_PRECISION,
    SHARPNESS,
    SOFTPLUS_LINEAR_FROM,
)

# Whether Triton runs kernels on the CPU, for tests.
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# Codes of what is compiled for.
FAMILIES = {
    "point": 0,
    "bernoulli": 1,
    "gaussian": 2,
    "mean_field": 3,
    "fixed_width": 4,
}
ACTIVATIONS = {
    "relu": 0, "tanh": 1, "logistic": 2, "erf": 3, "silu": 4, "identity": 5,
}  # fmt: skip
LIKELIHOODS = {"gaussian": 0, "heteroscedastic": 1, "categorical": 2}

_BERNOULLI = tl.constexpr(FAMILIES["bernoulli"])
_GAUSSIAN = tl.constexpr(FAMILIES["gaussian"])
_MEAN_FIELD = tl.constexpr(FAMILIES["mean_field"])
_FIXED_WIDTH = tl.constexpr(FAMILIES["fixed_width"])
_RELU = tl.constexpr(ACTIVATIONS["relu"])
_TANH = tl.constexpr(ACTIVATIONS["tanh"])
_LOGISTIC = tl.constexpr(ACTIVATIONS["logistic"])
_ERF = tl.constexpr(ACTIVATIONS["erf"])
_SILU = tl.constexpr(ACTIVATIONS["silu"])
_GAUSSIAN_Y = tl.constexpr(LIKELIHOODS["gaussian"])
_HETEROSCEDASTIC = tl.constexpr(LIKELIHOODS["heteroscedastic"])
_MIN_VARIANCE = tl.constexpr(MIN_VARIANCE)
_MIN_LOG_TAU, _MAX_LOG_TAU = tl.constexpr(MIN_LOG_TAU), tl.constexpr(MAX_LOG_TAU)
_RANGE = tl.constexpr(LOG_VARIANCE_RANGE)
_MAX_LOG_PRECISION = tl.constexpr(MAX_LOG_PRECISION)
_HALF_LOG_2PI = tl.constexpr(HALF_LOG_2PI)
_TWO_PI = tl.constexpr(2 * math.pi)
_GOLDEN = tl.constexpr(GOLDEN)
_MULTIPLIER_1 = tl.constexpr(MULTIPLIER_1)
_MULTIPLIER_2 = tl.constexpr(MULTIPLIER_2)
_SHIFT_1, _SHIFT_2 = tl.constexpr(SHIFT_1), tl.constexpr(SHIFT_2)
_SHIFT_3 = tl.constexpr(SHIFT_3)
# Bits of a word that a uniform number does not need, and distance of two numbers.
_SPARE_BITS = tl.constexpr(64 - uniform_bits(torch.float32))
_SPACING = tl.constexpr(2.0 ** -uniform_bits(torch.float32))
# Largest 16-bit value, and its highest bit.
_MASK_16, _HIGHEST_16 = (
    tl.constexpr(STEPS_OF_16_BITS - 1),
    tl.constexpr(STEPS_OF_16_BITS // 2),
)
_SHARPNESS = tl.constexpr(SHARPNESS)
_SOFTPLUS_LINEAR_FROM = tl.constexpr(SOFTPLUS_LINEAR_FROM)
_TWO_OVER_ROOT_PI = tl.constexpr(2 / math.sqrt(math.pi))

# Columns of the table of starts: of the four parameters of a map, in the vectors.
MEAN, BIAS, RHO, BIAS_RHO = range(4)


# ---- random numbers, as in `_engine.training_random`


@triton.jit
def _finalise(word):
    word = (word ^ (word >> _SHIFT_1)) * _MULTIPLIER_1
    word = (word ^ (word >> _SHIFT_2)) * _MULTIPLIER_2
    return word ^ (word >> _SHIFT_3)


@triton.jit
def _words(state, positions):
    """Words at ``positions`` (from 0) of a sequence, uint64."""
    return _finalise(state + _GOLDEN * (positions + 1).to(tl.uint64))


@triton.jit
def _uniform(word):
    """Uniform numbers in [0, 1) in single precision."""
    return (word >> _SPARE_BITS).to(tl.int32).to(tl.float32) * _SPACING


@triton.jit
def _normal(state, done, index):
    """Standard normal numbers [Box & Muller 1958]; a pair has two words."""
    first = done + (index & -2)
    radius = tl.sqrt(-2.0 * tl.log(1.0 - _uniform(_words(state, first))))
    angle = _uniform(_words(state, first + 1)) * _TWO_PI
    return radius * tl.where((index & 1) == 0, tl.cos(angle), tl.sin(angle))


@triton.jit
def _factors(state, done, index, keep, n_dropped, FAMILY: tl.constexpr):
    """Random factors of the inputs of a map.

    index : positions in (rows, inputs)
    n_dropped : of the 65,536 values of 16 bits
    """
    if FAMILY == _BERNOULLI:
        word = _words(state, done + index // 4)
        bits = (word >> (16 * (index % 4)).to(tl.uint64)).to(tl.int32) & _MASK_16
        return ((bits ^ _HIGHEST_16) >= n_dropped).to(tl.float32)
    return keep + tl.sqrt(keep * (1.0 - keep)) * _normal(state, done, index)


@triton.jit
def n_words(n_rows, n_inputs, n_outputs, FAMILY: tl.constexpr):
    """Number of words that a map uses in a step."""
    n, n_out = n_rows * n_inputs, n_rows * n_outputs
    if FAMILY == _BERNOULLI:
        return (n + 3) // 4
    if FAMILY == _GAUSSIAN:
        return n + n % 2
    if FAMILY == _MEAN_FIELD or FAMILY == _FIXED_WIDTH:
        return n_out + n_out % 2
    return n * 0


# ---- elementary functions


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _softplus(x):
    # log(1 + u) = log(1 + u) u / ((1 + u) - 1) with the rounded 1 + u [Kahan].
    u = tl.exp(-tl.abs(x))
    v = 1.0 + u
    d = v - 1.0
    value = tl.where(d > 0.0, tl.log(v) * u / tl.where(d > 0.0, d, 1.0), u)
    return tl.maximum(x, 0.0) + value


@triton.jit
def _tanh(x):
    u = tl.exp(-2.0 * tl.abs(x))
    value = (1.0 - u) / (1.0 + u)
    value = tl.where(x < 0.0, -value, value)
    return tl.where(tl.abs(x) < 0.02, x - x * x * x * 0.3333333333, value)


@triton.jit
def _activation(z, ACTIVATION: tl.constexpr):
    """Activations and their derivatives."""
    if ACTIVATION == _RELU:
        return tl.maximum(z, 0.0), (z > 0.0).to(tl.float32)
    if ACTIVATION == _TANH:
        h = _tanh(z)
        return h, 1.0 - h * h
    if ACTIVATION == _LOGISTIC:
        h = _sigmoid(z)
        return h, h * (1.0 - h)
    if ACTIVATION == _ERF:
        return tl.erf(z), _TWO_OVER_ROOT_PI * tl.exp(-z * z)
    if ACTIVATION == _SILU:
        share = _sigmoid(z)
        return z * share, share * (1.0 + z * (1.0 - share))
    return z, z * 0.0 + 1.0


# ---- one map


@triton.jit
def _place(STARTS, e, k, size):
    """Start of parameter k of member e in the vectors."""
    return tl.load(STARTS + k) + e.to(tl.int64) * size


@triton.jit
def _tile(P, start, i, j, n_in, n_out):
    """Weights (inputs i, outputs j), zero beyond the sizes."""
    inside = (i[:, None] < n_in) & (j[None, :] < n_out)
    return tl.load(P + start + i[:, None] * n_out + j[None, :], mask=inside, other=0.0)


@triton.jit
def _add_tile(G, start, i, j, n_in, n_out, value, first_row):
    """Add to a gradient (inputs i, outputs j); the first tile of rows replaces it."""
    inside = (i[:, None] < n_in) & (j[None, :] < n_out)
    at = G + start + i[:, None] * n_out + j[None, :]
    is_later = (j * 0 + first_row > 0)[None, :]
    value += tl.load(at, mask=inside & is_later, other=0.0)
    tl.store(at, value, mask=inside)


@triton.jit
def _add_row(G, start, j, n_out, value, first_row):
    inside = j < n_out
    is_later = j * 0 + first_row > 0
    value += tl.load(G + start + j, mask=inside & is_later, other=0.0)
    tl.store(G + start + j, value, mask=inside)


@triton.jit
def _variances(P, start, i, j, n_in, n_out):
    """Variances softplus(rho)^2 of the weights, zero beyond the sizes."""
    inside = (i[:, None] < n_in) & (j[None, :] < n_out)
    rho = tl.load(P + start + i[:, None] * n_out + j[None, :], mask=inside, other=0.0)
    sigma = _softplus(rho)
    return tl.where(inside, sigma * sigma, 0.0)


@triton.jit
def _add_rho_tile(P, G, start, i, j, n_in, n_out, grad_variance, first_row):
    """Add the gradient of rho, from the gradient of the variances."""
    inside = (i[:, None] < n_in) & (j[None, :] < n_out)
    at = start + i[:, None] * n_out + j[None, :]
    rho = tl.load(P + at, mask=inside, other=0.0)
    value = 2.0 * _softplus(rho) * _sigmoid(rho) * grad_variance
    is_later = (j * 0 + first_row > 0)[None, :]
    value += tl.load(G + at, mask=inside & is_later, other=0.0)
    tl.store(G + at, value, mask=inside)


@triton.jit
def _outputs(P, STARTS, e, k, z, variance, state, done, r, j, n_in, n_out,
             FAMILY: tl.constexpr):  # fmt: skip
    """Add bias and sample; return outputs and what the gradient of the variances needs.

    z, variance : products of the inputs with the moments of the weights
    """
    bias_at = _place(STARTS, e, 4 * k + 1, n_out)
    z += tl.load(P + bias_at + j, mask=j < n_out, other=0.0)[None, :]
    ratio = z
    if FAMILY == _MEAN_FIELD or FAMILY == _FIXED_WIDTH:
        rho = tl.load(
            P + _place(STARTS, e, 4 * k + 3, n_out) + j, mask=j < n_out, other=0.0
        )
        sigma = _softplus(rho)
        std = tl.sqrt(variance + (sigma * sigma)[None, :] + _MIN_VARIANCE)
        normal = _normal(state, done, r[:, None] * n_out + j[None, :])
        z += std * normal
        ratio = normal / std
    return z, ratio


@triton.jit
def _hidden_map(P, STARTS, e, k, h, slope, state, done, keep, n_dropped, r, i, j, n_in,
                n_out, FAMILY: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """A map of activations h; return outputs, noisy h and slope, and the ratio."""
    if FAMILY == _BERNOULLI or FAMILY == _GAUSSIAN:
        index = r[:, None] * n_in + i[None, :]
        s = _factors(state, done, index, keep, n_dropped, FAMILY)
        h *= s
        slope *= s
    mean = _tile(P, _place(STARTS, e, 4 * k, n_in * n_out), i, j, n_in, n_out)
    z = tl.dot(h, mean, input_precision=PRECISION)
    variance = z
    if FAMILY == _MEAN_FIELD or FAMILY == _FIXED_WIDTH:
        at = _place(STARTS, e, 4 * k + 2, n_in * n_out)
        weight_variance = _variances(P, at, i, j, n_in, n_out)
        variance = tl.dot(h * h, weight_variance, input_precision=PRECISION)
    z, ratio = _outputs(
        P, STARTS, e, k, z, variance, state, done, r, j, n_in, n_out, FAMILY
    )
    return z, h, slope, ratio


@triton.jit
def _bias_back(P, G, STARTS, e, k, g, half, j, n_out, first_row, FAMILY: tl.constexpr):
    """Gradients of bias and bias_rho; ``half`` is the gradient of the variances."""
    at = _place(STARTS, e, 4 * k + 1, n_out)
    _add_row(G, at, j, n_out, tl.sum(g, 0), first_row)
    if FAMILY == _MEAN_FIELD:
        at = _place(STARTS, e, 4 * k + 3, n_out)
        rho = tl.load(P + at + j, mask=j < n_out, other=0.0)
        value = 2.0 * _softplus(rho) * _sigmoid(rho) * tl.sum(half, 0)
        _add_row(G, at, j, n_out, value, first_row)


@triton.jit
def _weights_back(P, G, STARTS, e, k, h, g, half, i, j, n_in, n_out, first_row,
                  FAMILY: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Gradients of the means and of rho, for noisy inputs h."""
    grad = tl.dot(tl.trans(h), g, input_precision=PRECISION)
    at = _place(STARTS, e, 4 * k, n_in * n_out)
    _add_tile(G, at, i, j, n_in, n_out, grad, first_row)
    if FAMILY == _MEAN_FIELD:
        grad = tl.dot(tl.trans(h * h), half, input_precision=PRECISION)
        at = _place(STARTS, e, 4 * k + 2, n_in * n_out)
        _add_rho_tile(P, G, at, i, j, n_in, n_out, grad, first_row)


@triton.jit
def _hidden_map_back(P, G, STARTS, e, k, h, slope, ratio, g, i, j, n_in, n_out,
                     first_row, FAMILY: tl.constexpr,
                     PRECISION: tl.constexpr):  # fmt: skip
    """Gradients of a map; return the gradient of the pre-activations of its inputs."""
    half = 0.5 * g * ratio
    _bias_back(P, G, STARTS, e, k, g, half, j, n_out, first_row, FAMILY)
    _weights_back(
        P, G, STARTS, e, k, h, g, half, i, j, n_in, n_out, first_row, FAMILY, PRECISION
    )
    mean = _tile(P, _place(STARTS, e, 4 * k, n_in * n_out), i, j, n_in, n_out)
    grad_h = tl.dot(g, tl.trans(mean), input_precision=PRECISION)
    if FAMILY == _MEAN_FIELD or FAMILY == _FIXED_WIDTH:
        at = _place(STARTS, e, 4 * k + 2, n_in * n_out)
        variance = _variances(P, at, i, j, n_in, n_out)
        grad_h += 2.0 * h * tl.dot(half, tl.trans(variance), input_precision=PRECISION)
    return grad_h * slope


# ---- the inputs of the network


@triton.jit
def _inputs(X, X_AFFINE, row, r, c, n_in, state, keep, n_dropped, is_row,
            AFFINE: tl.constexpr, FAMILY: tl.constexpr):  # fmt: skip
    """Noisy inputs of the columns c, zero beyond the sizes."""
    inside = is_row[:, None] & (c[None, :] < n_in)
    x = tl.load(X + row[:, None] * n_in + c[None, :], mask=inside, other=0.0)
    if AFFINE:
        shift = tl.load(X_AFFINE + c, mask=c < n_in, other=0.0)
        scale = tl.load(X_AFFINE + n_in + c, mask=c < n_in, other=0.0)
        x = tl.where(inside, (x - shift[None, :]) * scale[None, :], 0.0)
    if FAMILY == _BERNOULLI or FAMILY == _GAUSSIAN:
        index = r[:, None] * n_in + c[None, :]
        x *= _factors(state, 0, index, keep, n_dropped, FAMILY)
    return x


# ---- likelihoods


@triton.jit
def _gaussian(f, y, shift, factor, level, within, j, n_targets):
    """Row nll, gradient of the outputs, and of log tau, (columns,)."""
    is_target = (j < n_targets)[None, :]
    tau, root = tl.exp(level)[None, :], tl.exp(0.5 * level)[None, :]
    residual = tl.where(is_target, f - y, 0.0)
    square = tau * residual * residual
    nll = 0.5 * square - 0.5 * level[None, :] + _HALF_LOG_2PI
    nll = tl.sum(tl.where(is_target, nll, 0.0), 1)
    g = tl.where(is_target, (tau * residual - root * shift) * factor[:, None], 0.0)
    over_level = tl.where(is_target, (square - 1.0) * factor[:, None], 0.0)
    return nll, g, 0.5 * tl.sum(over_level, 0) * within


@triton.jit
def _heteroscedastic(f, y, shift, factor, level, within, gain, lowest, j):
    """As ``_gaussian``, for one target; column 1 of the outputs is s."""
    is_mean, is_s = (j == 0)[None, :], (j == 1)[None, :]
    mean = tl.sum(tl.where(is_mean, f, 0.0), 1)
    s = tl.sum(tl.where(is_s, f, 0.0), 1)
    target = tl.sum(tl.where(is_mean, y, 0.0), 1)
    moved = tl.sum(tl.where(is_mean, shift, 0.0), 1)
    level_0 = tl.sum(tl.where(j == 0, level, 0.0), 0)
    ratio = _tanh(s / _RANGE)
    unclipped = level_0 - gain * _RANGE * ratio
    clipped = tl.minimum(unclipped, _MAX_LOG_PRECISION)
    # smooth_max of `_likelihoods.gaussian`.
    excess = _SHARPNESS * (clipped - lowest)
    linear = excess > _SOFTPLUS_LINEAR_FROM
    log_tau = lowest + tl.where(
        linear, clipped - lowest, _softplus(excess) / _SHARPNESS
    )
    slope = tl.where(linear, 1.0, _sigmoid(excess))
    slope = tl.where(unclipped <= _MAX_LOG_PRECISION, slope, 0.0)
    residual, tau = mean - target, tl.exp(log_tau)
    square = tau * residual * residual
    nll = 0.5 * (square - log_tau) + _HALF_LOG_2PI
    to_level = 0.5 * (square - 1.0) * slope * factor
    g_mean = (tau * residual - tl.exp(0.5 * log_tau) * moved) * factor
    g_s = -gain * (1.0 - ratio * ratio) * to_level
    g = tl.where(is_mean, g_mean[:, None], tl.where(is_s, g_s[:, None], 0.0))
    return nll, g, tl.where(j == 0, tl.sum(to_level, 0), 0.0) * within


@triton.jit
def _categorical(f, label, factor, level, j, n_classes):
    """Row nll and gradient of the outputs; tau is exp(level[0])."""
    is_class = (j < n_classes)[None, :]
    tau = tl.exp(tl.sum(tl.where(j == 0, level, 0.0), 0))
    logits = tl.where(is_class, f, -float("inf"))
    logits -= tl.max(logits, 1)[:, None]
    at_label = j[None, :] == label[:, None]
    exponentials = tl.exp(logits)
    total = tl.sum(exponentials, 1)
    nll = tau * (tl.log(total) - tl.sum(tl.where(at_label, logits, 0.0), 1))
    g = exponentials / total[:, None] - at_label.to(tl.float32)
    return nll, tl.where(is_class, g * (tau * factor)[:, None], 0.0)


# ---- Adam and the KL


@triton.jit
def _adam(P, M, V, G, CURVATURE, CENTRE, start, size, kl, step_size, epsilon,
          DECAY_1: tl.constexpr, DECAY_2: tl.constexpr,
          BLOCK: tl.constexpr):  # fmt: skip
    """Update parameters whose KL is curvature / 2 (value - centre)^2."""
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside, at = i < size, start + i
        p = tl.load(P + at, mask=inside, other=0.0)
        curvature = tl.load(CURVATURE + at, mask=inside, other=0.0)
        centre = tl.load(CENTRE + at, mask=inside, other=0.0)
        g = tl.load(G + at, mask=inside, other=0.0) + kl * curvature * (p - centre)
        m = tl.load(M + at, mask=inside, other=0.0)
        v = tl.load(V + at, mask=inside, other=0.0)
        m += DECAY_1 * (g - m)
        v += DECAY_2 * (g * g - v)
        p += step_size * m / (tl.sqrt(v) + epsilon)
        tl.store(M + at, m, mask=inside)
        tl.store(V + at, v, mask=inside)
        tl.store(P + at, p, mask=inside)


@triton.jit
def _add_rho_kl(P, G, PRECISIONS, mean_at, rho_at, size, kl, BLOCK: tl.constexpr):
    """Add the gradient of the KL in rho: precision sigma - 1 / sigma, times slope."""
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < size
        rho = tl.load(P + rho_at + i, mask=inside, other=0.0)
        precision = tl.load(PRECISIONS + mean_at + i, mask=inside, other=0.0)
        sigma = _softplus(rho)
        g = tl.load(G + rho_at + i, mask=inside, other=0.0)
        g += kl * (precision * sigma - 1.0 / sigma) * _sigmoid(rho)
        tl.store(G + rho_at + i, g, mask=inside)


@triton.jit
def _quadratic_kl(P, CURVATURE, CENTRE, start, size, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside, at = i < size, start + i
        p = tl.load(P + at, mask=inside, other=0.0)
        centre = tl.load(CENTRE + at, mask=inside, other=0.0)
        curvature = tl.load(CURVATURE + at, mask=inside, other=0.0)
        total += 0.5 * curvature * (p - centre) * (p - centre)
    return tl.sum(total, 0)


@triton.jit
def _sigma_kl(P, PRECISIONS, mean_at, rho_at, size, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < size
        sigma = _softplus(tl.load(P + rho_at + i, mask=inside, other=0.0))
        precision = tl.load(PRECISIONS + mean_at + i, mask=inside, other=0.0)
        term = 0.5 * precision * sigma * sigma - tl.log(sigma)
        total += tl.where(inside, term, 0.0)
    return tl.sum(total, 0)


@triton.jit
def _map_kl(P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, k, n_in, n_out,
            FAMILY: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """KL of a map, up to a constant."""
    mean_at = _place(STARTS, e, 4 * k, n_in * n_out)
    bias_at = _place(STARTS, e, 4 * k + 1, n_out)
    value = _quadratic_kl(P, CURVATURE, CENTRE, mean_at, n_in * n_out, BLOCK)
    value += _quadratic_kl(P, CURVATURE, CENTRE, bias_at, n_out, BLOCK)
    if FAMILY == _MEAN_FIELD:
        rho_at = _place(STARTS, e, 4 * k + 2, n_in * n_out)
        bias_rho_at = _place(STARTS, e, 4 * k + 3, n_out)
        value += _sigma_kl(P, PRECISIONS, mean_at, rho_at, n_in * n_out, BLOCK)
        value += _sigma_kl(P, PRECISIONS, bias_at, bias_rho_at, n_out, BLOCK)
    return value


@triton.jit
def _update_map(P, M, V, G, CURVATURE, CENTRE, PRECISIONS, STARTS, e, k, n_in, n_out,
                kl, step_size, epsilon, FAMILY: tl.constexpr, DECAY_1: tl.constexpr,
                DECAY_2: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Update all parameters of a map."""
    mean_at = _place(STARTS, e, 4 * k, n_in * n_out)
    bias_at = _place(STARTS, e, 4 * k + 1, n_out)
    if FAMILY == _MEAN_FIELD:
        rho_at = _place(STARTS, e, 4 * k + 2, n_in * n_out)
        bias_rho_at = _place(STARTS, e, 4 * k + 3, n_out)
        _add_rho_kl(P, G, PRECISIONS, mean_at, rho_at, n_in * n_out, kl, BLOCK)
        _add_rho_kl(P, G, PRECISIONS, bias_at, bias_rho_at, n_out, kl, BLOCK)
        tl.debug_barrier()
        # The curvature of rho is zero.
        _adam(P, M, V, G, CURVATURE, CENTRE, rho_at, n_in * n_out, kl, step_size,
              epsilon, DECAY_1, DECAY_2, BLOCK)  # fmt: skip
        _adam(P, M, V, G, CURVATURE, CENTRE, bias_rho_at, n_out, kl, step_size,
              epsilon, DECAY_1, DECAY_2, BLOCK)  # fmt: skip
    _adam(P, M, V, G, CURVATURE, CENTRE, mean_at, n_in * n_out, kl, step_size, epsilon,
          DECAY_1, DECAY_2, BLOCK)  # fmt: skip
    _adam(P, M, V, G, CURVATURE, CENTRE, bias_at, n_out, kl, step_size, epsilon,
          DECAY_1, DECAY_2, BLOCK)  # fmt: skip


# ---- the program


@triton.jit
def train_epochs(
    # Vectors of all parameters: values, moments, gradient; prior.
    P, M, V, G, CURVATURE, CENTRE, PRECISIONS,
    # Starts of the parameters of every map, and of the likelihood; sizes of all layers.
    STARTS, WIDTHS,
    # Rows of the table; the rows of every subset, (subsets, R).
    X, Y, LABELS, ROWS, WEIGHTS, X_AFFINE, Y_AFFINE, SHIFT,
    # By member: subset, order of the rows, schedule; rows of a batch, number of steps.
    SUBSET, ORDER_OF, SCHEDULE, BATCH_ROWS, N_STEPS,
    # By member: scale of the data, 1 / mean weight, scale of the KL; whether the
    # likelihood is learned.
    SCALE, WEIGHT_SCALE, KL_SCALE, LEARNS,
    # Keep probability and dropped 16-bit values, (maps, members).
    KEEP, N_DROPPED,
    # By step: positions of the rows (orders, steps, most batch rows); seeds (epochs,
    # members); step size, epsilon, KL weight (schedules, steps, 3); gain (schedules,
    # epochs).
    ORDER, SEEDS, STEPS, GAIN,
    # Results: nll (epochs, members), KL (epochs + 1, members).
    NLL, KL,
    n_members, n_epochs, n_batches, n_rows_of_subset, max_batch_rows, n_targets,
    HIDDEN: tl.constexpr, ACTIVATION: tl.constexpr, LIKELIHOOD: tl.constexpr,
    FIRST: tl.constexpr, INNER: tl.constexpr, LAST: tl.constexpr,
    LEARNED: tl.constexpr, HAS_WEIGHTS: tl.constexpr, WEIGHTS_BY_MEMBER: tl.constexpr,
    HAS_SHIFT: tl.constexpr, HAS_X_AFFINE: tl.constexpr, HAS_Y_AFFINE: tl.constexpr,
    ALL_ROWS: tl.constexpr, ROW_TILE: tl.constexpr, COLUMN_TILE: tl.constexpr,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, ONE_TILE: tl.constexpr,
    PRECISION: tl.constexpr, DECAY_1: tl.constexpr, DECAY_2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Run the epochs of member ``program_id(0)``; see the names above.

    HIDDEN : number of hidden layers, 1 to 3
    FIRST, INNER, LAST : families of the first map, of those between, of the last
    ONE_TILE : whether one tile holds all columns of X
    """
    e = tl.program_id(0)
    r0, j, o = tl.arange(0, ROW_TILE), tl.arange(0, WIDTH), tl.arange(0, OUTPUTS)
    c0 = tl.arange(0, COLUMN_TILE)
    n_in, w1 = tl.load(WIDTHS), tl.load(WIDTHS + 1)
    w2 = tl.load(WIDTHS + 2)
    w3 = tl.load(WIDTHS + 3) if HIDDEN > 1 else w2
    n_out = tl.load(WIDTHS + HIDDEN + 1)
    w_last = tl.load(WIDTHS + HIDDEN)
    subset, order = tl.load(SUBSET + e), tl.load(ORDER_OF + e)
    schedule, n_rows = tl.load(SCHEDULE + e), tl.load(BATCH_ROWS + e)
    scale, learns = tl.load(SCALE + e), tl.load(LEARNS + e)
    weight_scale, kl_scale = tl.load(WEIGHT_SCALE + e), tl.load(KL_SCALE + e)
    keep_first, dropped_first = tl.load(KEEP + e), tl.load(N_DROPPED + e)
    keep_2, dropped_2 = (
        tl.load(KEEP + n_members + e),
        tl.load(N_DROPPED + n_members + e),
    )
    keep_3, dropped_3 = keep_2, dropped_2
    if HIDDEN > 2:
        keep_3 = tl.load(KEEP + 2 * n_members + e)
        dropped_3 = tl.load(N_DROPPED + 2 * n_members + e)
    keep_last = tl.load(KEEP + HIDDEN * n_members + e)
    dropped_last = tl.load(N_DROPPED + HIDDEN * n_members + e)
    done_2 = n_words(n_rows, n_in, w1, FIRST)
    done_3 = done_2
    if HIDDEN > 1:
        done_3 = done_2 + n_words(n_rows, w1, w2, INNER)
    done_last = done_3
    if HIDDEN > 2:
        done_last = done_3 + n_words(n_rows, w2, w3, INNER)
    words_of_step = done_last + n_words(n_rows, w_last, n_out, LAST)
    x_affine, y_affine = X_AFFINE + subset * 2 * n_in, Y_AFFINE + subset * 2 * n_targets
    weights_at = WEIGHTS + (e if WEIGHTS_BY_MEMBER else subset) * n_rows_of_subset
    shift_at = SHIFT + e.to(tl.int64) * n_rows_of_subset * n_targets
    n_tau = n_targets if LIKELIHOOD == _GAUSSIAN_Y else 1
    tau_at = _place(STARTS, e, 4 * (HIDDEN + 1), n_tau)
    gain_at = _place(STARTS, e, 4 * (HIDDEN + 1) + 1, 1)
    is_tau = o < n_tau
    lowest = 0.0
    if LIKELIHOOD == _HETEROSCEDASTIC:
        lowest = -tl.load(P + _place(STARTS, e, 4 * (HIDDEN + 1) + 2, 1))
    total = 0.0
    gain = 0.0
    state = tl.zeros([], tl.uint64)
    n_steps = tl.load(N_STEPS + e)
    for step in range(n_steps):
        epoch, batch = step // n_batches, step % n_batches
        if batch == 0:
            total = 0.0
            seed = tl.load(SEEDS + epoch * n_members + e)
            state = _finalise(seed.to(tl.uint64, bitcast=True))
            gain = tl.load(GAIN + schedule * n_epochs + epoch)
        start = state + _GOLDEN * (batch * words_of_step).to(tl.uint64)
        steps_at = STEPS + (schedule * (n_epochs * n_batches) + step) * 3
        step_size, epsilon = tl.load(steps_at), tl.load(steps_at + 1)
        kl = kl_scale * tl.load(steps_at + 2)
        order_at = ORDER + (order * (n_epochs * n_batches) + step) * max_batch_rows
        log_tau = tl.load(P + tau_at + o, mask=is_tau, other=0.0)
        level, within = log_tau, log_tau * 0.0
        if LEARNED:
            level = tl.minimum(tl.maximum(log_tau, _MIN_LOG_TAU), _MAX_LOG_TAU)
            within = (level == log_tau).to(tl.float32)
        grad_tau = tl.zeros([OUTPUTS], tl.float32)
        for first_row in range(0, n_rows, ROW_TILE):
            r = first_row + r0
            is_row = r < n_rows
            position = tl.load(order_at + r, mask=is_row, other=0)
            row = position
            if not ALL_ROWS:
                row = tl.load(
                    ROWS + subset * n_rows_of_subset + position, mask=is_row, other=0
                )
            row = row.to(tl.int64)
            weight = tl.where(is_row, 1.0, 0.0)
            if HAS_WEIGHTS:
                weight = tl.load(weights_at + position, mask=is_row, other=0.0)
                weight *= weight_scale
            factor = weight * (scale / n_rows)
            # Forward.
            x = _inputs(X, x_affine, row, r, c0, n_in, start, keep_first,
                        dropped_first, is_row, HAS_X_AFFINE, FIRST)  # fmt: skip
            mean_at = _place(STARTS, e, 0, n_in * w1)
            rho_at = mean_at
            z = tl.dot(x, _tile(P, mean_at, c0, j, n_in, w1), input_precision=PRECISION)
            variance = z
            if FIRST == _MEAN_FIELD or FIRST == _FIXED_WIDTH:
                rho_at = _place(STARTS, e, 2, n_in * w1)
                variance = tl.dot(
                    x * x,
                    _variances(P, rho_at, c0, j, n_in, w1),
                    input_precision=PRECISION,
                )
            if not ONE_TILE:
                for first_column in range(COLUMN_TILE, n_in, COLUMN_TILE):
                    c = first_column + c0
                    xc = _inputs(X, x_affine, row, r, c, n_in, start, keep_first,
                                 dropped_first, is_row, HAS_X_AFFINE,
                                 FIRST)  # fmt: skip
                    z += tl.dot(
                        xc, _tile(P, mean_at, c, j, n_in, w1), input_precision=PRECISION
                    )
                    if FIRST == _MEAN_FIELD or FIRST == _FIXED_WIDTH:
                        variance += tl.dot(
                            xc * xc,
                            _variances(P, rho_at, c, j, n_in, w1),
                            input_precision=PRECISION,
                        )
            z, ratio_1 = _outputs(
                P, STARTS, e, 0, z, variance, start, 0, r, j, n_in, w1, FIRST
            )
            h1, slope_1 = _activation(z, ACTIVATION)
            h, slope = h1, slope_1
            if HIDDEN > 1:
                z, h1, slope_1, ratio_2 = _hidden_map(
                    P, STARTS, e, 1, h1, slope_1, start, done_2, keep_2, dropped_2,
                    r, j, j, w1, w2, INNER, PRECISION)  # fmt: skip
                h2, slope_2 = _activation(z, ACTIVATION)
                h, slope = h2, slope_2
                if HIDDEN > 2:
                    z, h2, slope_2, ratio_3 = _hidden_map(
                        P, STARTS, e, 2, h2, slope_2, start, done_3, keep_3, dropped_3,
                        r, j, j, w2, w3, INNER, PRECISION)  # fmt: skip
                    h, slope = _activation(z, ACTIVATION)
            f, h, slope, ratio = _hidden_map(
                P, STARTS, e, HIDDEN, h, slope, start, done_last, keep_last,
                dropped_last, r, j, o, w_last, n_out, LAST, PRECISION)  # fmt: skip
            # Likelihood.
            if LIKELIHOOD == _GAUSSIAN_Y or LIKELIHOOD == _HETEROSCEDASTIC:
                is_target = is_row[:, None] & (o[None, :] < n_targets)
                y = tl.load(
                    Y + row[:, None] * n_targets + o[None, :], mask=is_target, other=0.0
                )
                if HAS_Y_AFFINE:
                    move = tl.load(y_affine + o, mask=o < n_targets, other=0.0)
                    stretch = tl.load(
                        y_affine + n_targets + o, mask=o < n_targets, other=0.0
                    )
                    y = (y - move[None, :]) * stretch[None, :]
                shift = tl.zeros([ROW_TILE, OUTPUTS], tl.float32)
                if HAS_SHIFT:
                    shift = tl.load(
                        shift_at + position[:, None] * n_targets + o[None, :],
                        mask=is_target,
                        other=0.0,
                    )
                if LIKELIHOOD == _GAUSSIAN_Y:
                    nll, g, over_tau = _gaussian(
                        f, y, shift, factor, level, within, o, n_targets
                    )
                else:
                    nll, g, over_tau = _heteroscedastic(
                        f, y, shift, factor, level, within, gain, lowest, o
                    )
                grad_tau += over_tau
            else:
                label = tl.load(LABELS + row, mask=is_row, other=0)
                nll, g = _categorical(f, label, factor, level, o, n_out)
            total += tl.sum(tl.where(is_row, nll * weight, 0.0), 0)
            # Backward.
            g = _hidden_map_back(P, G, STARTS, e, HIDDEN, h, slope, ratio, g, j, o,
                                 w_last, n_out, first_row, LAST, PRECISION)  # fmt: skip
            if HIDDEN > 2:
                g = _hidden_map_back(P, G, STARTS, e, 2, h2, slope_2, ratio_3, g, j, j,
                                     w2, w3, first_row, INNER, PRECISION)  # fmt: skip
            if HIDDEN > 1:
                g = _hidden_map_back(P, G, STARTS, e, 1, h1, slope_1, ratio_2, g, j, j,
                                     w1, w2, first_row, INNER, PRECISION)  # fmt: skip
            half = 0.5 * g * ratio_1
            _bias_back(P, G, STARTS, e, 0, g, half, j, w1, first_row, FIRST)
            _weights_back(P, G, STARTS, e, 0, x, g, half, c0, j, n_in, w1, first_row,
                          FIRST, PRECISION)  # fmt: skip
            if not ONE_TILE:
                for first_column in range(COLUMN_TILE, n_in, COLUMN_TILE):
                    c = first_column + c0
                    xc = _inputs(X, x_affine, row, r, c, n_in, start, keep_first,
                                 dropped_first, is_row, HAS_X_AFFINE,
                                 FIRST)  # fmt: skip
                    _weights_back(P, G, STARTS, e, 0, xc, g, half, c, j, n_in, w1,
                                  first_row, FIRST, PRECISION)  # fmt: skip
            tl.debug_barrier()
        # Update.
        _update_map(P, M, V, G, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 0, n_in, w1,
                    kl, step_size, epsilon, FIRST, DECAY_1, DECAY_2, BLOCK)  # fmt: skip
        if HIDDEN > 1:
            _update_map(P, M, V, G, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 1, w1, w2,
                        kl, step_size, epsilon, INNER, DECAY_1, DECAY_2,
                        BLOCK)  # fmt: skip
        if HIDDEN > 2:
            _update_map(P, M, V, G, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 2, w2, w3,
                        kl, step_size, epsilon, INNER, DECAY_1, DECAY_2,
                        BLOCK)  # fmt: skip
        _update_map(P, M, V, G, CURVATURE, CENTRE, PRECISIONS, STARTS, e, HIDDEN,
                    w_last, n_out, kl, step_size, epsilon, LAST, DECAY_1, DECAY_2,
                    BLOCK)  # fmt: skip
        if LEARNED:
            is_learned = is_tau & (o * 0 + learns > 0)
            m = tl.load(M + tau_at + o, mask=is_learned, other=0.0)
            v = tl.load(V + tau_at + o, mask=is_learned, other=0.0)
            m += DECAY_1 * (grad_tau - m)
            v += DECAY_2 * (grad_tau * grad_tau - v)
            log_tau += step_size * m / (tl.sqrt(v) + epsilon)
            tl.store(M + tau_at + o, m, mask=is_learned)
            tl.store(V + tau_at + o, v, mask=is_learned)
            tl.store(P + tau_at + o, log_tau, mask=is_learned)
        tl.debug_barrier()
        if batch == n_batches - 1:
            at = epoch * n_members + e
            tl.store(NLL + at, total / (n_rows * n_batches))
            value = _kl(P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, n_in, w1, w2, w3,
                        w_last, n_out, HIDDEN, FIRST, INNER, LAST, BLOCK)  # fmt: skip
            tl.store(KL + at, value)
    if n_steps == 0:
        value = _kl(P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, n_in, w1, w2, w3,
                    w_last, n_out, HIDDEN, FIRST, INNER, LAST, BLOCK)  # fmt: skip
        tl.store(KL + e, value)
    elif LIKELIHOOD == _HETEROSCEDASTIC:
        tl.store(P + gain_at, gain)


@triton.jit
def _kl(P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, n_in, w1, w2, w3, w_last, n_out,
        HIDDEN: tl.constexpr, FIRST: tl.constexpr, INNER: tl.constexpr,
        LAST: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """KL of all maps, up to a constant, nats."""
    value = _map_kl(
        P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 0, n_in, w1, FIRST, BLOCK
    )
    if HIDDEN > 1:
        value += _map_kl(
            P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 1, w1, w2, INNER, BLOCK
        )
    if HIDDEN > 2:
        value += _map_kl(
            P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, 2, w2, w3, INNER, BLOCK
        )
    value += _map_kl(
        P, CURVATURE, CENTRE, PRECISIONS, STARTS, e, HIDDEN, w_last, n_out, LAST, BLOCK
    )
    return value
