"""Compiled variational families; torch's are in `_families`.

A family is one of two kinds of stochastic affine map:

- *scaled inputs*: z = (h * s) M + b with a random factor s for every input and row;
- *sampled outputs*: z = (h * s) M + b + std * e, std^2 = h^2 V + v, by local
  reparameterisation [KSW15 section 2.3], with masks s or s = 1.

``forward``, ``backward`` and ``kl_extra`` are the functions that the loop calls for a
map; the last adds the parts of the KL that are not quadratic in the means. They call
functions of the map's kind or family by their addresses, which
``compile_functions`` writes. To add a family, add its code, its branches in the small
functions, and its KL.

All arrays are parts of a few vectors, and functions get vectors and starts. Tuples or
lists of arrays would take several times as long to compile.

The parameters of a map are M (inputs, outputs), b (outputs,), and up to two further
arrays, flat: rho and bias_rho of a mean field; log_alpha, log_variance, logit or
variance of other families.
"""

import math

import numpy as np
from numba import types

from skbayesnn._engine.compiled import activations
from skbayesnn._engine.compiled.numerics import (
    FunctionKind,
    compiled,
    copy,
    exp,
    fill,
    fill_normal,
    fill_uniform,
    fill_words,
    log,
    product,
    product_back,
    product_over_rows,
    sigmoid,
    softplus,
)
from skbayesnn._engine.random import STEPS_OF_16_BITS
from skbayesnn._families.dropout import TEMPERATURE
from skbayesnn._families.variational_dropout import MIN_LOG_ALPHA, MIN_SQUARE
from skbayesnn._families.weight_noise import MIN_VARIANCE
from skbayesnn._priors import KINGMA_COEFFICIENTS, MOLCHANOV_COEFFICIENTS

# Families that scale the inputs, and families that sample the outputs.
_SCALING = "point", "bernoulli", "gaussian", "concrete", "variational_correlated"
_SAMPLING = (
    "dropconnect",
    "additive",
    "mean_field",
    "fixed_width",
    "variational_independent",
)
CODES = {name: code for code, name in enumerate(_SCALING + _SAMPLING)}
POINT, BERNOULLI, GAUSSIAN, CONCRETE, CORRELATED = range(len(_SCALING))
DROPCONNECT, ADDITIVE, MEAN_FIELD, FIXED_WIDTH, INDEPENDENT = range(
    len(_SCALING), len(CODES)
)
_FIRST_SAMPLING = len(_SCALING)


# A map is described by a row of integers, ``at``. First its options.
(
    CODE,
    SPIKE,
    PER_WEIGHT,
    LOG_UNIFORM,
    KINGMA,
    # Sizes: rows of a batch, inputs, outputs, and further parameters.
    ROWS,
    INPUTS,
    OUTPUTS,
    N_THIRD,
    N_FOURTH,
    # Addresses of functions, or 0: the activation of the inputs, and see `KINDS`.
    ACTIVATION,
    FACTORS,
    FORWARD,
    BACKWARD,
    KL,
    # Starts in the vectors of parameters and gradients.
    MEAN,
    BIAS,
    THIRD,
    FOURTH,
    # Starts in the working space: activations h (rows, inputs) and their derivatives;
    # factors s of the inputs, and the numbers e that s is computed from; h before the
    # factors, and its squares; means and variances of the weights (inputs, outputs) and
    # the gradient of the variances; variances of the biases, and their gradient; normal
    # numbers and standard deviations (rows, outputs).
    H,
    SLOPE,
    S,
    E,
    BEFORE,
    SQUARES,
    M,
    V,
    GRAD_V,
    BIAS_V,
    GRAD_BIAS_V,
    NORMAL,
    STD,
    N_COLUMNS,
) = range(33)


@compiled
def samples_outputs(code):
    """Whether the map is of the second kind."""
    return code >= _FIRST_SAMPLING


@compiled
def _mask(values, keep, words):
    """Zeros and ones with P(1) = keep, from 16 bits each."""
    n_dropped = np.int64(np.rint((1.0 - keep) * STEPS_OF_16_BITS))
    lowest = n_dropped - STEPS_OF_16_BITS // 2
    highest = STEPS_OF_16_BITS // 2 - 1
    threshold = np.int16(min(lowest, highest))  # type: ignore[arg-type]
    bits = words.view(np.int16)
    one, zero = values.dtype.type(1), values.dtype.type(0)
    for i in range(values.size):
        values[i] = one if bits[i] >= threshold else zero


@compiled
def _bounded(log_alpha, highest):
    return min(max(log_alpha, MIN_LOG_ALPHA), highest)


@compiled
def part(vector, start, size):
    """A part of a vector, without a copy."""
    return vector[start : start + size]


@compiled
def workspace(at, start):
    """Set the starts of a map's working arrays; return the end of the last."""
    code, n_in = at[CODE], at[ROWS] * at[INPUTS]
    n_out, n_weights = at[ROWS] * at[OUTPUTS], at[INPUTS] * at[OUTPUTS]
    sampled = samples_outputs(code)
    scaled = at[SPIKE] != 0 or (code != POINT and not sampled)
    n_before = n_in if sampled or code == CORRELATED else 0
    sizes = (
        n_in,
        n_in,
        n_in if scaled else 0,
        n_in + n_in % 2 if scaled else 0,
        n_before,
        n_in if sampled else 0,
        n_weights if sampled else 0,
        n_weights if sampled else 0,
        n_weights if sampled else 0,
        at[OUTPUTS] if sampled else 0,
        at[OUTPUTS] if sampled else 0,
        n_out + n_out % 2 if sampled else 0,
        n_out if sampled else 0,
    )
    for k in range(len(sizes)):
        at[H + k] = start
        start += sizes[k]
    return start


@compiled
def _mask_factors(at, keep, highest, theta, space, words):
    _mask(part(space, at[S], at[ROWS] * at[INPUTS]), keep, words)


@compiled
def _normal_factors(at, keep, highest, theta, space, words):
    n = at[ROWS] * at[INPUTS]
    s, e = part(space, at[S], n), part(space, at[E], n + n % 2)
    fill_normal(e, words)
    dtype = space.dtype.type
    p, std = dtype(keep), dtype(math.sqrt(keep * (1 - keep)))
    for i in range(n):
        s[i] = p + std * e[i]


@compiled
def _concrete_factors(at, keep, highest, theta, space, words):
    n = at[ROWS] * at[INPUTS]
    s, e = part(space, at[S], n), part(space, at[E], n + n % 2)
    fill_uniform(e, words)
    dtype = space.dtype.type
    one, lowest = dtype(1), dtype(np.finfo(space.dtype).eps)
    logit, scale = theta[at[THIRD]], dtype(1 / TEMPERATURE)
    for i in range(n):
        u = min(max(e[i], lowest), one - lowest)
        s[i] = sigmoid((log(u / (one - u)) + logit) * scale)


@compiled
def _correlated_factors(at, keep, highest, theta, space, words):
    inputs, n = at[INPUTS], at[ROWS] * at[INPUTS]
    s, e = part(space, at[S], n), part(space, at[E], n + n % 2)
    fill_normal(e, words)
    dtype = space.dtype.type
    one, step = dtype(1), 0 if at[N_THIRD] == 1 else 1
    std = np.empty(inputs, space.dtype)
    for j in range(inputs):
        log_alpha = _bounded(theta[at[THIRD] + step * j], highest)
        std[j] = dtype(math.exp(0.5 * log_alpha))
    for i in range(at[ROWS]):
        for j in range(inputs):
            s[i * inputs + j] = one + std[j] * e[i * inputs + j]


@compiled
def _fill_moments(at, keep, highest, theta, space):
    """Means and variances of the weights, and variances of the biases."""
    code, outputs, n = at[CODE], at[OUTPUTS], at[INPUTS] * at[OUTPUTS]
    mean, third = part(theta, at[MEAN], n), part(theta, at[THIRD], at[N_THIRD])
    m, v = part(space, at[M], n), part(space, at[V], n)
    bias_v = part(space, at[BIAS_V], outputs)
    dtype = space.dtype.type
    copy(mean, m)
    fill(bias_v, dtype(0))
    if code == DROPCONNECT:
        p, q = dtype(keep), dtype(keep * (1 - keep))
        for i in range(n):
            m[i] = p * mean[i]
            v[i] = q * mean[i] * mean[i]
    elif code == ADDITIVE:
        fill(v, third[0])
    elif code == MEAN_FIELD or code == FIXED_WIDTH:
        for i in range(n):
            sigma = softplus(third[i])
            v[i] = sigma * sigma
        fourth = part(theta, at[FOURTH], outputs)
        for j in range(outputs):
            sigma = softplus(fourth[j])
            bias_v[j] = sigma * sigma
    elif at[PER_WEIGHT]:
        for i in range(n):
            square = mean[i] * mean[i]
            log_alpha = third[i] - log(square + dtype(MIN_SQUARE))
            v[i] = exp(dtype(_bounded(log_alpha, highest))) * square
    else:
        step = 0 if at[N_THIRD] == 1 else 1
        for i in range(at[INPUTS]):
            alpha = dtype(math.exp(_bounded(third[step * i], highest)))
            for k in range(i * outputs, (i + 1) * outputs):
                v[k] = alpha * mean[k] * mean[k]


@compiled
def _sample_outputs(at, keep, highest, theta, space, z, words, seed, done):
    """Products with the moments, and a normal sample; the biases are not added."""
    rows, inputs, outputs = at[ROWS], at[INPUTS], at[OUTPUTS]
    n_in, n_out, n = rows * inputs, rows * outputs, inputs * outputs
    _fill_moments(at, keep, highest, theta, space)
    std, bias_v = part(space, at[STD], n_out), part(space, at[BIAS_V], outputs)
    h, squares = part(space, at[H], n_in), part(space, at[SQUARES], n_in)
    product(h, part(space, at[M], n), z, rows, inputs, outputs)
    product(squares, part(space, at[V], n), std, rows, inputs, outputs)
    n_numbers = n_out + n_out % 2
    done = fill_words(words[:n_numbers], seed, done)
    normal = part(space, at[NORMAL], n_numbers)
    fill_normal(normal, words)
    smallest = space.dtype.type(MIN_VARIANCE)
    for i in range(rows):
        row = part(std, i * outputs, outputs)
        for j in range(outputs):
            row[j] = np.sqrt(row[j] + (bias_v[j] + smallest))
    for i in range(n_out):
        z[i] += std[i] * normal[i]
    return done


@compiled
def _sum_rows(values, n_rows, total):
    fill(total, values.dtype.type(0))
    n = total.size
    for i in range(n_rows):
        row = part(values, i * n, n)
        for j in range(n):
            total[j] += row[j]


@compiled
def _moments_back(at, keep, highest, theta, space, grad):
    """Gradients of the parameters from the gradients of the moments."""
    code, outputs, n = at[CODE], at[OUTPUTS], at[INPUTS] * at[OUTPUTS]
    mean, third = part(theta, at[MEAN], n), part(theta, at[THIRD], at[N_THIRD])
    grad_mean, grad_third = part(grad, at[MEAN], n), part(grad, at[THIRD], at[N_THIRD])
    grad_v = part(space, at[GRAD_V], n)
    dtype = space.dtype.type
    two = dtype(2)
    if code == DROPCONNECT:
        p, q = dtype(keep), dtype(2 * keep * (1 - keep))
        for i in range(n):
            grad_mean[i] = p * grad_mean[i] + q * mean[i] * grad_v[i]
    elif code == MEAN_FIELD:
        for i in range(n):
            slope = softplus(third[i]) * sigmoid(third[i])
            grad_third[i] = two * slope * grad_v[i]
        grad_bias_v = part(space, at[GRAD_BIAS_V], outputs)
        fourth, grad_fourth = (
            part(theta, at[FOURTH], outputs),
            part(grad, at[FOURTH], outputs),
        )
        for j in range(outputs):
            slope = softplus(fourth[j]) * sigmoid(fourth[j])
            grad_fourth[j] = two * slope * grad_bias_v[j]
    elif code == INDEPENDENT and at[PER_WEIGHT]:
        zero, smallest = dtype(0), dtype(MIN_SQUARE)
        for i in range(n):
            square = mean[i] * mean[i] + smallest
            unbounded = third[i] - log(square)
            bounded = dtype(_bounded(unbounded, highest))
            over_mean = grad_v[i] * exp(bounded) * mean[i]
            over_log_alpha = over_mean * mean[i] if bounded == unbounded else zero
            grad_third[i] = over_log_alpha
            grad_mean[i] += two * (over_mean - over_log_alpha * mean[i] / square)
    elif code == INDEPENDENT:
        fill(grad_third, dtype(0))
        step = 0 if at[N_THIRD] == 1 else 1
        for i in range(at[INPUTS]):
            bounded = _bounded(third[step * i], highest)
            alpha, total = dtype(math.exp(bounded)), 0.0
            for j in range(i * outputs, (i + 1) * outputs):
                over_mean = grad_v[j] * alpha * mean[j]
                total += over_mean * mean[j]
                grad_mean[j] += two * over_mean
            if bounded == third[step * i]:
                grad_third[step * i] += dtype(total)


@compiled
def _backward_sampled(at, keep, highest, theta, space, grad, g, grad_h, needs_inputs):
    """Gradients through sampled outputs."""
    rows, inputs, outputs = at[ROWS], at[INPUTS], at[OUTPUTS]
    n, n_out, n_weights = rows * inputs, rows * outputs, inputs * outputs
    half = space.dtype.type(0.5)
    # The standard deviations are replaced by twice the gradient of the variances.
    twice, normal = part(space, at[STD], n_out), part(space, at[NORMAL], n_out)
    for i in range(n_out):
        twice[i] = g[i] * normal[i] / twice[i]
    squares, grad_v = part(space, at[SQUARES], n), part(space, at[GRAD_V], n_weights)
    grad_bias_v = part(space, at[GRAD_BIAS_V], outputs)
    product_over_rows(squares, twice, grad_v, rows, inputs, outputs)
    _sum_rows(twice, rows, grad_bias_v)
    for i in range(n_weights):
        grad_v[i] *= half
    for j in range(outputs):
        grad_bias_v[j] *= half
    if needs_inputs:
        m, v = part(space, at[M], n_weights), part(space, at[V], n_weights)
        product_back(g, m, grad_h, rows, inputs, outputs)
        # The squares are no longer needed.
        product_back(twice, v, squares, rows, inputs, outputs)
        before, s = part(space, at[BEFORE], n), part(space, at[S], n)
        if at[SPIKE]:
            for i in range(n):
                grad_h[i] *= s[i]
        for i in range(n):
            grad_h[i] += squares[i] * before[i]
    _moments_back(at, keep, highest, theta, space, grad)


@compiled
def _backward_concrete(at, keep, highest, theta, space, grad, g, grad_h, needs_inputs):
    """The gradient of the logit of the dropout rate."""
    rows, inputs, outputs = at[ROWS], at[INPUTS], at[OUTPUTS]
    n, mean = rows * inputs, part(theta, at[MEAN], inputs * outputs)
    product_back(g, mean, grad_h, rows, inputs, outputs)
    h, s = part(space, at[H], n), part(space, at[S], n)
    one, total = space.dtype.type(1), 0.0
    for i in range(n):
        total += grad_h[i] * h[i] * (one - s[i])
    grad[at[THIRD]] = space.dtype.type(total / TEMPERATURE)


@compiled
def _backward_correlated(
    at, keep, highest, theta, space, grad, g, grad_h, needs_inputs
):
    """The gradient of log alpha, through s = 1 + sqrt(alpha) e."""
    rows, inputs, outputs = at[ROWS], at[INPUTS], at[OUTPUTS]
    mean = part(theta, at[MEAN], inputs * outputs)
    product_back(g, mean, grad_h, rows, inputs, outputs)
    dtype = space.dtype
    over_std = np.empty(inputs, dtype)
    fill(over_std, dtype.type(0))
    for i in range(rows):
        h = part(space, at[BEFORE] + i * inputs, inputs)
        e, noisy = (
            part(space, at[E] + i * inputs, inputs),
            part(grad_h, i * inputs, inputs),
        )
        for j in range(inputs):
            over_std[j] += noisy[j] * h[j] * e[j]
    fill(part(grad, at[THIRD], at[N_THIRD]), dtype.type(0))
    step = 0 if at[N_THIRD] == 1 else 1
    for j in range(inputs):
        log_alpha = theta[at[THIRD] + step * j]
        bounded = _bounded(log_alpha, highest)
        if bounded == log_alpha:
            std = math.exp(0.5 * bounded)
            grad[at[THIRD] + step * j] += dtype.type(0.5 * std * over_std[j])


# ---- one map


def _signature(real, result, *further):
    """Signature of a function of (at, keep, highest, theta, space, ...)."""
    vector = real[::1]
    first = types.int64[::1], types.float64, types.float64, vector, vector
    return result(*first, *further)


FACTORS_KIND = FunctionKind(
    lambda real: _signature(real, types.void, types.uint64[::1])
)
FORWARD_KIND = FunctionKind(
    lambda real: _signature(
        real, types.int64, real[::1], types.uint64[::1], types.uint64, types.int64
    )
)
BACKWARD_KIND = FunctionKind(
    lambda real: _signature(real, types.void, *(real[::1],) * 3, types.boolean)
)
_call_factors, _call_forward, _call_backward = (
    kind.call for kind in (FACTORS_KIND, FORWARD_KIND, BACKWARD_KIND)
)


@compiled
def forward(at, keep, highest, theta, space, z, words, seed, done, is_first):
    """One stochastic affine map of a batch; return the number of words used so far.

    The activations h are multiplied by s, and so are their derivatives if s scales the
    inputs.

    at : row of integers of the map (see above)
    theta, space : parameters, and working space
    z : outputs (rows * outputs,), written
    words : space for random words
    seed, done : sequence of words, and the number of words used before
    is_first : whether h are the inputs of the network, which need no derivatives
    """
    code, spike, outputs = at[CODE], at[SPIKE] != 0, at[OUTPUTS]
    n = at[ROWS] * at[INPUTS]
    sampled = samples_outputs(code)
    h = part(space, at[H], n)
    if (sampled and not is_first) or code == CORRELATED:
        copy(h, part(space, at[BEFORE], n))
    if sampled:
        squares = part(space, at[SQUARES], n)
        for i in range(n):
            squares[i] = h[i] * h[i]
    if spike or (code != POINT and not sampled):
        n_words = (n + 3) // 4 if spike or code == BERNOULLI else n + n % 2
        done = fill_words(words[:n_words], seed, done)
        _call_factors(at[FACTORS], at, keep, highest, theta, space, words)
        s, slope = part(space, at[S], n), part(space, at[SLOPE], n)
        for i in range(n):
            h[i] *= s[i]
        if not spike and not is_first:
            for i in range(n):
                slope[i] *= s[i]
    if sampled:
        done = _call_forward(
            at[FORWARD], at, keep, highest, theta, space, z, words, seed, done
        )
    else:
        mean = part(theta, at[MEAN], at[INPUTS] * outputs)
        product(h, mean, z, at[ROWS], at[INPUTS], outputs)
    bias = part(theta, at[BIAS], outputs)
    for i in range(at[ROWS]):
        row = part(z, i * outputs, outputs)
        for j in range(outputs):
            row[j] += bias[j]
    return done


@compiled
def backward(at, keep, highest, theta, space, grad, g, grad_h, needs_inputs):
    """Gradients of the parameters, written to ``grad``. Call it after ``forward``.

    g : gradient of the outputs, (rows * outputs,)
    grad_h : gradient of the inputs before their activation, (rows * inputs,), written
    needs_inputs : whether ``grad_h`` is needed
    """
    rows, inputs, outputs = at[ROWS], at[INPUTS], at[OUTPUTS]
    n, n_weights = rows * inputs, inputs * outputs
    h = part(space, at[H], n)
    product_over_rows(h, g, part(grad, at[MEAN], n_weights), rows, inputs, outputs)
    _sum_rows(g, rows, part(grad, at[BIAS], outputs))
    if at[BACKWARD]:
        _call_backward(
            at[BACKWARD],
            at,
            keep,
            highest,
            theta,
            space,
            grad,
            g,
            grad_h,
            needs_inputs,
        )
    elif needs_inputs:
        mean = part(theta, at[MEAN], n_weights)
        product_back(g, mean, grad_h, rows, inputs, outputs)
    if needs_inputs:
        slope = part(space, at[SLOPE], n)
        for i in range(n):
            grad_h[i] *= slope[i]


# ---- the KL


@compiled
def _approximate_kl(log_alpha, kingma):
    """KL to the log-uniform prior, and its slope; see `_priors`."""
    if kingma:
        alpha, (a, b, c) = math.exp(log_alpha), KINGMA_COEFFICIENTS
        polynomial = alpha * (a + alpha * (b + alpha * c))
        slope = a + alpha * (2 * b + alpha * 3 * c)
        return -0.5 * log_alpha - polynomial, -0.5 - alpha * slope
    a, b, c = MOLCHANOV_COEFFICIENTS
    share = 1 / (1 + math.exp(-(b + c * log_alpha)))
    value = a * (1 - share) + 0.5 * math.log1p(math.exp(-log_alpha))
    slope = -a * c * share * (1 - share)
    return value, slope - 0.5 / (1 + math.exp(log_alpha))


@compiled
def _sigma_kl(rho, precision, grad, scale, wants_value):
    """Parts of the KL that depend on the standard deviations softplus(rho)."""
    value, one = 0.0, rho.dtype.type(1)
    if wants_value:
        for i in range(rho.size):
            sigma = softplus(rho[i])
            value += 0.5 * precision[i] * sigma * sigma - log(sigma)
        return value
    for i in range(rho.size):
        sigma = softplus(rho[i])
        grad[i] += scale * (precision[i] * sigma - one / sigma) * sigmoid(rho[i])
    return value


@compiled
def _mean_field_kl(at, highest, theta, precision, grad, scale, wants_value):
    outputs, value = at[OUTPUTS], 0.0
    for start, of_prior, size in (
        (at[THIRD], at[MEAN], at[INPUTS] * outputs),
        (at[FOURTH], at[BIAS], outputs),
    ):
        value += _sigma_kl(
            part(theta, start, size),
            part(precision, of_prior, size),
            part(grad, start, size),
            theta.dtype.type(scale),
            wants_value,
        )
    return value


@compiled
def _concrete_kl(at, highest, theta, precision, grad, scale, wants_value):
    n, dtype = at[INPUTS] * at[OUTPUTS], theta.dtype.type
    logit, total = np.float64(theta[at[THIRD]]), 0.0
    p = 1 / (1 + math.exp(-logit))
    mean, prior = part(theta, at[MEAN], n), part(precision, at[MEAN], n)
    for i in range(n):
        total += prior[i] * mean[i] * mean[i]
    if wants_value:
        return 0.5 * p * total - at[INPUTS] * (softplus(logit) - logit * p)
    grad_mean, factor = part(grad, at[MEAN], n), dtype(scale * p)
    for i in range(n):
        grad_mean[i] += factor * prior[i] * mean[i]
    slope = p * (1 - p) * (0.5 * total + at[INPUTS] * logit)
    grad[at[THIRD]] += dtype(scale * slope)
    return 0.0


@compiled
def _correlated_kl(at, highest, theta, precision, grad, scale, wants_value):
    value, n_inputs = 0.0, at[INPUTS] / at[N_THIRD]
    for k in range(at[THIRD], at[THIRD] + at[N_THIRD]):
        bounded = _bounded(np.float64(theta[k]), highest)
        term, slope = _approximate_kl(bounded, at[KINGMA] != 0)
        if wants_value:
            value += n_inputs * term
        elif bounded == theta[k]:
            grad[k] += theta.dtype.type(scale * n_inputs * slope)
    return value


@compiled
def _independent_kl(at, highest, theta, precision, grad, scale, wants_value):
    """KL of independent multiplicative noise, in float64."""
    value, dtype, n = 0.0, grad.dtype.type, at[INPUTS] * at[OUTPUTS]
    precision = part(precision, at[MEAN], n)
    for i in range(n):
        mean = np.float64(theta[at[MEAN] + i])
        square = mean * mean + MIN_SQUARE
        k = at[THIRD] + i
        if not at[PER_WEIGHT]:
            k = at[THIRD] + (0 if at[N_THIRD] == 1 else i // at[OUTPUTS])
        unbounded = np.float64(theta[k])
        if at[PER_WEIGHT]:
            unbounded -= math.log(square)
        bounded = _bounded(unbounded, highest)
        direct = 0.0
        if at[LOG_UNIFORM]:
            term, slope = _approximate_kl(bounded, at[KINGMA] != 0)
        else:
            variance = math.exp(bounded) * square
            term = 0.5 * (precision[i] * variance - math.log(variance))
            slope = 0.5 * (precision[i] * variance - 1)
            direct = 2 * slope * mean / square
        if wants_value:
            value += term
            continue
        if bounded == unbounded:
            grad[k] += dtype(scale * slope)
            if at[PER_WEIGHT]:
                direct -= 2 * slope * mean / square
        grad[at[MEAN] + i] += dtype(scale * direct)
    return value


KL_KIND = FunctionKind(
    lambda real: types.float64(
        types.int64[::1],
        types.float64,
        *(real[::1],) * 3,
        types.float64,
        types.boolean,
    )
)
_call_kl = KL_KIND.call


@compiled
def kl_extra(at, highest, theta, precision, grad, scale, wants_value):
    """Add ``scale`` times the gradient of the KL's parts that are not quadratic.

    The quadratic parts are sums of curvature / 2 (theta - centre)^2 over the parameters
    mean and bias; the loop adds them.

    precision : of the prior, like ``theta``
    wants_value : whether to return the value, up to a constant, and no gradient
    """
    if at[KL] == 0:
        return 0.0
    return _call_kl(at[KL], at, highest, theta, precision, grad, scale, wants_value)


# ---- functions of the maps

_FACTORS = {
    BERNOULLI: _mask_factors,
    GAUSSIAN: _normal_factors,
    CONCRETE: _concrete_factors,
    CORRELATED: _correlated_factors,
}
_BACKWARD = {CONCRETE: _backward_concrete, CORRELATED: _backward_correlated}
_KL = {
    CONCRETE: _concrete_kl,
    CORRELATED: _correlated_kl,
    MEAN_FIELD: _mean_field_kl,
    INDEPENDENT: _independent_kl,
}


def compile_functions(maps, activation, dtype):
    """Compile the functions that the maps need, and write their addresses to ``maps``.

    maps : ndarray of shape (maps, N_COLUMNS)
    activation : code of the activation between the maps
    """
    of_activation = list(activations.FUNCTIONS.values())[activation]
    for i, at in enumerate(maps):
        code, sampled = at[CODE], samples_outputs.py_func(at[CODE])
        functions = {
            ACTIVATION: (activations.KIND, of_activation if i else None),
            FACTORS: (
                FACTORS_KIND,
                _mask_factors if at[SPIKE] else _FACTORS.get(code),
            ),
            FORWARD: (FORWARD_KIND, _sample_outputs if sampled else None),
            BACKWARD: (
                BACKWARD_KIND,
                _backward_sampled if sampled else _BACKWARD.get(code),
            ),
            KL: (KL_KIND, _KL.get(code)),
        }
        for column, (kind, function) in functions.items():
            at[column] = 0 if function is None else kind.address(function, dtype)
