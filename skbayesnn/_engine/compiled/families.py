"""Compiled variational families; torch's are in `_families`.

A family is one of two kinds of stochastic affine map, for a batch of rows:

- *scaled inputs*: outputs = (inputs * factors) M + b, with random factors for every
  input and row;
- *sampled outputs*: the same plus std * normal, with std^2 = inputs^2 V + v, by local
  reparameterisation [KSW15 section 2.3]; the factors are the masks of a spike, or one.

``forward`` and ``backward`` are the functions that the loop calls for a map:

    outputs of the map before        gradients of these
          |                                ^
          | activation                     | * slopes
          v                                |
    layer inputs --> clean inputs    input gradients <--------------+
          |        |                       ^                        |
          |        +--> squared inputs     | factors, M^T           | V^T
          | * factors      |               |                        |
          v                v         output gradients --> variance gradients
    layer inputs M    squares V            |                        |
          |                |               v                        v
          + bias           | sqrt    gradients of M, b       gradients of V, v
          |                v               |                        |
          +-------> + std * normal         +--> gradients of the parameters
          v
    outputs: layer inputs of the next map

Clean inputs, squares, V and normal numbers exist for sampled outputs. ``kl_extra`` adds
the parts of the KL that are not quadratic in M and b.

A map is described by a row of integers, ``map_row``: options and sizes; addresses of
the functions of its family, which ``compile_functions`` writes; and starts of its
arrays. All arrays are parts of three vectors: parameters, their gradients, and the
workspace. Tuples or lists of arrays would take several times as long to compile.
``array_of`` is the array of a column.

    family                   noise, bias noise   factors  arrays of the workspace
    point                                                 layer inputs, slopes
    bernoulli                                    masks    + factors
    gaussian                                     normal   + factors, random numbers
    concrete                 logit               relaxed  + factors, random numbers
    variational_correlated   log_alpha           normal   + the same, clean inputs
    mean_field, fixed_width  rho, bias_rho       masks    all; factors with a spike

CONTRIBUTING.md has the list of what a new family needs here.
"""

import math

import numpy as np
from numba import types

from skbayesnn._engine.compiled import activations
from skbayesnn._engine.compiled.numerics import (
    FunctionKind,
    compiled,
    copy,
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
from skbayesnn._families.variational_dropout import MIN_LOG_ALPHA
from skbayesnn._families.weight_noise import MIN_VARIANCE
from skbayesnn._priors import KINGMA_COEFFICIENTS, MOLCHANOV_COEFFICIENTS

# Families that scale the inputs, and families that sample the outputs.
_SCALING = "point", "bernoulli", "gaussian", "concrete", "variational_correlated"
_SAMPLING = "mean_field", "fixed_width"
CODES = {name: code for code, name in enumerate(_SCALING + _SAMPLING)}
POINT, BERNOULLI, GAUSSIAN, CONCRETE, CORRELATED = range(len(_SCALING))
MEAN_FIELD, FIXED_WIDTH = range(len(_SCALING), len(CODES))
_FIRST_SAMPLING = len(_SCALING)

# ---- the row of integers of a map
#
# The columns are integers of NumPy. A function with a Python constant as an argument
# would be compiled once for every value.

(
    # Options.
    FAMILY,  # a value of CODES
    HAS_SPIKE,  # whether masks multiply the inputs before the outputs are sampled
    KINGMA,  # whether the KL of a variational family is Kingma's, or else Molchanov's
    # Sizes.
    N_ROWS,  # rows of a batch
    N_INPUTS,
    N_OUTPUTS,
    N_NOISE,  # parameters of the noise: 0, 1, inputs, or inputs * outputs
    # Addresses of functions, or 0.
    ACTIVATION_ADDRESS,  # of the inputs
    FACTORS_ADDRESS,  # draws the factors
    SAMPLE_ADDRESS,  # samples the outputs
    BACKWARD_ADDRESS,  # gradients that the plain affine map does not have
    KL_ADDRESS,  # parts of the KL that are not quadratic
    # Starts in the vectors of parameters and gradients.
    MEAN,  # M (inputs, outputs)
    BIAS,  # b (outputs,)
    NOISE,  # rho, log_alpha or logit
    BIAS_NOISE,  # bias_rho
    PARAMETERS_END,
    # Starts in the workspace.
    LAYER_INPUTS,  # (rows, inputs): pre-activations, then activations, then * factors
    SLOPES,  # (rows, inputs), derivatives of the activations
    FACTORS,  # (rows, inputs)
    RANDOM_NUMBERS,  # (rows, inputs), from which factors are computed
    CLEAN_INPUTS,  # (rows, inputs), without the factors
    SQUARED_INPUTS,  # (rows, inputs), of the clean inputs
    WEIGHT_VARIANCES,  # V (inputs, outputs)
    VARIANCE_GRADIENTS,  # (inputs, outputs)
    BIAS_VARIANCES,  # v (outputs,)
    OUTPUT_NORMALS,  # (rows, outputs), normal numbers
    OUTPUT_STDS,  # (rows, outputs)
    WORKSPACE_END,
    N_COLUMNS,
) = map(np.int64, range(30))


@compiled
def samples_outputs(family):
    """Whether the map is of the second kind."""
    return family >= _FIRST_SAMPLING


@compiled
def part(vector, start, size):
    """A part of a vector, without a copy."""
    return vector[start : start + size]


@compiled
def array_of(vector, map_row, column):
    """The array whose start a column is; it ends where the next one starts."""
    return vector[map_row[column] : map_row[column + 1]]


@compiled
def shape_of(map_row):
    """Rows, inputs and outputs of a map."""
    return map_row[N_ROWS], map_row[N_INPUTS], map_row[N_OUTPUTS]


@compiled
def lay_out(map_row, start):
    """Set the starts of a map's arrays in the workspace; return their end."""
    family = map_row[FAMILY]
    n_rows, n_inputs, n_outputs = shape_of(map_row)
    of_inputs, of_outputs = n_rows * n_inputs, n_rows * n_outputs
    of_weights = n_inputs * n_outputs
    # Whether the map has factors, samples its outputs, and needs the clean inputs.
    is_sampled = samples_outputs(family)
    is_scaled = map_row[HAS_SPIKE] != 0 or (family != POINT and not is_sampled)
    is_copied = is_sampled or family == CORRELATED
    # Normal numbers are drawn in pairs.
    sizes = (
        of_inputs,
        of_inputs,
        of_inputs if is_scaled else 0,
        of_inputs + of_inputs % 2 if is_scaled else 0,
        of_inputs if is_copied else 0,
        of_inputs if is_sampled else 0,
        of_weights if is_sampled else 0,
        of_weights if is_sampled else 0,
        n_outputs if is_sampled else 0,
        of_outputs + of_outputs % 2 if is_sampled else 0,
        of_outputs if is_sampled else 0,
    )
    for k in range(len(sizes)):
        map_row[LAYER_INPUTS + k] = start
        start += sizes[k]
    map_row[WORKSPACE_END] = start
    return start


# ---- random words


@compiled
def _fill_words(words, n, per_word, seed, n_used):
    """Write the words for n random numbers; return the count of words used.

    per_word : random numbers per word: four masks, or one number of a pair
    """
    n_words = (n + 3) // 4 if per_word == 4 else n + n % 2
    return fill_words(words[:n_words], seed, n_used)


# ---- factors of the inputs


@compiled
def _bounded(log_alpha, max_log_alpha):
    return min(max(log_alpha, MIN_LOG_ALPHA), max_log_alpha)


@compiled
def _noise_step(map_row):
    """Step from the noise parameter of an input to the next; 0 if all share it."""
    return 0 if map_row[N_NOISE] == 1 else 1


@compiled
def _mask_factors(map_row, keep, max_log_alpha, parameters, workspace, words):
    """Zeros and ones with P(1) = keep, from 16 bits each."""
    factors = array_of(workspace, map_row, FACTORS)
    n_dropped = np.int64(np.rint((1.0 - keep) * STEPS_OF_16_BITS))
    half = STEPS_OF_16_BITS // 2
    threshold = np.int16(min(n_dropped - half, half - 1))  # type: ignore[arg-type]
    bits = words.view(np.int16)
    one, zero = workspace.dtype.type(1), workspace.dtype.type(0)
    for i in range(factors.size):
        factors[i] = one if bits[i] >= threshold else zero


@compiled
def _normal_factors(map_row, keep, max_log_alpha, parameters, workspace, words):
    """Numbers from N(p, p (1 - p)), p = keep."""
    factors = array_of(workspace, map_row, FACTORS)
    normals = array_of(workspace, map_row, RANDOM_NUMBERS)
    fill_normal(normals, words)
    dtype = workspace.dtype.type
    mean, std = dtype(keep), dtype(math.sqrt(keep * (1 - keep)))
    for i in range(factors.size):
        factors[i] = mean + std * normals[i]


@compiled
def _concrete_factors(map_row, keep, max_log_alpha, parameters, workspace, words):
    """Relaxed masks in (0, 1); the logit of p is a parameter."""
    factors = array_of(workspace, map_row, FACTORS)
    uniforms = array_of(workspace, map_row, RANDOM_NUMBERS)
    fill_uniform(uniforms, words)
    dtype = workspace.dtype.type
    one, lowest = dtype(1), dtype(np.finfo(workspace.dtype).eps)
    logit, scale = parameters[map_row[NOISE]], dtype(1 / TEMPERATURE)
    for i in range(factors.size):
        u = min(max(uniforms[i], lowest), one - lowest)
        factors[i] = sigmoid((log(u / (one - u)) + logit) * scale)


@compiled
def _correlated_factors(map_row, keep, max_log_alpha, parameters, workspace, words):
    """Numbers from N(1, alpha), with an alpha for every input or one for all."""
    n_inputs, noise_step = map_row[N_INPUTS], _noise_step(map_row)
    factors = array_of(workspace, map_row, FACTORS)
    normals = array_of(workspace, map_row, RANDOM_NUMBERS)
    noise = array_of(parameters, map_row, NOISE)
    fill_normal(normals, words)
    dtype = workspace.dtype.type
    one, stds = dtype(1), np.empty(n_inputs, workspace.dtype)
    for j in range(n_inputs):
        log_alpha = _bounded(noise[noise_step * j], max_log_alpha)
        stds[j] = dtype(math.exp(0.5 * log_alpha))
    for i in range(map_row[N_ROWS]):
        for j in range(n_inputs):
            factors[i * n_inputs + j] = one + stds[j] * normals[i * n_inputs + j]


# ---- sampled outputs


@compiled
def _fill_variances(map_row, parameters, workspace):
    """Variances softplus(rho)^2 of weights and biases."""
    for rho, variances in ((NOISE, WEIGHT_VARIANCES), (BIAS_NOISE, BIAS_VARIANCES)):
        noise = array_of(parameters, map_row, rho)
        squares = array_of(workspace, map_row, variances)
        for i in range(noise.size):
            sigma = softplus(noise[i])
            squares[i] = sigma * sigma


@compiled
def _sample_outputs(
    map_row, keep, max_log_alpha, parameters, workspace, outputs, words, seed, n_used
):
    """A product with M, and a normal sample; the biases are not added."""
    shape = shape_of(map_row)
    n_rows, n_outputs = shape[0], shape[2]
    _fill_variances(map_row, parameters, workspace)
    layer_inputs = array_of(workspace, map_row, LAYER_INPUTS)
    squared_inputs = array_of(workspace, map_row, SQUARED_INPUTS)
    mean = array_of(parameters, map_row, MEAN)
    weight_variances = array_of(workspace, map_row, WEIGHT_VARIANCES)
    bias_variances = array_of(workspace, map_row, BIAS_VARIANCES)
    normals = array_of(workspace, map_row, OUTPUT_NORMALS)
    stds = array_of(workspace, map_row, OUTPUT_STDS)
    product(layer_inputs, mean, outputs, shape)
    product(squared_inputs, weight_variances, stds, shape)
    n_used = _fill_words(words, n_rows * n_outputs, 1, seed, n_used)
    fill_normal(normals, words)
    smallest = workspace.dtype.type(MIN_VARIANCE)
    for i in range(n_rows):
        row = part(stds, i * n_outputs, n_outputs)
        for j in range(n_outputs):
            row[j] = np.sqrt(row[j] + (bias_variances[j] + smallest))
    for i in range(stds.size):
        outputs[i] += stds[i] * normals[i]
    return n_used


# ---- gradients


@compiled
def _sum_rows(values, n_rows, total):
    fill(total, values.dtype.type(0))
    n = total.size
    for i in range(n_rows):
        row = part(values, i * n, n)
        for j in range(n):
            total[j] += row[j]


@compiled
def _variances_back(map_row, parameters, workspace, gradients):
    """Gradients of rho, on which the variances depend.

    The standard deviations are already replaced by twice the gradient of their squares.
    """
    noise = array_of(parameters, map_row, NOISE)
    to_noise = array_of(gradients, map_row, NOISE)
    twice = array_of(workspace, map_row, OUTPUT_STDS)
    squared_inputs = array_of(workspace, map_row, SQUARED_INPUTS)
    twice_to_variance = array_of(workspace, map_row, VARIANCE_GRADIENTS)
    product_over_rows(squared_inputs, twice, twice_to_variance, shape_of(map_row))
    for i in range(noise.size):
        slope = softplus(noise[i]) * sigmoid(noise[i])
        to_noise[i] = slope * twice_to_variance[i]
    bias_noise = array_of(parameters, map_row, BIAS_NOISE)
    to_bias_noise = array_of(gradients, map_row, BIAS_NOISE)
    _sum_rows(twice, map_row[N_ROWS], to_bias_noise)
    for j in range(bias_noise.size):
        to_bias_noise[j] *= softplus(bias_noise[j]) * sigmoid(bias_noise[j])


@compiled
def _backward_sampled(
    map_row,
    keep,
    max_log_alpha,
    parameters,
    workspace,
    gradients,
    output_gradients,
    input_gradients,
    needs_inputs,
):
    """Gradients through sampled outputs."""
    shape = shape_of(map_row)
    normals = array_of(workspace, map_row, OUTPUT_NORMALS)
    # The standard deviations are replaced by twice the gradient of the variances.
    twice = array_of(workspace, map_row, OUTPUT_STDS)
    for i in range(twice.size):
        twice[i] = output_gradients[i] * normals[i] / twice[i]
    if map_row[FAMILY] == MEAN_FIELD:  # Otherwise the variances are constant.
        _variances_back(map_row, parameters, workspace, gradients)
    if needs_inputs:
        squared_inputs = array_of(workspace, map_row, SQUARED_INPUTS)
        mean = array_of(parameters, map_row, MEAN)
        weight_variances = array_of(workspace, map_row, WEIGHT_VARIANCES)
        product_back(output_gradients, mean, input_gradients, shape)
        # The squares are no longer needed.
        product_back(twice, weight_variances, squared_inputs, shape)
        clean_inputs = array_of(workspace, map_row, CLEAN_INPUTS)
        if map_row[HAS_SPIKE]:
            factors = array_of(workspace, map_row, FACTORS)
            for i in range(factors.size):
                input_gradients[i] *= factors[i]
        for i in range(clean_inputs.size):
            input_gradients[i] += squared_inputs[i] * clean_inputs[i]


@compiled
def _backward_concrete(
    map_row,
    keep,
    max_log_alpha,
    parameters,
    workspace,
    gradients,
    output_gradients,
    input_gradients,
    needs_inputs,
):
    """The gradient of the logit of the dropout rate."""
    mean = array_of(parameters, map_row, MEAN)
    layer_inputs = array_of(workspace, map_row, LAYER_INPUTS)
    factors = array_of(workspace, map_row, FACTORS)
    product_back(output_gradients, mean, input_gradients, shape_of(map_row))
    one, total = workspace.dtype.type(1), 0.0
    for i in range(factors.size):
        total += input_gradients[i] * layer_inputs[i] * (one - factors[i])
    gradients[map_row[NOISE]] = workspace.dtype.type(total / TEMPERATURE)


@compiled
def _backward_correlated(
    map_row,
    keep,
    max_log_alpha,
    parameters,
    workspace,
    gradients,
    output_gradients,
    input_gradients,
    needs_inputs,
):
    """The gradient of log alpha, through factors 1 + sqrt(alpha) * normal."""
    shape = shape_of(map_row)
    n_rows, n_inputs = shape[0], shape[1]
    mean = array_of(parameters, map_row, MEAN)
    noise = array_of(parameters, map_row, NOISE)
    to_noise = array_of(gradients, map_row, NOISE)
    clean_inputs = array_of(workspace, map_row, CLEAN_INPUTS)
    normals = array_of(workspace, map_row, RANDOM_NUMBERS)
    product_back(output_gradients, mean, input_gradients, shape)
    dtype, noise_step = workspace.dtype, _noise_step(map_row)
    over_stds = np.empty(n_inputs, dtype)
    fill(over_stds, dtype.type(0))
    for i in range(n_rows):
        row_inputs = part(clean_inputs, i * n_inputs, n_inputs)
        row_normals = part(normals, i * n_inputs, n_inputs)
        row_gradients = part(input_gradients, i * n_inputs, n_inputs)
        for j in range(n_inputs):
            over_stds[j] += row_gradients[j] * row_inputs[j] * row_normals[j]
    fill(to_noise, dtype.type(0))
    for j in range(n_inputs):
        log_alpha = noise[noise_step * j]
        bounded = _bounded(log_alpha, max_log_alpha)
        if bounded == log_alpha:
            std = math.exp(0.5 * bounded)
            to_noise[noise_step * j] += dtype.type(0.5 * std * over_stds[j])


# ---- one map


def _signature(real, result, *further):
    """Signature of a function of (map_row, keep, max_log_alpha, parameters, ...)."""
    vector = real[::1]
    first = types.int64[::1], types.float64, types.float64, vector, vector
    return result(*first, *further)


FACTORS_KIND = FunctionKind(
    lambda real: _signature(real, types.void, types.uint64[::1])
)
SAMPLE_KIND = FunctionKind(
    lambda real: _signature(
        real, types.int64, real[::1], types.uint64[::1], types.uint64, types.int64
    )
)
BACKWARD_KIND = FunctionKind(
    lambda real: _signature(real, types.void, *(real[::1],) * 3, types.boolean)
)
_call_factors, _call_sample, _call_backward = (
    kind.call for kind in (FACTORS_KIND, SAMPLE_KIND, BACKWARD_KIND)
)


@compiled
def forward(
    map_row,
    keep,
    max_log_alpha,
    parameters,
    workspace,
    outputs,
    words,
    seed,
    n_used,
    is_first,
):
    """One stochastic affine map of a batch; return the number of words used so far.

    The layer inputs are multiplied by the factors, and so are their derivatives if the
    map scales its inputs.

    map_row : integers that describe the map, see above
    keep, max_log_alpha : keep probability; upper bound of log alpha
    parameters, workspace : vectors of all maps
    outputs : (rows * outputs,), written
    words : space for random words
    seed, n_used : sequence of words, and the number of words used before
    is_first : whether the map has the inputs of the network, without derivatives
    """
    family, has_spike = map_row[FAMILY], map_row[HAS_SPIKE] != 0
    is_sampled, n_outputs = samples_outputs(family), map_row[N_OUTPUTS]
    layer_inputs = array_of(workspace, map_row, LAYER_INPUTS)
    n = layer_inputs.size
    if (is_sampled and not is_first) or family == CORRELATED:
        copy(layer_inputs, array_of(workspace, map_row, CLEAN_INPUTS))
    if is_sampled:
        squared_inputs = array_of(workspace, map_row, SQUARED_INPUTS)
        for i in range(n):
            squared_inputs[i] = layer_inputs[i] * layer_inputs[i]
    if has_spike or (family != POINT and not is_sampled):
        per_word = 4 if has_spike or family == BERNOULLI else 1
        n_used = _fill_words(words, n, per_word, seed, n_used)
        _call_factors(
            map_row[FACTORS_ADDRESS],
            map_row,
            keep,
            max_log_alpha,
            parameters,
            workspace,
            words,
        )
        factors = array_of(workspace, map_row, FACTORS)
        for i in range(n):
            layer_inputs[i] *= factors[i]
        if not has_spike and not is_first:
            slopes = array_of(workspace, map_row, SLOPES)
            for i in range(n):
                slopes[i] *= factors[i]
    if is_sampled:
        n_used = _call_sample(
            map_row[SAMPLE_ADDRESS],
            map_row,
            keep,
            max_log_alpha,
            parameters,
            workspace,
            outputs,
            words,
            seed,
            n_used,
        )
    else:
        mean = array_of(parameters, map_row, MEAN)
        product(layer_inputs, mean, outputs, shape_of(map_row))
    bias = array_of(parameters, map_row, BIAS)
    for i in range(map_row[N_ROWS]):
        row = part(outputs, i * n_outputs, n_outputs)
        for j in range(n_outputs):
            row[j] += bias[j]
    return n_used


@compiled
def backward(
    map_row,
    keep,
    max_log_alpha,
    parameters,
    workspace,
    gradients,
    output_gradients,
    input_gradients,
    needs_inputs,
):
    """Gradients of the parameters, written to ``gradients``; after ``forward``.

    output_gradients : (rows * outputs,)
    input_gradients : (rows * inputs,), of the inputs before their activation; written
    needs_inputs : whether ``input_gradients`` is needed
    """
    shape = shape_of(map_row)
    layer_inputs = array_of(workspace, map_row, LAYER_INPUTS)
    to_mean = array_of(gradients, map_row, MEAN)
    product_over_rows(layer_inputs, output_gradients, to_mean, shape)
    _sum_rows(output_gradients, shape[0], array_of(gradients, map_row, BIAS))
    if map_row[BACKWARD_ADDRESS]:
        _call_backward(
            map_row[BACKWARD_ADDRESS],
            map_row,
            keep,
            max_log_alpha,
            parameters,
            workspace,
            gradients,
            output_gradients,
            input_gradients,
            needs_inputs,
        )
    elif needs_inputs:
        mean = array_of(parameters, map_row, MEAN)
        product_back(output_gradients, mean, input_gradients, shape)
    if needs_inputs:
        slopes = array_of(workspace, map_row, SLOPES)
        for i in range(slopes.size):
            input_gradients[i] *= slopes[i]


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
def _sigma_kl(rho, precision, gradients, scale, wants_value):
    """Parts of the KL that depend on the standard deviations softplus(rho)."""
    value, one = 0.0, rho.dtype.type(1)
    if wants_value:
        for i in range(rho.size):
            sigma = softplus(rho[i])
            value += 0.5 * precision[i] * sigma * sigma - log(sigma)
        return value
    for i in range(rho.size):
        sigma = softplus(rho[i])
        gradients[i] += scale * (precision[i] * sigma - one / sigma) * sigmoid(rho[i])
    return value


@compiled
def _mean_field_kl(
    map_row, max_log_alpha, parameters, precision, gradients, scale, wants_value
):
    value = 0.0
    for noise, of_prior in ((NOISE, MEAN), (BIAS_NOISE, BIAS)):
        value += _sigma_kl(
            array_of(parameters, map_row, noise),
            array_of(precision, map_row, of_prior),
            array_of(gradients, map_row, noise),
            parameters.dtype.type(scale),
            wants_value,
        )
    return value


@compiled
def _concrete_kl(
    map_row, max_log_alpha, parameters, precision, gradients, scale, wants_value
):
    mean = array_of(parameters, map_row, MEAN)
    of_prior = array_of(precision, map_row, MEAN)
    n_inputs, dtype = map_row[N_INPUTS], parameters.dtype.type
    logit, total = np.float64(parameters[map_row[NOISE]]), 0.0
    p = 1 / (1 + math.exp(-logit))
    for i in range(mean.size):
        total += of_prior[i] * mean[i] * mean[i]
    if wants_value:
        return 0.5 * p * total - n_inputs * (softplus(logit) - logit * p)
    to_mean, factor = array_of(gradients, map_row, MEAN), dtype(scale * p)
    for i in range(mean.size):
        to_mean[i] += factor * of_prior[i] * mean[i]
    slope = p * (1 - p) * (0.5 * total + n_inputs * logit)
    gradients[map_row[NOISE]] += dtype(scale * slope)
    return 0.0


@compiled
def _correlated_kl(
    map_row, max_log_alpha, parameters, precision, gradients, scale, wants_value
):
    noise = array_of(parameters, map_row, NOISE)
    to_noise = array_of(gradients, map_row, NOISE)
    value, n_inputs = 0.0, map_row[N_INPUTS] / map_row[N_NOISE]
    for k in range(noise.size):
        bounded = _bounded(np.float64(noise[k]), max_log_alpha)
        term, slope = _approximate_kl(bounded, map_row[KINGMA] != 0)
        if wants_value:
            value += n_inputs * term
        elif bounded == noise[k]:
            to_noise[k] += parameters.dtype.type(scale * n_inputs * slope)
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
def kl_extra(
    map_row, max_log_alpha, parameters, precision, gradients, scale, wants_value
):
    """Add ``scale`` times the gradient of the KL's parts that are not quadratic.

    The quadratic parts are sums of curvature / 2 (parameter - centre)^2 over M and b;
    the loop adds them.

    precision : of the prior, like ``parameters``
    wants_value : whether to return the value, up to a constant, and no gradient
    """
    if map_row[KL_ADDRESS] == 0:
        return 0.0
    return _call_kl(
        map_row[KL_ADDRESS],
        map_row,
        max_log_alpha,
        parameters,
        precision,
        gradients,
        scale,
        wants_value,
    )


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
}


def compile_functions(maps, activation, dtype):
    """Compile the functions that the maps need, and write their addresses to ``maps``.

    maps : ndarray of shape (maps, N_COLUMNS)
    activation : code of the activation between the maps
    """
    of_activation = list(activations.FUNCTIONS.values())[activation]
    for i, map_row in enumerate(maps):
        family = map_row[FAMILY]
        is_sampled = samples_outputs.py_func(family)
        functions = {
            ACTIVATION_ADDRESS: (activations.KIND, of_activation if i else None),
            FACTORS_ADDRESS: (
                FACTORS_KIND,
                _mask_factors if map_row[HAS_SPIKE] else _FACTORS.get(family),
            ),
            SAMPLE_ADDRESS: (SAMPLE_KIND, _sample_outputs if is_sampled else None),
            BACKWARD_ADDRESS: (
                BACKWARD_KIND,
                _backward_sampled if is_sampled else _BACKWARD.get(family),
            ),
            KL_ADDRESS: (KL_KIND, _KL.get(family)),
        }
        for column, (kind, function) in functions.items():
            map_row[column] = 0 if function is None else kind.address(function, dtype)
