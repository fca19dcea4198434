"""Compiled variational families; torch's are in `_families`.

A family is one of two kinds of stochastic affine map:

- *scaled inputs*: z = (h * s) M + b with a random factor s for every input and row;
- *sampled outputs*: z = (h * s) M + b + std * e, std^2 = h^2 V + v, by local
  reparameterisation [KSW15 section 2.3], with masks s or s = 1.

``forward`` and ``backward`` are the functions that the loop calls for a map, and
``kl_extra`` adds the parts of the KL that are not quadratic in the means. To add a
family, add its code and its branches in the small functions that they call.

The parameters of a map are M (inputs, outputs), b (outputs,), and up to two further
arrays, flat: rho and bias_rho of a mean field; log_alpha, log_variance, logit or
variance of other families.
"""

import math

import numpy as np
from numba import njit

from skbayesnn._engine.compiled.numerics import (
    OPTIONS,
    exp,
    fill_normal,
    fill_uniform,
    fill_words,
    log,
    sigmoid,
    softplus,
)
from skbayesnn._families.dropout import TEMPERATURE
from skbayesnn._families.variational_dropout import LOWEST_LOG_ALPHA
from skbayesnn._families.weight_noise import MIN_VARIANCE

CODES = {
    name: code
    for code, name in enumerate(
        [
            "point",
            "bernoulli",
            "gaussian",
            "concrete",
            "variational_correlated",
            "dropconnect",
            "additive",
            "mean_field",
            "fixed_width",
            "variational_independent",
        ]
    )
}
(
    POINT,
    BERNOULLI,
    GAUSSIAN,
    CONCRETE,
    CORRELATED,
    DROPCONNECT,
    ADDITIVE,
    MEAN_FIELD,
    FIXED_WIDTH,
    INDEPENDENT,
) = CODES.values()

# Columns of the options of a map.
SPIKE, PER_WEIGHT, LOG_UNIFORM, KINGMA, N_OPTIONS = range(5)
_MIN_SQUARE = 1e-12


@njit(**OPTIONS)
def samples_outputs(code):
    """Whether the map is of the second kind."""
    return code >= DROPCONNECT


@njit(**OPTIONS)
def n_words(code, spike, rows, inputs, outputs):
    """Number of random words of one forward pass."""
    n = rows * inputs
    count = 0
    if code == BERNOULLI or spike:
        count += (n + 3) // 4
    if code == GAUSSIAN or code == CONCRETE or code == CORRELATED:
        count += n + n % 2
    if samples_outputs(code):
        count += rows * outputs + (rows * outputs) % 2
    return count


@njit(**OPTIONS)
def _mask(values, keep, words):
    """Zeros and ones with P(1) = keep, from 16 bits each."""
    dropped = np.int64(np.rint((1.0 - keep) * 65536.0))
    threshold = np.int16(min(dropped - 32768, 32767))
    bits = words.view(np.int16)
    one, zero = values.dtype.type(1), values.dtype.type(0)
    for i in range(values.size):
        values[i] = one if bits[i] >= threshold else zero


@njit(**OPTIONS)
def _bounded(log_alpha, highest):
    return min(max(log_alpha, LOWEST_LOG_ALPHA), highest)


@njit(**OPTIONS)
def _fill_factors(code, keep, further, highest, inputs, s, e, words):
    """Random factors s of the inputs, (rows * inputs,); e : their normal numbers."""
    dtype = s.dtype.type
    if code == BERNOULLI:
        _mask(s, keep, words)
    elif code == GAUSSIAN:
        fill_normal(e, words)
        p, std = dtype(keep), dtype(math.sqrt(keep * (1 - keep)))
        for i in range(s.size):
            s[i] = p + std * e[i]
    elif code == CONCRETE:
        fill_uniform(e, words)
        lowest = dtype(np.finfo(s.dtype).eps)
        logit, scale = further[0], dtype(1 / TEMPERATURE)
        for i in range(s.size):
            u = min(max(e[i], lowest), dtype(1) - lowest)
            s[i] = sigmoid((log(u / (dtype(1) - u)) + logit) * scale)
    else:
        fill_normal(e, words)
        one_alpha = further.size == 1
        for j in range(inputs):
            log_alpha = _bounded(further[0 if one_alpha else j], highest)
            std = dtype(math.exp(0.5 * log_alpha))
            for i in range(s.size // inputs):
                k = i * inputs + j
                s[k] = dtype(1) + std * e[k]


@njit(**OPTIONS)
def _moments(code, option, keep, mean, bias, third, fourth, highest, m, v, bv):
    """Means and variances of the weights, flat, and variances of the biases."""
    dtype = m.dtype.type
    bv[:] = dtype(0)
    if code == DROPCONNECT:
        p, q = dtype(keep), dtype(keep * (1 - keep))
        for i in range(m.size):
            m[i] = p * mean[i]
            v[i] = q * mean[i] * mean[i]
    elif code == ADDITIVE:
        for i in range(m.size):
            m[i] = mean[i]
            v[i] = third[0]
    elif code == MEAN_FIELD or code == FIXED_WIDTH:
        for i in range(m.size):
            m[i] = mean[i]
            sigma = softplus(third[i])
            v[i] = sigma * sigma
        for j in range(bv.size):
            sigma = softplus(fourth[j])
            bv[j] = sigma * sigma
    else:
        outputs = bias.size
        for i in range(m.size):
            m[i] = mean[i]
        if option[PER_WEIGHT]:
            for i in range(m.size):
                square = mean[i] * mean[i]
                log_alpha = third[i] - log(square + dtype(_MIN_SQUARE))
                v[i] = exp(dtype(_bounded(log_alpha, highest))) * square
        else:
            for i in range(m.size // outputs):
                log_alpha = _bounded(third[0 if third.size == 1 else i], highest)
                alpha = dtype(math.exp(log_alpha))
                for k in range(i * outputs, (i + 1) * outputs):
                    v[k] = alpha * mean[k] * mean[k]


@njit(**OPTIONS)
def forward(
    code, option, keep, mean, bias, third, fourth, highest, h, slope, z, work, seed, done
):
    """One stochastic affine map; return the number of words used so far.

    h : (rows, inputs), replaced by h * s
    slope : derivatives of the inputs, (rows, inputs), multiplied by s; or empty
    z : (rows, outputs), written
    work : arrays for ``backward``: s, e, h before, squares of h, (rows, inputs); m, v
        (inputs, outputs); bv (outputs,); normal numbers and std, (rows, outputs); words
    """
    s, e, before, squares, m, v, bv, normal, std, words = work
    rows, inputs = h.shape
    outputs = z.shape[1]
    hf, zf = h.ravel(), z.ravel()
    spike = option[SPIKE] != 0
    if samples_outputs(code):
        for i in range(hf.size):
            before[i] = hf[i]
            squares[i] = hf[i] * hf[i]
    if code == POINT or (samples_outputs(code) and not spike):
        pass
    else:
        if spike or code == BERNOULLI:
            n = (hf.size + 3) // 4
        else:
            n = hf.size + hf.size % 2
        done = fill_words(words[:n], seed, done)
        if spike:
            _mask(s[: hf.size], keep, words[:n])
        else:
            if code == CORRELATED:
                before[: hf.size] = hf
            _fill_factors(
                code, keep, third, highest, inputs, s[: hf.size], e[:n], words[:n]
            )
        for i in range(hf.size):
            hf[i] *= s[i]
        if slope.size and not spike:
            sf = slope.ravel()
            for i in range(sf.size):
                sf[i] *= s[i]
    if not samples_outputs(code):
        np.dot(h, mean, z)
    else:
        _moments(
            code, option, keep, mean.ravel(), bias, third, fourth, highest, m, v, bv
        )
        np.dot(h, m.reshape(inputs, outputs), z)
        n = zf.size + zf.size % 2
        done = fill_words(words[:n], seed, done)
        fill_normal(normal[:n], words[:n])
        variance = std.reshape(rows, outputs)
        np.dot(squares.reshape(rows, inputs), v.reshape(inputs, outputs), variance)
        smallest = z.dtype.type(MIN_VARIANCE)
        for i in range(rows):
            for j in range(outputs):
                value = np.sqrt(variance[i, j] + (bv[j] + smallest))
                variance[i, j] = value
        for i in range(zf.size):
            zf[i] += std[i] * normal[i]
    for i in range(rows):
        row = z[i]
        for j in range(outputs):
            row[j] += bias[j]
    return done


@njit(**OPTIONS)
def _sum_columns(values, total):
    total[:] = values.dtype.type(0)
    for i in range(values.shape[0]):
        row = values[i]
        for j in range(total.size):
            total[j] += row[j]


@njit(**OPTIONS)
def backward(
    code,
    option,
    keep,
    mean,
    bias,
    third,
    fourth,
    highest,
    h,
    slope,
    g,
    work,
    temporary,
    grad_mean,
    grad_bias,
    grad_third,
    grad_fourth,
    grad_h,
):
    """Gradients of the parameters and of the pre-activations of the inputs.

    h, slope, work : as ``forward`` left them
    g : gradient of the outputs, (rows, outputs)
    temporary : arrays: (rows, outputs), and gradients of v (inputs, outputs) and bv
    grad_h : (rows, inputs), written unless empty
    """
    s, e, before, squares, m, v, bv, normal, std, words = work
    rows, inputs = h.shape
    outputs = g.shape[1]
    dtype = h.dtype.type
    needs_inputs = grad_h.size > 0
    np.dot(h.T, g, grad_mean)
    _sum_columns(g, grad_bias)
    hf = h.ravel()
    if not samples_outputs(code):
        learns = code == CONCRETE or code == CORRELATED
        if needs_inputs or learns:
            target = grad_h if needs_inputs else squares.reshape(rows, inputs)
            np.dot(g, mean.T, target)
            tf = target.ravel()
            if code == CONCRETE:
                total = 0.0
                for i in range(hf.size):
                    total += tf[i] * hf[i] * (dtype(1) - s[i])
                grad_third[0] = dtype(total / TEMPERATURE)
            elif code == CORRELATED:
                _grad_log_alpha(third, highest, tf, before, e, inputs, grad_third)
            if needs_inputs:
                sf = slope.ravel()
                for i in range(tf.size):
                    tf[i] *= sf[i]
        return
    scaled, grad_v, grad_bv = temporary
    gf = g.ravel()
    for i in range(gf.size):
        scaled[i] = gf[i] * normal[i] / std[i]
    twice = scaled[: gf.size].reshape(rows, outputs)
    np.dot(squares.reshape(rows, inputs).T, twice, grad_v.reshape(inputs, outputs))
    _sum_columns(twice, grad_bv)
    half = dtype(0.5)
    for i in range(grad_v.size):
        grad_v[i] *= half
    for j in range(outputs):
        grad_bv[j] *= half
    if needs_inputs:
        np.dot(g, m.reshape(inputs, outputs).T, grad_h)
        tf, sf = grad_h.ravel(), slope.ravel()
        if option[SPIKE]:
            for i in range(tf.size):
                tf[i] *= s[i]
        # The squares are no longer needed.
        other = squares.reshape(rows, inputs)
        np.dot(twice, v.reshape(inputs, outputs).T, other)
        for i in range(tf.size):
            tf[i] = (tf[i] + squares[i] * before[i]) * sf[i]
    _moments_back(
        code,
        option,
        keep,
        mean.ravel(),
        third,
        fourth,
        highest,
        outputs,
        grad_mean.ravel(),
        grad_v,
        grad_bv,
        grad_third,
        grad_fourth,
    )


@njit(**OPTIONS)
def _grad_log_alpha(log_alpha, highest, grad_noisy, h, e, inputs, grad):
    """Gradient of log alpha of scaled inputs, through s = 1 + sqrt(alpha) e."""
    grad[:] = grad.dtype.type(0)
    shared = log_alpha.size == 1
    for j in range(inputs):
        k = 0 if shared else j
        bounded = _bounded(log_alpha[k], highest)
        if bounded != log_alpha[k]:
            continue
        total = 0.0
        for i in range(j, grad_noisy.size, inputs):
            total += grad_noisy[i] * h[i] * e[i]
        grad[k] += grad.dtype.type(0.5 * math.exp(0.5 * bounded) * total)


@njit(**OPTIONS)
def _moments_back(
    code, option, keep, mean, third, fourth, highest, outputs, gm, gv, gbv, g3, g4
):
    """From gradients of the moments to those of the parameters; gm in place."""
    dtype = gm.dtype.type
    two = dtype(2)
    if code == DROPCONNECT:
        p, q = dtype(keep), dtype(2 * keep * (1 - keep))
        for i in range(gm.size):
            gm[i] = p * gm[i] + q * mean[i] * gv[i]
    elif code == MEAN_FIELD:
        for i in range(gm.size):
            g3[i] = two * softplus(third[i]) * gv[i] * sigmoid(third[i])
        for j in range(outputs):
            g4[j] = two * softplus(fourth[j]) * gbv[j] * sigmoid(fourth[j])
    elif code == INDEPENDENT:
        if option[PER_WEIGHT]:
            for i in range(gm.size):
                square = mean[i] * mean[i] + dtype(_MIN_SQUARE)
                unbounded = third[i] - log(square)
                bounded = dtype(_bounded(unbounded, highest))
                part = gv[i] * exp(bounded) * mean[i]
                over_log_alpha = part * mean[i] if bounded == unbounded else dtype(0)
                g3[i] = over_log_alpha
                gm[i] += two * part - two * over_log_alpha * mean[i] / square
            return
        g3[:] = dtype(0)
        for i in range(gm.size // outputs):
            k = 0 if third.size == 1 else i
            bounded = _bounded(third[k], highest)
            alpha = dtype(math.exp(bounded))
            total = 0.0
            for j in range(i * outputs, (i + 1) * outputs):
                part = gv[j] * alpha * mean[j]
                total += part * mean[j]
                gm[j] += two * part
            if bounded == third[k]:
                g3[k] += dtype(total)


# ---- the KL


@njit(**OPTIONS)
def _approximate_kl(log_alpha, kingma):
    """KL to the log-uniform prior, and its slope; see `_priors`."""
    if kingma:
        alpha = math.exp(log_alpha)
        polynomial = alpha * (1.16145124 + alpha * (-1.50204118 + alpha * 0.58629921))
        slope = 1.16145124 + alpha * (-2 * 1.50204118 + alpha * 3 * 0.58629921)
        return -0.5 * log_alpha - polynomial, -0.5 - alpha * slope
    share = 1 / (1 + math.exp(-(1.87320 + 1.48695 * log_alpha)))
    value = 0.63576 * (1 - share) + 0.5 * math.log1p(math.exp(-log_alpha))
    slope = -0.63576 * 1.48695 * share * (1 - share)
    return value, slope - 0.5 / (1 + math.exp(log_alpha))


@njit(**OPTIONS)
def kl_extra(
    code,
    option,
    mean,
    bias,
    third,
    fourth,
    highest,
    precision,
    bias_precision,
    scale,
    grad_mean,
    grad_third,
    grad_fourth,
    wants_value,
):
    """Add ``scale`` times the gradient of the KL's parts that are not quadratic.

    The quadratic parts are sums of curvature / 2 (theta - centre)^2 over the parameters
    mean and bias; the loop adds them.

    precision, bias_precision : of the prior, (inputs * outputs,) and (outputs,)
    wants_value : whether to return the value, up to a constant, and no gradient
    """
    dtype = mean.dtype.type
    value, scale = 0.0, dtype(scale)
    if code == MEAN_FIELD:
        if wants_value:
            for i in range(third.size):
                sigma = softplus(third[i])
                value += 0.5 * precision[i] * sigma * sigma - log(sigma)
            for j in range(fourth.size):
                sigma = softplus(fourth[j])
                value += 0.5 * bias_precision[j] * sigma * sigma - log(sigma)
            return value
        one = dtype(1)
        for i in range(third.size):
            sigma = softplus(third[i])
            slope = precision[i] * sigma - one / sigma
            grad_third[i] += scale * slope * sigmoid(third[i])
        for j in range(fourth.size):
            sigma = softplus(fourth[j])
            slope = bias_precision[j] * sigma - one / sigma
            grad_fourth[j] += scale * slope * sigmoid(fourth[j])
    elif code == CONCRETE:
        logit = np.float64(third[0])
        p = 1 / (1 + math.exp(-logit))
        inputs = mean.size // bias.size
        total = 0.0
        for i in range(mean.size):
            total += precision[i] * mean[i] * mean[i]
        if wants_value:
            entropy = max(logit, 0.0) + math.log1p(math.exp(-abs(logit))) - logit * p
            return 0.5 * p * total - inputs * entropy
        factor = scale * dtype(p)
        for i in range(mean.size):
            grad_mean[i] += factor * precision[i] * mean[i]
        grad_third[0] += scale * dtype(p * (1 - p) * (0.5 * total + inputs * logit))
    elif code == CORRELATED:
        n_rows = (mean.size // bias.size) / third.size
        for k in range(third.size):
            bounded = _bounded(np.float64(third[k]), highest)
            term, slope = _approximate_kl(bounded, option[KINGMA] != 0)
            if wants_value:
                value += n_rows * term
            elif bounded == third[k]:
                grad_third[k] += scale * dtype(n_rows * slope)
    elif code == INDEPENDENT:
        outputs = bias.size
        for i in range(mean.size):
            square = np.float64(mean[i]) * mean[i] + _MIN_SQUARE
            if option[PER_WEIGHT]:
                k = i
                unbounded = third[i] - math.log(square)
            else:
                k = 0 if third.size == 1 else i // outputs
                unbounded = np.float64(third[k])
            bounded = _bounded(unbounded, highest)
            direct = 0.0
            if option[LOG_UNIFORM]:
                term, slope = _approximate_kl(bounded, option[KINGMA] != 0)
            else:
                variance = math.exp(bounded) * square
                term = 0.5 * (precision[i] * variance - math.log(variance))
                slope = 0.5 * (precision[i] * variance - 1)
                direct = 2 * slope * mean[i] / square
            if wants_value:
                value += term
                continue
            if bounded == unbounded:
                grad_third[k] += scale * dtype(slope)
                if option[PER_WEIGHT]:
                    direct -= 2 * slope * mean[i] / square
            grad_mean[i] += scale * dtype(direct)
    return value
