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

A map is a record, ``MAP``: options and sizes; addresses of the functions of its family,
which ``compile_functions`` writes; and the spans of its arrays in the vectors of
``Arrays``. Tuples or lists of arrays would take several times as long to compile.

    family                   noise, bias noise   factors  arrays of the workspace
    point                                                 layer inputs, slopes
    bernoulli                                    masks    + factors
    gaussian                                     normal   + factors, random numbers
    concrete                 logit               relaxed  + factors, random numbers
    variational_correlated   log_alpha           normal   + the same, clean inputs
    mean_field, fixed_width  rho, bias_rho       masks    all; factors with a spike

A new family is trained by torch until it is here. What it needs:

1. its name in ``_SCALING`` (families that scale the inputs) or ``_SAMPLING`` (families
   that sample the outputs), and a constant like ``POINT`` or ``MEAN_FIELD`` at the same
   position in the assignment below;
2. if it scales the inputs, a function in ``_FACTORS`` that draws the factors, and one
   in ``_BACKWARD`` with the gradients of parameters other than mean and bias. If it
   samples the outputs, branches in ``_sample_outputs`` and ``_backward_sampled``;
3. a function in ``_KL``, if the KL has parts that are not quadratic in mean and bias;
4. in ``run.py``, the fields of its parameters in ``_NOISE``, and the ratio in
   ``_curvature_factor``, if the KL has another curvature in the mean than the prior;
5. a case in ``POSTERIORS`` of ``tests/engine/test_compiled.py``, which compares the
   loop with torch step by step.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import from_dtype, types

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

# ---- the record of a map, and the arrays of a network

# Start of an array in a vector, and its end.
SPAN = np.dtype([("start", np.int64), ("stop", np.int64)])
# Arrays of parameters, and of the prior's precisions and the gradients.
_PARAMETERS = (
    "mean",  # M (inputs, outputs)
    "bias",  # b (outputs,)
    "noise",  # rho, log_alpha or logit
    "bias_noise",  # bias_rho
)
_WORKSPACE = (
    "layer_inputs",  # (rows, inputs): pre-activations, activations, then * factors
    "slopes",  # (rows, inputs), derivatives of the activations
    "factors",  # (rows, inputs)
    "random_numbers",  # (rows, inputs), from which factors are computed
    "clean_inputs",  # (rows, inputs), without the factors
    "squared_inputs",  # (rows, inputs), of the clean inputs
    "weight_variances",  # V (inputs, outputs)
    "variance_gradients",  # (inputs, outputs)
    "bias_variances",  # v (outputs,)
    "output_normals",  # (rows, outputs), normal numbers
    "output_stds",  # (rows, outputs)
    "outputs",  # (rows, outputs), layer inputs of the next map, if there is one
    "output_gradients",  # (rows, outputs)
    "input_gradients",  # (rows, inputs), of the inputs before their activation
)
MAP = np.dtype(
    [
        ("family", np.int64),  # a value of CODES
        ("is_sampled", np.bool_),  # whether the map is of the second kind
        ("has_spike", np.bool_),  # whether masks multiply the inputs before that
        ("is_first", np.bool_),  # whether the inputs need no gradients
        ("kingma", np.bool_),  # Kingma's KL of a variational family, or Molchanov's
        ("n_rows", np.int64),  # rows of a batch
        ("n_inputs", np.int64),
        ("n_outputs", np.int64),
        ("n_noise", np.int64),  # parameters of the noise: 0, 1, inputs, or weights
        ("keep", np.float64),
        ("max_log_alpha", np.float64),
        # Addresses of functions, or 0.
        ("activation_address", np.int64),  # of the inputs
        ("factors_address", np.int64),  # draws the factors
        ("sample_address", np.int64),  # samples the outputs
        ("backward_address", np.int64),  # gradients that an affine map does not have
        ("kl_address", np.int64),  # parts of the KL that are not quadratic
        *((name, SPAN) for name in _PARAMETERS + _WORKSPACE),
    ],
    align=True,
)
# Seed of a sequence of random words, and the number of words used so far.
STREAM = np.dtype([("seed", np.uint64), ("n_used", np.int64)])


class Arrays(NamedTuple):
    """Vectors with the arrays of all maps; ``array_of`` is one of these.

    Parameters
    ----------
    parameters, gradients, precision, workspace : ndarray
        Precision is the prior's, like the parameters.
    words : ndarray of uint64
        Space for random words.
    stream : ndarray of shape (1,), STREAM
    """

    parameters: np.ndarray
    gradients: np.ndarray
    precision: np.ndarray
    workspace: np.ndarray
    words: np.ndarray
    stream: np.ndarray


@compiled
def array_of(vector, span):
    """The array of a span, without a copy."""
    return vector[span.start : span.stop]


@compiled
def part(vector, start, size):
    """A part of a vector, without a copy."""
    return vector[start : start + size]


@compiled
def shape_of(m):
    """Rows, inputs and outputs of a map."""
    return m.n_rows, m.n_inputs, m.n_outputs


def lay_out(maps) -> None:
    """Set the spans of the arrays in the workspace; gradients of inputs are the last.

    maps : ndarray of MAP, with sizes
    """
    end = 0
    n_values = [m["n_rows"] * max(m["n_inputs"], m["n_outputs"]) for m in maps]

    def place(m, name, size):
        nonlocal end
        m[name] = end, end + size
        end += size

    for m in maps:
        n_rows, n_inputs, n_outputs = m["n_rows"], m["n_inputs"], m["n_outputs"]
        of_inputs, of_outputs = n_rows * n_inputs, n_rows * n_outputs
        of_weights = n_inputs * n_outputs
        is_sampled, family = m["is_sampled"], m["family"]
        is_scaled = m["has_spike"] or (family != POINT and not is_sampled)
        sizes = {"layer_inputs": of_inputs, "slopes": of_inputs}
        if is_scaled:
            # Normal numbers are drawn in pairs.
            random_numbers = of_inputs + of_inputs % 2
            sizes |= {"factors": of_inputs, "random_numbers": random_numbers}
        if is_sampled or family == CORRELATED:
            sizes["clean_inputs"] = of_inputs
        if is_sampled:
            sizes |= {
                "squared_inputs": of_inputs,
                "weight_variances": of_weights,
                "variance_gradients": of_weights,
                "bias_variances": n_outputs,
                "output_normals": of_outputs + of_outputs % 2,
                "output_stds": of_outputs,
            }
        for name, size in sizes.items():
            place(m, name, size)
    last = maps[-1]
    place(last, "outputs", last["n_rows"] * last["n_outputs"])
    last["output_gradients"] = last["outputs"]
    for m, following in pairwise(maps):
        m["outputs"] = following["layer_inputs"]
    # The gradients of the inputs of two consecutive maps are in two places.
    for first in range(2):
        for m in maps[first::2]:
            m["input_gradients"] = end, end + m["n_rows"] * m["n_inputs"]
        end += max(n_values)
    for m, following in pairwise(maps):
        m["output_gradients"] = following["input_gradients"]


# ---- random words


@compiled
def _draw_words(arrays, n, per_word):
    """Write the words for n random numbers.

    per_word : random numbers per word: four masks, or one number of a pair
    """
    n_words = (n + 3) // 4 if per_word == 4 else n + n % 2
    stream = arrays.stream[0]
    stream.n_used = fill_words(arrays.words[:n_words], stream.seed, stream.n_used)


# ---- factors of the inputs


@compiled
def _bounded(log_alpha, m):
    return min(max(log_alpha, MIN_LOG_ALPHA), m.max_log_alpha)


@compiled
def _noise_step(m):
    """Step from the noise parameter of an input to the next; 0 if all share it."""
    return 0 if m.n_noise == 1 else 1


@compiled
def _mask_factors(m, arrays):
    """Zeros and ones with P(1) = keep, from 16 bits each."""
    factors = array_of(arrays.workspace, m.factors)
    n_dropped = np.int64(np.rint((1.0 - m.keep) * STEPS_OF_16_BITS))
    half = STEPS_OF_16_BITS // 2
    threshold = np.int16(min(n_dropped - half, np.int64(half - 1)))
    bits = arrays.words.view(np.int16)
    one, zero = factors.dtype.type(1), factors.dtype.type(0)
    for i in range(factors.size):
        factors[i] = one if bits[i] >= threshold else zero


@compiled
def _normal_factors(m, arrays):
    """Numbers from N(p, p (1 - p)), p = keep."""
    factors = array_of(arrays.workspace, m.factors)
    normals = array_of(arrays.workspace, m.random_numbers)
    fill_normal(normals, arrays.words)
    dtype = factors.dtype.type
    mean, std = dtype(m.keep), dtype(math.sqrt(m.keep * (1 - m.keep)))
    for i in range(factors.size):
        factors[i] = mean + std * normals[i]


@compiled
def _concrete_factors(m, arrays):
    """Relaxed masks in (0, 1); the logit of p is a parameter."""
    factors = array_of(arrays.workspace, m.factors)
    uniforms = array_of(arrays.workspace, m.random_numbers)
    fill_uniform(uniforms, arrays.words)
    dtype = factors.dtype.type
    one, lowest = dtype(1), dtype(np.finfo(factors.dtype).eps)
    logit, scale = arrays.parameters[m.noise.start], dtype(1 / TEMPERATURE)
    for i in range(factors.size):
        u = min(max(uniforms[i], lowest), one - lowest)
        factors[i] = sigmoid((log(u / (one - u)) + logit) * scale)


@compiled
def _correlated_factors(m, arrays):
    """Numbers from N(1, alpha), with an alpha for every input or one for all."""
    n_inputs, noise_step = m.n_inputs, _noise_step(m)
    factors = array_of(arrays.workspace, m.factors)
    normals = array_of(arrays.workspace, m.random_numbers)
    noise = array_of(arrays.parameters, m.noise)
    fill_normal(normals, arrays.words)
    dtype = factors.dtype.type
    one, stds = dtype(1), np.empty(n_inputs, factors.dtype)
    for j in range(n_inputs):
        stds[j] = dtype(math.exp(0.5 * _bounded(noise[noise_step * j], m)))
    for i in range(m.n_rows):
        for j in range(n_inputs):
            factors[i * n_inputs + j] = one + stds[j] * normals[i * n_inputs + j]


# ---- sampled outputs


@compiled
def _fill_variances(rho, variances):
    """Write the squares of softplus(rho)."""
    for i in range(rho.size):
        sigma = softplus(rho[i])
        variances[i] = sigma * sigma


@compiled
def _sample_outputs(m, arrays):
    """A product with M, and a normal sample; the biases are not added."""
    workspace, shape, n_outputs = arrays.workspace, shape_of(m), m.n_outputs
    weight_variances = array_of(workspace, m.weight_variances)
    bias_variances = array_of(workspace, m.bias_variances)
    _fill_variances(array_of(arrays.parameters, m.noise), weight_variances)
    _fill_variances(array_of(arrays.parameters, m.bias_noise), bias_variances)
    outputs, stds = array_of(workspace, m.outputs), array_of(workspace, m.output_stds)
    mean = array_of(arrays.parameters, m.mean)
    product(array_of(workspace, m.layer_inputs), mean, outputs, shape)
    product(array_of(workspace, m.squared_inputs), weight_variances, stds, shape)
    normals = array_of(workspace, m.output_normals)
    _draw_words(arrays, m.n_rows * n_outputs, 1)
    fill_normal(normals, arrays.words)
    smallest = workspace.dtype.type(MIN_VARIANCE)
    for i in range(m.n_rows):
        row = part(stds, i * n_outputs, n_outputs)
        for j in range(n_outputs):
            row[j] = np.sqrt(row[j] + (bias_variances[j] + smallest))
    for i in range(stds.size):
        outputs[i] += stds[i] * normals[i]


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
def _variances_back(m, arrays):
    """Gradients of rho, on which the variances depend.

    The standard deviations are already replaced by twice the gradient of their squares.
    """
    noise = array_of(arrays.parameters, m.noise)
    to_noise = array_of(arrays.gradients, m.noise)
    twice = array_of(arrays.workspace, m.output_stds)
    squared_inputs = array_of(arrays.workspace, m.squared_inputs)
    twice_to_variance = array_of(arrays.workspace, m.variance_gradients)
    product_over_rows(squared_inputs, twice, twice_to_variance, shape_of(m))
    for i in range(noise.size):
        slope = softplus(noise[i]) * sigmoid(noise[i])
        to_noise[i] = slope * twice_to_variance[i]
    bias_noise = array_of(arrays.parameters, m.bias_noise)
    to_bias_noise = array_of(arrays.gradients, m.bias_noise)
    _sum_rows(twice, m.n_rows, to_bias_noise)
    for j in range(bias_noise.size):
        to_bias_noise[j] *= softplus(bias_noise[j]) * sigmoid(bias_noise[j])


@compiled
def _inputs_back(m, arrays):
    """Gradients of the inputs, through the product with M."""
    product_back(
        array_of(arrays.workspace, m.output_gradients),
        array_of(arrays.parameters, m.mean),
        array_of(arrays.workspace, m.input_gradients),
        shape_of(m),
    )


@compiled
def _backward_sampled(m, arrays):
    """Gradients through sampled outputs."""
    workspace = arrays.workspace
    normals = array_of(workspace, m.output_normals)
    output_gradients = array_of(workspace, m.output_gradients)
    # The standard deviations are replaced by twice the gradient of the variances.
    twice = array_of(workspace, m.output_stds)
    for i in range(twice.size):
        twice[i] = output_gradients[i] * normals[i] / twice[i]
    if m.family == MEAN_FIELD:  # Otherwise the variances are constant.
        _variances_back(m, arrays)
    if m.is_first:
        return
    _inputs_back(m, arrays)
    input_gradients = array_of(workspace, m.input_gradients)
    squared_inputs = array_of(workspace, m.squared_inputs)  # no longer needed
    weight_variances = array_of(workspace, m.weight_variances)
    product_back(twice, weight_variances, squared_inputs, shape_of(m))
    clean_inputs = array_of(workspace, m.clean_inputs)
    if m.has_spike:
        factors = array_of(workspace, m.factors)
        for i in range(factors.size):
            input_gradients[i] *= factors[i]
    for i in range(clean_inputs.size):
        input_gradients[i] += squared_inputs[i] * clean_inputs[i]


@compiled
def _backward_concrete(m, arrays):
    """The gradient of the logit of the dropout rate."""
    layer_inputs = array_of(arrays.workspace, m.layer_inputs)
    factors = array_of(arrays.workspace, m.factors)
    _inputs_back(m, arrays)
    input_gradients = array_of(arrays.workspace, m.input_gradients)
    one, total = factors.dtype.type(1), 0.0
    for i in range(factors.size):
        total += input_gradients[i] * layer_inputs[i] * (one - factors[i])
    arrays.gradients[m.noise.start] = factors.dtype.type(total / TEMPERATURE)


@compiled
def _backward_correlated(m, arrays):
    """The gradient of log alpha, through factors 1 + sqrt(alpha) * normal."""
    n_inputs, noise_step = m.n_inputs, _noise_step(m)
    noise = array_of(arrays.parameters, m.noise)
    to_noise = array_of(arrays.gradients, m.noise)
    clean_inputs = array_of(arrays.workspace, m.clean_inputs)
    normals = array_of(arrays.workspace, m.random_numbers)
    _inputs_back(m, arrays)
    input_gradients = array_of(arrays.workspace, m.input_gradients)
    dtype = noise.dtype.type
    over_stds = np.empty(n_inputs, noise.dtype)
    fill(over_stds, dtype(0))
    for i in range(m.n_rows):
        row_inputs = part(clean_inputs, i * n_inputs, n_inputs)
        row_normals = part(normals, i * n_inputs, n_inputs)
        row_gradients = part(input_gradients, i * n_inputs, n_inputs)
        for j in range(n_inputs):
            over_stds[j] += row_gradients[j] * row_inputs[j] * row_normals[j]
    fill(to_noise, dtype(0))
    for j in range(n_inputs):
        log_alpha = noise[noise_step * j]
        bounded = _bounded(log_alpha, m)
        if bounded == log_alpha:
            std = math.exp(0.5 * bounded)
            to_noise[noise_step * j] += dtype(0.5 * std * over_stds[j])


# ---- one map


def _kind(result, *further) -> FunctionKind:
    """Functions of a map, the arrays, and further arguments."""

    def signature(real):
        vectors = (real[::1],) * 4
        stream = from_dtype(STREAM)[::1]
        arrays = types.NamedTuple((*vectors, types.uint64[::1], stream), Arrays)
        return result(from_dtype(MAP), arrays, *further)

    return FunctionKind(signature)


_PART = _kind(types.void)
_KL_KIND = _kind(types.float64, types.float64, types.boolean)
_call_part, _call_kl = _PART.call, _KL_KIND.call


@compiled
def forward(m, arrays):
    """One stochastic affine map of a batch.

    The layer inputs are multiplied by the factors, and so are their derivatives if the
    map scales its inputs.
    """
    workspace = arrays.workspace
    layer_inputs = array_of(workspace, m.layer_inputs)
    n, n_outputs = layer_inputs.size, m.n_outputs
    if (m.is_sampled and not m.is_first) or m.family == CORRELATED:
        copy(layer_inputs, array_of(workspace, m.clean_inputs))
    if m.is_sampled:
        squared_inputs = array_of(workspace, m.squared_inputs)
        for i in range(n):
            squared_inputs[i] = layer_inputs[i] * layer_inputs[i]
    if m.factors_address:
        _draw_words(arrays, n, 4 if m.has_spike or m.family == BERNOULLI else 1)
        _call_part(m.factors_address, m, arrays)
        factors = array_of(workspace, m.factors)
        for i in range(n):
            layer_inputs[i] *= factors[i]
        if not m.has_spike and not m.is_first:
            slopes = array_of(workspace, m.slopes)
            for i in range(n):
                slopes[i] *= factors[i]
    outputs = array_of(workspace, m.outputs)
    if m.is_sampled:
        _call_part(m.sample_address, m, arrays)
    else:
        mean = array_of(arrays.parameters, m.mean)
        product(layer_inputs, mean, outputs, shape_of(m))
    bias = array_of(arrays.parameters, m.bias)
    for i in range(m.n_rows):
        row = part(outputs, i * n_outputs, n_outputs)
        for j in range(n_outputs):
            row[j] += bias[j]


@compiled
def backward(m, arrays):
    """Gradients of the parameters, and of the inputs before their activation.

    Call it after ``forward``, with the gradients of the outputs.
    """
    workspace = arrays.workspace
    output_gradients = array_of(workspace, m.output_gradients)
    layer_inputs = array_of(workspace, m.layer_inputs)
    to_mean = array_of(arrays.gradients, m.mean)
    product_over_rows(layer_inputs, output_gradients, to_mean, shape_of(m))
    _sum_rows(output_gradients, m.n_rows, array_of(arrays.gradients, m.bias))
    if m.backward_address:
        _call_part(m.backward_address, m, arrays)
    elif not m.is_first:
        _inputs_back(m, arrays)
    if not m.is_first:
        slopes = array_of(workspace, m.slopes)
        input_gradients = array_of(workspace, m.input_gradients)
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
    value, one, factor = 0.0, rho.dtype.type(1), rho.dtype.type(scale)
    if wants_value:
        for i in range(rho.size):
            sigma = softplus(rho[i])
            value += 0.5 * precision[i] * sigma * sigma - log(sigma)
        return value
    for i in range(rho.size):
        sigma = softplus(rho[i])
        gradients[i] += factor * (precision[i] * sigma - one / sigma) * sigmoid(rho[i])
    return value


@compiled
def _mean_field_kl(m, arrays, scale, wants_value):
    value = 0.0
    for noise, of_prior in ((m.noise, m.mean), (m.bias_noise, m.bias)):
        value += _sigma_kl(
            array_of(arrays.parameters, noise),
            array_of(arrays.precision, of_prior),
            array_of(arrays.gradients, noise),
            scale,
            wants_value,
        )
    return value


@compiled
def _concrete_kl(m, arrays, scale, wants_value):
    mean = array_of(arrays.parameters, m.mean)
    of_prior = array_of(arrays.precision, m.mean)
    n_inputs, dtype = m.n_inputs, mean.dtype.type
    logit, total = np.float64(arrays.parameters[m.noise.start]), 0.0
    p = 1 / (1 + math.exp(-logit))
    for i in range(mean.size):
        total += of_prior[i] * mean[i] * mean[i]
    if wants_value:
        return 0.5 * p * total - n_inputs * (softplus(logit) - logit * p)
    to_mean, factor = array_of(arrays.gradients, m.mean), dtype(scale * p)
    for i in range(mean.size):
        to_mean[i] += factor * of_prior[i] * mean[i]
    slope = p * (1 - p) * (0.5 * total + n_inputs * logit)
    arrays.gradients[m.noise.start] += dtype(scale * slope)
    return 0.0


@compiled
def _correlated_kl(m, arrays, scale, wants_value):
    noise = array_of(arrays.parameters, m.noise)
    to_noise = array_of(arrays.gradients, m.noise)
    value, n_inputs = 0.0, m.n_inputs / m.n_noise
    for k in range(noise.size):
        bounded = _bounded(np.float64(noise[k]), m)
        term, slope = _approximate_kl(bounded, m.kingma)
        if wants_value:
            value += n_inputs * term
        elif bounded == noise[k]:
            to_noise[k] += noise.dtype.type(scale * n_inputs * slope)
    return value


@compiled
def kl_extra(m, arrays, scale, wants_value):
    """Add ``scale`` times the gradient of the KL's parts that are not quadratic.

    The quadratic parts are sums of curvature / 2 (parameter - centre)^2 over M and b;
    the loop adds them.

    wants_value : whether to return the value, up to a constant, and no gradient
    """
    if m.kl_address == 0:
        return 0.0
    return _call_kl(m.kl_address, m, arrays, scale, wants_value)


# ---- functions of the maps

_FACTORS = {
    BERNOULLI: _mask_factors,
    GAUSSIAN: _normal_factors,
    CONCRETE: _concrete_factors,
    CORRELATED: _correlated_factors,
}
_BACKWARD = {
    CONCRETE: _backward_concrete,
    CORRELATED: _backward_correlated,
    MEAN_FIELD: _backward_sampled,
    FIXED_WIDTH: _backward_sampled,
}
_KL = {
    CONCRETE: _concrete_kl,
    CORRELATED: _correlated_kl,
    MEAN_FIELD: _mean_field_kl,
}


def is_sampled(family: int) -> bool:
    """Whether the maps of a family are of the second kind."""
    return family >= len(_SCALING)


def compile_functions(maps, activation, dtype):
    """Compile the functions that the maps need, and write their addresses to ``maps``.

    maps : ndarray of MAP
    activation : key of the activation between the maps
    """
    for i, m in enumerate(maps):
        of_family = _mask_factors if m["has_spike"] else _FACTORS.get(m["family"])
        functions = {
            "activation": (
                activations.KIND,
                activations.FUNCTIONS[activation] if i else None,
            ),
            "factors": (_PART, of_family),
            "sample": (_PART, _sample_outputs if m["is_sampled"] else None),
            "backward": (_PART, _BACKWARD.get(m["family"])),
            "kl": (_KL_KIND, _KL.get(m["family"])),
        }
        for name, (kind, function) in functions.items():
            if function is not None:
                m[f"{name}_address"] = kind.address(function, dtype)
